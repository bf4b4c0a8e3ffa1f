// The segments of a partition as boxes: from their oldest to their newest time, from offset to offset.
import { canvas, colour, el, numbers } from "./dom.js";
import { drawRules } from "./rules.js";
import { formatCount, formatSize, formatTick, formatTime, plural, ticks, unitOf } from "./time.js";

const HEIGHT = 260;
const LEFT = 64;
const TOP = 20;
const BOTTOM = 26;
const HOUR = 3_600_000;
const FAR = 20;
const SLOW = 30 * 24 * HOUR;

const PINNED = ["FUTURE", "OLDER", "HIGH_WATERMARK"];

/** The fate of a segment as a colour and a word. */
export function fate(segment, now) {
  if (!segment.kept_by || (segment.goes_at_ms !== null && segment.goes_at_ms <= now)) return ["bad", "due when retention next runs"];
  if (PINNED.includes(segment.kept_by)) return ["held", "held"];
  if (segment.kept_by === "ACTIVE" || segment.active) return ["good", "being written"];
  return segment.goes_at_ms === null ? ["bar-dim", "kept"] : ["bar", "due later"];
}

/**
 * @param {any[]} segments of /retention, with the fields of /segments
 * @param {{now: number, retentionMs: number, chosen: ?number, mark: ?{at: number, faded: Set<number>, offset: ?number, found: number}, choose: (segment: any) => void}} view
 */
export function segmentMap(segments, view) {
  const times = segments.flatMap((one) => [one.min_timestamp, one.max_timestamp]).filter((ms) => ms !== null && ms >= 0);
  if (!times.length) return el("div", { class: "note" }, "The partition has no records with a time.");
  const line = view.retentionMs >= 0 ? view.now - view.retentionMs : null;
  const { first, last, beyond } = spanOf(segments, view.now, line);
  const low = segments[0].base_offset;
  const high = Math.max(low + 1, segments[segments.length - 1].next_offset);
  let boxes = [];

  const node = canvas(HEIGHT, (context, width, height) => {
    const floor = height - BOTTOM;
    const x = (ms) => LEFT + ((ms - first) / (last - first)) * (width - LEFT - 10);
    const y = (offset) => floor - ((offset - low) / (high - low)) * (floor - TOP);
    boxes = [];
    for (const one of segments) {
      const max = one.max_timestamp >= 0 ? one.max_timestamp : first;
      const min = one.min_timestamp === null || one.min_timestamp < 0 ? null : one.min_timestamp;
      const left = Math.max(LEFT, Math.min(width - 12, x(min ?? first)));
      const box = { one, left, top: y(one.next_offset), right: Math.max(left + 2, Math.min(width - 10, x(max))), bottom: y(one.base_offset) };
      boxes.push(box);
      const [kind] = fate(one, view.now);
      context.globalAlpha = view.mark?.faded.has(one.base_offset) ? 0.15 : min === null ? 0.45 : 0.85;
      context.fillStyle = colour(kind);
      context.fillRect(box.left, box.top + 0.5, box.right - box.left, Math.max(2, box.bottom - box.top - 1));
      context.globalAlpha = 1;
      if (min === null) hatch(context, box);
      if (one.base_offset === view.chosen) {
        context.strokeStyle = colour("ink");
        context.lineWidth = 2;
        context.strokeRect(box.left - 1, box.top, box.right - box.left + 2, Math.max(2, box.bottom - box.top));
        context.lineWidth = 1;
      }
    }
    context.fillStyle = colour("dim");
    context.textAlign = "center";
    for (const at of ticks(first, last, Math.max(2, Math.floor(width / 120)))) context.fillText(formatTick(at, last - first), Math.max(LEFT + 20, Math.min(width - 30, x(at))), floor + 17);
    context.textAlign = "right";
    for (const offset of [low, Math.round((low + high) / 2), high]) context.fillText(formatCount(offset), LEFT - 6, Math.max(TOP + 8, y(offset)));
    /** @type {[?number, string, string][]} */
    const lines = [[line, "retention.ms", "bad"], [view.now, "now", "warn"], [view.mark?.at ?? null, "looked up", "accent"]];
    drawRules(context, lines.flatMap(([ms, text, kind]) => (ms !== null && ms >= first && ms <= last ? [[x(ms), text, kind]] : [])), { right: width - 10, top: TOP, floor });
    if (view.mark) {
      if (view.mark.offset !== null) {
        context.fillStyle = colour("accent");
        context.beginPath();
        context.arc(x(Math.max(first, view.mark.found)), y(view.mark.offset), 5, 0, 7);
        context.fill();
      }
    }
  }, { tabindex: 0, role: "img", "aria-label": label(segments, view.now) });

  node.addEventListener("click", (event) => {
    // The smallest box that is hit: a wide one must not hide those inside it.
    const hit = boxes.filter((box) => event.offsetX >= box.left - 2 && event.offsetX <= box.right + 2 && event.offsetY >= box.top - 1 && event.offsetY <= box.bottom + 1)
      .sort((a, b) => (a.right - a.left) - (b.right - b.left))[0];
    if (hit) view.choose(hit.one);
  });
  node.addEventListener("keydown", (event) => {
    const step = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = segments.findIndex((one) => one.base_offset === view.chosen);
    view.choose(segments[Math.max(0, Math.min(segments.length - 1, at + step))]);
  });
  return [node, beyond.length > 0 && el("p", { class: "dim" }, beyond.join(" ")), numbers([
    { title: "Offsets", right: true, cell: (one) => `${formatCount(one.base_offset)} to ${formatCount(one.next_offset - 1)}` },
    { title: "Oldest time", class: "nowrap", cell: (one) => formatTime(one.min_timestamp) },
    { title: "Newest time", class: "nowrap", cell: (one) => formatTime(one.max_timestamp) },
    { title: "On disk", right: true, cell: (one) => formatSize(one.size_bytes) },
    { title: "Goes", class: "nowrap", cell: (one) => (one.goes_at_ms === null ? "-" : formatTime(one.goes_at_ms)) },
    { title: "", cell: (one) => fate(one, view.now)[1] },
  ], () => segments)];
}

