// What other retention settings would delete, before anything is changed.
import { get, part, post } from "./api.js";
import { button, canvas, card, colour, copyButton, el, failure, groupLink, incomplete, labelled, notice, numbers, replace, table } from "./dom.js";
import { unasked } from "./delete_records.js";
import { fate, reasonOf } from "./segment_map.js";
import { command, settings } from "./state.js";
import { formatCount, formatDuration, formatSize, formatTick, formatTime, plural, ticks } from "./time.js";

const DAY = 86_400_000;
const UNITS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: DAY, w: 7 * DAY };
const SLIDER = [60_000, 366 * DAY];

/** Above so many partitions the segments of all of them are too much for a page. */
const PARTITIONS_MAX = 200;

/** Milliseconds of "7d", "36h" or a number; -1 keeps for ever; null is none of these. */
function parseMs(text) {
  const match = /^(-?\d+)\s*(ms|s|m|h|d|w)?$/.exec(text.trim());
  return match ? Number(match[1]) * (match[2] ? UNITS[match[2]] : 1) : null;
}

const going = (found) => found.partitions.flatMap((one) => one.segments
  .filter((segment) => fate(segment, found.now_ms)[0] === "bad").map((segment) => ({ ...segment, partition: one.partition })));

export async function simulator(root, { name, plan, partition, count, signal, reload, preview }) {
  const only = count > PARTITIONS_MAX ? partition : null;
  const before = plan.settings;
  const ms = el("input", { "aria-label": "retention.ms", value: before["retention.ms"] < 0 ? "-1" : formatDuration(before["retention.ms"]).replaceAll(" ", ""), size: 12 });
  if (parseMs(ms.value) !== before["retention.ms"]) ms.value = String(before["retention.ms"]);
  const slide = el("input", { type: "range", min: 0, max: 1000, "aria-label": "retention.ms on a logarithmic scale", value: place(before["retention.ms"]) });
  const bytes = el("input", { "aria-label": "retention.bytes", value: String(before["retention.bytes"]), size: 14 });
  const result = el("div", { "aria-live": "polite" });
  let readers = null;
  let timer = 0;
  let last = null;

  const changes = () => ({ "retention.ms": String(parseMs(ms.value) ?? ms.value), "retention.bytes": bytes.value.trim() });
  const ask = () => get(`/topics/${part(name)}/retention`, { ...changes(), partition: only }, signal);

  async function run() {
    try {
      readers ??= await get(`/topics/${part(name)}/readers`, {}, signal);
      last = await ask();
      preview(last, last.settings["retention.ms"]);
      draw();
    } catch (error) {
      if (!signal.aborted) replace(result, failure(error));
    }
  }

  function draw() {
    const gone = going(last);
    const left = last.partitions.flatMap((one) => one.segments).filter((one) => fate(one, last.now_ms)[0] !== "bad");
    const oldest = left.reduce((least, { min_timestamp: time }) => (time !== null && time >= 0 ? Math.min(least, time) : least), Infinity);
    const losers = lost(gone, readers.readers);
    const isChanged = last.settings["retention.ms"] !== before["retention.ms"] || last.settings["retention.bytes"] !== before["retention.bytes"];
    const size = last.partitions.reduce((sum, one) => sum + one.segments.reduce((inner, segment) => inner + segment.size_bytes, 0), 0);
    const rate = last.partitions.reduce((sum, one) => sum + (one.bytes_per_day ?? 0), 0);
    replace(result, incomplete(last),
      only !== null && el("div", { class: "note warn" }, `Of partition ${only} alone: the topic has ${formatCount(count)}, and new settings are for all of them.`),
      el("div", { class: "tiles" },
        tile(formatSize(gone.reduce((sum, one) => sum + one.size_bytes, 0)), `of ${formatSize(size)} would be freed: ${plural(gone.length, "segment")}`),
        tile(formatCount(gone.reduce((sum, one) => sum + one.next_offset - one.base_offset, 0)), "offsets would go"),
        tile(Number.isFinite(oldest) ? formatTime(oldest, 0) : "-", "oldest time left"),
        tile(last.disk.full_at_ms ? formatTime(last.disk.full_at_ms, 0) : "not foreseen", "disk full")),
      gone.length === 0 && why(last),
      losers.length > 0 && [el("div", { class: "note warn" }, "These groups would lose records that they have not read:"), table([
        { title: "Group", class: "name", cell: (one) => groupLink(one.group) },
        { title: "Partition", right: true, cell: (one) => one.partition }, { title: "Unread records lost", right: true, cell: (one) => formatCount(one.lost) }], losers)],
      gone.length > 0 && unasked(readers.groups_unknown),
      rate > 0 ? curve(last, size) : el("p", { class: "dim" }, "No forecast of the size: too few segments, or too little time between them, to know how fast the topic grows."),
      el("p", { class: "dim" }, `Retention runs every ${formatDuration(last.check_interval_ms)}; a segment goes as a whole.`),
      el("div", { class: "bar" },
        isChanged && settings.readOnly !== "1" && button("Apply these settings…", apply, { class: "danger" }),
        settings.readOnly !== "1" && el("a", { href: `/topics/${part(name)}?tab=partitions` }, "Delete records older than a time"),
        copyButton("Copy as command", command("retention", name, ...(only === null ? [] : ["--partition", String(only)]), ...Object.entries(changes()).flatMap(([key, value]) => ["--set", `${key}=${value}`])))));
  }

  async function apply() {
    const key = (found) => going(found).map((one) => `${one.partition}:${one.base_offset}`).join();
    const seen = key(last);
    try {
      last = await ask();
      if (key(last) !== seen) {
        draw();
        notice("What would go has changed since the preview: look again.");
        return;
      }
      if (!confirm(`Set ${Object.entries(changes()).map((pair) => pair.join("=")).join(" and ")} of ${name}? ${plural(going(last).length, "segment")} ${only === null ? "" : `of partition ${only} alone `}would be deleted.`)) return;
      await post(`/topics/${part(name)}/settings`, { changes: changes() });
      notice(`Changed the retention of ${name}.`);
      await reload();
    } catch (error) {
      replace(result, failure(error));
    }
  }

  const soon = () => { clearTimeout(timer); timer = setTimeout(run, 250); };
  slide.addEventListener("input", () => { ms.value = nice(SLIDER[0] * (SLIDER[1] / SLIDER[0]) ** (slide.value / 1000)); soon(); });
  ms.addEventListener("input", () => { slide.value = place(parseMs(ms.value) ?? -1); soon(); });
  bytes.addEventListener("input", soon);
  replace(root, card("If retention were different", null,
    el("div", { class: "bar" }, labelled("retention.ms", ms), slide, labelled("retention.bytes", bytes), el("span", { class: "dim" }, "Nothing is changed by looking.")), result));
  await run();
}

