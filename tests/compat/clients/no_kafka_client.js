// no-kafka (see README.md): a client of the 0.9 era that never asks for versions and writes message
// format v0, so its records have neither timestamps nor headers.
const Kafka = require("no-kafka");
const fs = require("node:fs");
const { emit, main, record, text, wantsMore } = require("./contract.js");

const CODECS = { none: Kafka.COMPRESSION_NONE, gzip: Kafka.COMPRESSION_GZIP };
const security = (args) => {
  const read = (path) => fs.readFileSync(path, "utf8");
  const own = args.cert ? { cert: read(args.cert), key: read(args.cert) } : {};
  return args.ca ? { ssl: { ca: read(args.ca), ...own } } : {};
};
const settings = (args) => ({
  connectionString: (args.ca ? "kafka+ssl://" : "") + args.bootstrap,
  clientId: "no-kafka",
  logger: { logLevel: 1 },
  ...security(args),
});

async function produce(args) {
  const producer = new Kafka.Producer({ ...settings(args), requiredAcks: -1, codec: CODECS[args.codec || "none"] });
  await producer.init();
  // One partition at a time: within one request no-kafka compresses all partitions into the same
  // buffer and so sends one partition's bytes in the place of another's.
  for (let wanted = 0; wanted < args.partitions; wanted++) {
    const messages = [];
    for (let i = wanted; i < args.count; i += args.partitions) {
      const { partition, key, value } = record(args, i);
      messages.push({ topic: args.topic, partition, message: { key, value } });
    }
    const failed = (await producer.send(messages)).find(({ error }) => error);
    if (failed) throw failed.error;
  }
  await producer.end();
  emit({ acked: args.count });
}

async function consume(args) {
  const consumer = new Kafka.GroupConsumer({
    ...settings(args),
    groupId: args.group,
    startingOffset: Kafka.EARLIEST_OFFSET,
    sessionTimeout: 6000,
    heartbeatTimeout: 500,
    idleTimeout: 100,
  });
  const records = [];
  const positions = new Map();
  const handler = async (messages, _, partition) => {
    for (const { offset, message } of messages) {
      if (records.length >= args.count) return;
      records.push([partition, offset, null, text(message.key), text(message.value)]);
      positions.set(partition, offset);
    }
  };
  await consumer.init([{ subscriptions: [args.topic], handler }]);
  while (wantsMore(args, records.length)) await new Promise((resolve) => setTimeout(resolve, 50));
  for (const [partition, offset] of positions) await consumer.commitOffset({ topic: args.topic, partition, offset });
  await consumer.end();
  emit({ records });
}

main({ produce, consume });