/** Stripes over a segment whose oldest time is not known: it may reach further to the left. */
function hatch(context, { left, top, right, bottom }) {
  context.save();
  context.beginPath();
  context.rect(left, top, right - left, bottom - top);
  context.clip();
  context.strokeStyle = colour("paper");
  context.beginPath();
  for (let x = left - (bottom - top); x < right; x += 9) {
    context.moveTo(x, bottom);
    context.lineTo(x + bottom - top, top);
  }
  context.stroke();
  context.restore();
}

/** The times from which and to which the map goes, and a sentence for each end that it cuts. */
function spanOf(segments, now, line) {
  const mins = segments.map((one) => one.min_timestamp ?? one.max_timestamp).filter((ms) => ms >= 0);
  const maxes = segments.map((one) => one.max_timestamp).filter((ms) => ms >= 0);
  let first = Math.min(...mins, ...maxes, now);
  let last = Math.max(...maxes, now);
  const beyond = [];
  // One record in seconds or microseconds must not press all segments into a line.
  const low = Math.min(...maxes.filter((ms) => !unitOf(ms)), now);
  const high = Math.max(...mins.filter((ms) => !unitOf(ms)), now);
  const core = Math.max(HOUR, high - low);
  // A segment of some weeks is a slow topic's, not a mistake.
  if (first < low - FAR * core && (unitOf(first) || first < low - SLOW)) {
    beyond.push(`A segment reaches back to ${formatTime(first)}, left of the map.`);
    first = low - core;
  }
  if (last > high + FAR * core) {
    beyond.push(`A segment reaches to ${formatTime(last)}, right of the map.`);
    last = high + core;
  }
  if (line !== null && line < first && first - line < last - first) first = line;
  const edge = Math.max(1, (last - first) * 0.02);
  return { first: first - edge, last: last + edge, beyond };
}

function label(segments, now) {
  const held = segments.filter((one) => fate(one, now)[1] === "held").length;
  return `Map of ${plural(segments.length, "segment")} by time and offset, ${held} held; from offset ${segments[0].base_offset} to ${segments[segments.length - 1].next_offset}. Arrow keys choose a segment.`;
}

/** Why a segment is still there, in words with numbers. */
export function reasonOf(segment, now) {
  if (segment.future) return `It is held by a timestamp ahead of the clock: ${formatTime(segment.future.timestamp_ms)}, of a record in the batch that ends at offset ${formatCount(segment.future.offset)}.`;
  if (segment.kept_by === "OLDER") return `It waits for an older segment, which is kept${segment.held_by === null ? "" : ` (base offset ${formatCount(segment.held_by)})`}: a log is deleted from its start only.`;
  if (!segment.kept_by) return `It goes when retention next runs: it is ${segment.reason ?? "due"}.`;
  const until = segment.goes_at_ms !== null && segment.goes_at_ms > now ? ` It goes at ${formatTime(segment.goes_at_ms)}${segment.reason ? ` (${segment.reason})` : ""}.` : "";
  return `It stays because ${segment.why}.${until}`;
}