const REASONS_MAX = 3;

/** Why nothing would go now: what keeps the oldest segment of each partition. */
function why({ partitions, settings: rules, now_ms: now }) {
  if (!rules["cleanup.policy"].includes("delete")) {
    return el("div", { class: "note" }, `Nothing goes by age or size, whatever these settings are: cleanup.policy is ${rules["cleanup.policy"]}, so only older records of a key that has a newer one go, by compaction.`);
  }
  const counts = new Map();
  for (const { segments: [oldest] } of partitions) {
    if (oldest?.kept_by) counts.set(reasonOf(oldest, now), (counts.get(reasonOf(oldest, now)) ?? 0) + 1);
  }
  return el("div", { class: "note" }, "Nothing would go now. ", [...counts].slice(0, REASONS_MAX).map(([text, count]) =>
    el("div", {}, `The oldest segment${partitions.length > 1 ? ` of ${plural(count, "partition")}` : ""}: ${text}`)));
}

const tile = (value, text) => el("div", { class: "tile" }, el("b", {}, value), el("span", {}, text));

function place(ms) {
  return ms <= 0 ? 1000 : Math.max(0, Math.min(1000, Math.round((1000 * Math.log(ms / SLIDER[0])) / Math.log(SLIDER[1] / SLIDER[0]))));
}

/** @type {[string, number][]} */
const STEPS = [["d", DAY], ["h", 3_600_000], ["m", 60_000]];

function nice(ms) {
  for (const [unit, size] of STEPS) if (ms >= 2 * size || unit === "m") return `${Math.round(ms / size)}${unit}`;
  return String(ms);
}

/** Groups whose position is in what would go. */
function lost(gone, readers) {
  const starts = new Map();
  for (const one of gone) starts.set(one.partition, Math.max(starts.get(one.partition) ?? 0, one.next_offset));
  return readers.map((one) => ({ ...one, lost: (starts.get(one.partition) ?? 0) - one.position })).filter((one) => one.lost > 0);
}

/** The bytes of a partition `day` days from now: what is there leaves, what comes stays as long as it may. */
function sizeAt({ segments, bytes_per_day: rate }, { now_ms: now, settings: rules }, day) {
  const deletes = rules["cleanup.policy"].includes("delete");
  const keep = deletes && rules["retention.ms"] >= 0 ? rules["retention.ms"] / DAY : Infinity;
  const left = segments.reduce((sum, one) => sum + (one.goes_at_ms !== null && one.goes_at_ms <= now + day * DAY ? 0 : one.size_bytes), 0);
  // A log stays below `retention.bytes` and one segment.
  const most = deletes && rules["retention.bytes"] >= 0 ? rules["retention.bytes"] + Math.max(...segments.map((one) => one.size_bytes)) : Infinity;
  return Math.min(left + (rate ?? 0) * Math.min(day, keep), Math.max(most, left));
}

/** The size of the topic over the next 14 days. */
function curve(found, size) {
  const points = [];
  for (let day = 0; day <= 14; day += 0.25) {
    points.push([found.now_ms + day * DAY, found.partitions.reduce((sum, one) => sum + sizeAt(one, found, day), 0)]);
  }
  const highest = Math.max(...points.map((one) => one[1]), 1);
  const [first, last] = [points[0][0], points[points.length - 1][0]];
  const drawn = canvas(120, (context, width, height) => {
    const x = (ms) => 10 + ((ms - first) / (last - first)) * (width - 20);
    const y = (value) => height - 22 - (value / highest) * (height - 42);
    context.strokeStyle = colour("accent");
    context.lineWidth = 2;
    context.beginPath();
    points.forEach(([ms, value], index) => (index ? context.lineTo(x(ms), y(value)) : context.moveTo(x(ms), y(value))));
    context.stroke();
    context.fillStyle = colour("dim");
    context.fillText(`size in the next 14 days, ${formatSize(highest)} at most`, 10, 12);
    for (const at of ticks(first, last, 8)) context.fillText(formatTick(at, last - first), Math.min(width - 40, x(at)), height - 5);
  }, { role: "img", "aria-label": `Size over the next 14 days: now ${formatSize(size)}, at most ${formatSize(highest)}, at the end ${formatSize(points[points.length - 1][1])}` });
  return [drawn, numbers([
    { title: "At", class: "nowrap", cell: (one) => formatTime(one[0], 0) }, { title: "Size", right: true, cell: (one) => formatSize(Math.round(one[1])) }], () => points)];
}
