// @platformatic/kafka (see README.md).
const kafka = require("@platformatic/kafka");
const fs = require("node:fs");
const { emit, main, record, wantsMore } = require("./contract.js");

const security = (args) => {
  const read = (path) => fs.readFileSync(path, "utf8");
  const own = args.cert ? { cert: read(args.cert), key: read(args.cert) } : {};
  const login = args.token ? { token: () => read(args.token) } : { username: args.user, password: args.password };
  return {
    ...(args.ca && { tls: { ca: [read(args.ca)], ...own } }),
    ...(args.mechanism && { sasl: { mechanism: args.mechanism, ...login } }),
  };
};
const settings = (args) => ({
  clientId: "platformatic",
  bootstrapBrokers: [args.bootstrap],
  autocreateTopics: false,
  connectTimeout: 20000,
  ...security(args),
});

async function produce(args) {
  const producer = new kafka.Producer({ ...settings(args), serializers: kafka.stringSerializers });
  const messages = [];
  for (let i = 0; i < args.count; i++) {
    const { partition, timestamp, key, value } = record(args, i);
    messages.push({ topic: args.topic, partition, timestamp: BigInt(timestamp), key, value, headers: { n: String(i) } });
  }
  await producer.send({ messages, acks: -1, compression: args.codec || "none" });
  await producer.close();
  emit({ acked: messages.length });
}

async function consume(args) {
  const consumer = new kafka.Consumer({
    ...settings(args),
    groupId: args.group,
    deserializers: kafka.stringDeserializers,
    sessionTimeout: 6000,
    heartbeatInterval: 500,
    rebalanceTimeout: 6000,
    maxWaitTime: 200,
    metadataMaxAge: 2000,
    isolationLevel: args.isolation === "read_committed" ? 1 : 0,
  });
  consumer.on("consumer:group:join", ({ assignments }) => {
    const mine = (assignments || []).filter(({ topic }) => topic === args.topic);
    emit({ assigned: mine.flatMap(({ partitions }) => partitions).sort() });
  });
  const stream = await consumer.consume({ topics: [args.topic], mode: "committed", fallbackMode: "earliest", autocommit: false });
  const records = [];
  const positions = new Map();
  stream.on("data", ({ partition, offset, timestamp, key, value }) => {
    if (records.length >= args.count) return;
    records.push([partition, Number(offset), Number(timestamp), key, value]);
    positions.set(partition, offset + 1n);
  });
  while (wantsMore(args, records.length)) await new Promise((resolve) => setTimeout(resolve, 50));
  const offsets = [...positions].map(([partition, offset]) => ({ topic: args.topic, partition, offset, leaderEpoch: -1 }));
  if (offsets.length && !args.stop) await consumer.commit({ offsets });
  await consumer.close(true);
  emit({ records });
}

async function times(args) {
  const consumer = new kafka.Consumer({ ...settings(args), groupId: "times" });
  const partitions = { [args.topic]: Array.from({ length: args.partitions }, (_, i) => i) };
  const found = {};
  for (const timestamp of args.timestamps.split(",")) {
    const listed = await consumer.listOffsets({ topics: [args.topic], partitions, timestamp: BigInt(timestamp) });
    found[timestamp] = {};
    listed.get(args.topic).forEach((offset, partition) => {
      found[timestamp][partition] = offset < 0n ? null : Number(offset);
    });
  }
  await consumer.close(true);
  emit({ found });
}

async function admin(args) {
  const client = new kafka.Admin(settings(args));
  const configs = [{ name: "retention.ms", value: "3600000" }];
  await client.createTopics({ topics: [args.topic], partitions: 3, replicas: 1, configs });
  const metadata = await client.metadata({ topics: [args.topic] });
  const resources = [{ resourceType: 2, resourceName: args.topic, configurationKeys: ["retention.ms"] }];
  const described = await client.describeConfigs({ resources });
  const config = described[0].configs.find(({ name }) => name === "retention.ms").value;
  await client.deleteTopics({ topics: [args.topic] });
  let deleted = false;
  for (let i = 0; i < 50 && !deleted; i++) {
    deleted = !(await client.listTopics()).includes(args.topic);
    if (!deleted) await new Promise((resolve) => setTimeout(resolve, 100));
  }
  await client.close();
  emit({ partitions: metadata.topics.get(args.topic).partitionsCount, config, deleted });
}

async function transact(args) {
  const identity = { idempotent: true, transactionalId: args.id };
  const producer = new kafka.Producer({ ...settings(args), ...identity, serializers: kafka.stringSerializers });
  for (const [prefix, first] of [["committed", 0], ["aborted", 0], ["committed", 10]]) {
    const transaction = await producer.beginTransaction();
    const messages = [];
    for (let i = first; i < first + 10; i++) {
      messages.push({ topic: args.topic, partition: i % args.partitions, value: `${prefix}-${i}` });
    }
    await transaction.send({ messages });
    await (prefix === "committed" ? transaction.commit() : transaction.abort());
  }
  await producer.close();
  emit({ committed: 20, aborted: 10 });
}

main({ produce, consume, member: consume, times, admin, transact });
