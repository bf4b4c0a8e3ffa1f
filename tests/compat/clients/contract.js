// The command line and the records that all JavaScript client programs share (see README.md).
const fs = require("node:fs");
const { inspect } = require("node:util");

const started = Date.now();

exports.emit = (document) => process.stdout.write(JSON.stringify(document) + "\n");

exports.text = (data) => (data === null || data === undefined ? null : data.toString());

exports.record = (args, i) => ({
  partition: i % args.partitions,
  timestamp: Number(args.base) + ((i * 37) % args.count) * 1000,
  key: `key-${i}`,
  value: `value-${i}-${"x".repeat(64)}`,
});

exports.wantsMore = (args, seen) => {
  const overdue = Date.now() - started > Number(args.timeout || 40) * 1000;
  if (args.stop) return !overdue && !fs.existsSync(args.stop);
  if (seen < args.count && overdue) throw new Error(`only ${seen} of ${args.count} records came in time`);
  return seen < args.count;
};

exports.main = (scenarios) => {
  process.env.KAFKAJS_NO_PARTITIONER_WARNING = "1";
  const [name, ...pairs] = process.argv.slice(2);
  const args = Object.fromEntries(pairs.map((pair) => [pair.split("=", 1)[0], pair.slice(pair.indexOf("=") + 1)]));
  for (const key of ["count", "partitions"]) if (args[key]) args[key] = Number(args[key]);
  scenarios[name](args).then(
    () => process.exit(0),
    (error) => {
      console.error(inspect(error, { depth: 8 })); // the reason may be an error inside of errors
      process.exit(1);
    },
  );
};
