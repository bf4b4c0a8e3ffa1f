// The times of a topic by a sample, where the brokers audit none; and the table of disorder.
import { canvas, colour, el, empty, numbers, table } from "./dom.js";
import { layerColour } from "./timeline.js";
import { formatCount, formatDuration, formatSize, formatTick, formatTime, plural, ticks, unitOf } from "./time.js";

const LEFT = 120;
const SHOWN_MAX = 16;

const bound = (ms) => (ms < 0 ? "over 7 d" : ms === 0 ? "0" : `to ${formatDuration(ms)}`);

export function disorderTable(partitions) {
  return table([
    { title: "Partition", right: true, cell: (one) => one.partition },
    { title: "Offsets", cell: (one) => (one.to_offset > one.from_offset ? `${formatCount(one.from_offset)} to ${formatCount(one.to_offset - 1)}` : "-") },
    { title: "Records", right: true, cell: (one) => formatCount(one.records) },
    { title: "Out of order", right: true, cell: (one) => (one.records ? `${formatCount(one.out_of_order)} (${((100 * one.out_of_order) / one.records).toFixed(1)} %)` : "-") },
    { title: "Half are late by", cell: (one) => bound(one.late_p50_ms) },
    { title: "99 % by", cell: (one) => bound(one.late_p99_ms) },
    { title: "Latest by", cell: (one) => formatDuration(one.largest_step_back_ms) },
  ], partitions, { label: "Disorder" });
}

/** @param {any} found the answer to /skew-sample, a sentence says why there is no audit */
export function sampleView(found, why) {
  const wrong = found.partitions.flatMap((one) => faults(one, found.now_ms).map((text) => ({ partition: one.partition, text })));
  const stamped = found.partitions.reduce((sum, one) => sum + one.stamped, 0);
  const read = found.partitions.reduce((sum, one) => sum + one.records + one.stamped + one.without_time, 0);
  return [
    el("div", { class: "note warn" }, `A sample: ${plural(read, "record")} of ${plural(found.offsets_read, "batch", "batches")} at evenly spread offsets, ${formatSize(found.read_bytes)}. ${why} `,
      "When a record was appended is not known here, so only times that are still ahead of the clock show as wrong; disorder is at least what the sample shows. 'tidelog spark skew' reads whole topics."),
    found.offsets_read < found.offsets_wanted && el("div", { class: "note" }, `The budget of bytes ended the sample after ${found.offsets_read} of ${found.offsets_wanted} offsets.`),
    found.partitions.length < found.partitions_all && el("div", { class: "note" }, `${found.partitions.length} of ${formatCount(found.partitions_all)} partitions, evenly spread.`),
    el("h2", {}, "Times that cannot be"),
    wrong.length ? table([{ title: "Partition", right: true, cell: (one) => one.partition }, { title: "What", cell: (one) => one.text }], wrong) : empty("None in the sample."),
    el("h2", {}, "Time over offset"),
    curve(found.partitions),
    el("h2", {}, "Disorder, at least"),
    disorderTable(found.partitions),
    stamped > 0 && el("div", { class: "note" }, `${plural(stamped, "record")} have the broker's own time, which is never off.`),
  ];
}

function faults(one, now) {
  const found = [];
  const place = (record) => `offset ${formatCount(record.offset)}`;
  if (one.ahead) found.push(`A record is ${formatDuration(one.ahead.timestamp_ms - now)} ahead of the clock (${place(one.ahead)}, ${formatTime(one.ahead.timestamp_ms)}).`);
  const unit = one.mistaken && unitOf(one.mistaken.timestamp_ms);
  if (unit) found.push(`A time looks like ${unit} instead of milliseconds (${place(one.mistaken)}, timestamp ${one.mistaken.timestamp_ms}).`);
  if (one.without_time) found.push(`${plural(one.without_time, "record")} of the sample carry no time.`);
  return found;
}

/** From left to right the log of each partition, upwards time: a line that falls is disorder. */
function curve(partitions) {
  const drawn = partitions.filter((one) => one.curve.length).slice(0, SHOWN_MAX);
  const times = drawn.flatMap((one) => one.curve.flatMap(([, low, high]) => [low, high]));
  if (!times.length) return empty("There are no records with a time of their own.");
  const [first, last] = [Math.min(...times), Math.max(...times)];
  const chart = canvas(220, (context, width, height) => {
    const y = (ms) => height - 24 - ((ms - first) / Math.max(1, last - first)) * (height - 40);
    drawn.forEach((one, layer) => {
      const span = Math.max(1, one.to_offset - 1 - one.from_offset);
      const x = (offset) => LEFT + ((offset - one.from_offset) / span) * (width - LEFT - 12);
      context.strokeStyle = context.fillStyle = colour(layerColour(layer));
      context.beginPath();
      one.curve.forEach(([offset, low, high], index) => {
        if (index) context.lineTo(x(offset), y(high));
        else context.moveTo(x(offset), y(high));
        context.fillRect(x(offset) - 1, y(high), 2.5, Math.max(2.5, y(low) - y(high)));
      });
      context.stroke();
    });
    context.fillStyle = colour("dim");
    context.textAlign = "right";
    for (const at of ticks(first, last, 5)) context.fillText(formatTick(at, last - first), LEFT - 8, Math.max(12, y(at) + 4));
    context.textAlign = "left";
    context.fillText("the oldest record", LEFT, height - 6);
    context.textAlign = "right";
    context.fillText("the newest", width - 12, height - 6);
  }, { role: "img", "aria-label": `Times of the sample over offsets: from ${formatTime(first)} to ${formatTime(last)}, ${drawn.length} of ${plural(partitions.length, "partition")}` });
  return [chart, numbers([
    { title: "Partition", right: true, cell: (row) => row[0] }, { title: "Batch of offset", right: true, cell: (row) => formatCount(row[1]) },
    { title: "Oldest time", class: "nowrap", cell: (row) => formatTime(row[2]) }, { title: "Newest time", class: "nowrap", cell: (row) => formatTime(row[3]) },
  ], () => drawn.flatMap((one) => one.curve.map((point) => [one.partition, ...point])))];
}
