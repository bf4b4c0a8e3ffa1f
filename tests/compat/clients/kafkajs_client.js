// kafkajs (see README.md). gzip is built in; the other codecs are plugged in as its guide says.
const fs = require("node:fs");
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require("kafkajs");
const { emit, main, record, text, wantsMore } = require("./contract.js");

CompressionCodecs[CompressionTypes.Snappy] = require("kafkajs-snappy");
CompressionCodecs[CompressionTypes.LZ4] = () => {
  const lz4 = require("lz4-napi");
  return {
    compress: (encoder) => lz4.compressFrame(encoder.buffer),
    decompress: (buffer) => lz4.decompressFrame(buffer),
  };
};
CompressionCodecs[CompressionTypes.ZSTD] = () => {
  const simple = new Promise((resolve) => {
    require("zstd-codec").ZstdCodec.run((zstd) => resolve(new zstd.Simple()));
  });
  return {
    compress: async (encoder) => Buffer.from((await simple).compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from((await simple).decompress(buffer)),
  };
};
const CODECS = { none: 0, gzip: 1, snappy: 2, lz4: 3, zstd: 4 };

const security = (args) => {
  const read = (path) => fs.readFileSync(path, "utf8");
  const own = args.cert ? { cert: read(args.cert), key: read(args.cert) } : {};
  const sasl = args.mechanism && {
    mechanism: args.mechanism.toLowerCase(),
    username: args.user,
    password: args.password,
    ...(args.token && { oauthBearerProvider: async () => ({ value: read(args.token) }) }),
  };
  return { ssl: args.ca ? { ca: [read(args.ca)], ...own } : false, sasl };
};
const connect = (args) => new Kafka({ brokers: [args.bootstrap], logLevel: logLevel.ERROR, ...security(args) });

async function produce(args) {
  const producer = connect(args).producer({ allowAutoTopicCreation: true });
  await producer.connect();
  const messages = [];
  for (let i = 0; i < args.count; i++) {
    const { partition, timestamp, key, value } = record(args, i);
    messages.push({ partition, timestamp: String(timestamp), key, value, headers: { n: String(i) } });
  }
  for (let first = 0; first < messages.length; first += 50) {
    const batch = messages.slice(first, first + 50);
    await producer.send({ topic: args.topic, messages: batch, acks: -1, compression: CODECS[args.codec || "none"] });
  }
  await producer.disconnect();
  emit({ acked: messages.length });
}

async function consume(args) {
  const consumer = connect(args).consumer({
    groupId: args.group,
    sessionTimeout: 6000,
    heartbeatInterval: 500,
    metadataMaxAge: 2000,
    maxWaitTimeInMs: 300,
    readUncommitted: args.isolation !== "read_committed",
  });
  const records = [];
  const positions = new Map();
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    emit({ assigned: (payload.memberAssignment[args.topic] || []).slice().sort() });
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [args.topic], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      if (records.length >= args.count) return;
      records.push([partition, Number(message.offset), Number(message.timestamp), text(message.key), text(message.value)]);
      positions.set(partition, Number(message.offset) + 1);
    },
  });
  while (wantsMore(args, records.length)) await new Promise((resolve) => setTimeout(resolve, 50));
  const held = [...positions].map(([partition, offset]) => ({ topic: args.topic, partition, offset: String(offset) }));
  if (held.length && !args.stop) await consumer.commitOffsets(held);
  await consumer.disconnect();
  emit({ records });
}

async function times(args) {
  const admin = connect(args).admin();
  await admin.connect();
  const found = {};
  for (const timestamp of args.timestamps.split(",")) {
    // kafkajs answers the end offset where nothing is found: compare with the end to tell them apart.
    const ends = await admin.fetchTopicOffsets(args.topic);
    const end = Object.fromEntries(ends.map(({ partition, high }) => [partition, Number(high)]));
    found[timestamp] = {};
    for (const { partition, offset } of await admin.fetchTopicOffsetsByTimestamp(args.topic, Number(timestamp))) {
      found[timestamp][partition] = Number(offset) === end[partition] ? null : Number(offset);
    }
  }
  await admin.disconnect();
  emit({ found });
}

async function admin(args) {
  const client = connect(args).admin();
  await client.connect();
  const configEntries = [{ name: "retention.ms", value: "3600000" }];
  await client.createTopics({ topics: [{ topic: args.topic, numPartitions: 3, configEntries }] });
  const described = await client.fetchTopicMetadata({ topics: [args.topic] });
  const { resources } = await client.describeConfigs({ includeSynonyms: false, resources: [{ type: 2, name: args.topic }] });
  const config = resources[0].configEntries.find((entry) => entry.configName === "retention.ms").configValue;
  await client.deleteTopics({ topics: [args.topic] });
  let deleted = false;
  for (let i = 0; i < 50 && !deleted; i++) {
    deleted = !(await client.listTopics()).includes(args.topic);
    if (!deleted) await new Promise((resolve) => setTimeout(resolve, 100));
  }
  await client.disconnect();
  emit({ partitions: described.topics[0].partitions.length, config, deleted });
}

async function transact(args) {
  const producer = connect(args).producer({ transactionalId: args.id, maxInFlightRequests: 1, idempotent: true });
  await producer.connect();
  for (const [prefix, first] of [["committed", 0], ["aborted", 0], ["committed", 10]]) {
    const transaction = await producer.transaction();
    const messages = [];
    for (let i = first; i < first + 10; i++) {
      messages.push({ partition: i % args.partitions, value: `${prefix}-${i}` });
    }
    await transaction.send({ topic: args.topic, messages, acks: -1 });
    await (prefix === "committed" ? transaction.commit() : transaction.abort());
  }
  await producer.disconnect();
  emit({ committed: 20, aborted: 10 });
}

main({ produce, consume, member: consume, times, admin, transact });
