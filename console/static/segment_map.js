// The segments of a partition as boxes: from their oldest to their newest time, from offset to offset.
import { canvas, colour, el } from "./dom.js";
import { formatCount, formatTick, formatTime, plural, ticks } from "./time.js";

const HEIGHT = 260;
const LEFT = 64;
const TOP = 16;
const BOTTOM = 26;

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
 * @param {{now: number, retentionMs: number, chosen: ?number, mark: ?{at: number, faded: Set<number>, offset: ?number}, choose: (segment: any) => void}} view
 */
export function segmentMap(segments, view) {
  const times = segments.flatMap((one) => [one.min_timestamp, one.max_timestamp]).filter((ms) => ms !== null && ms >= 0);
  if (!times.length) return el("div", { class: "note" }, "The partition has no records with a time.");
  const line = view.retentionMs >= 0 ? view.now - view.retentionMs : null;
  let first = Math.min(...times);
  let last = Math.max(...times, view.now);
  if (line !== null && line < first && first - line < last - first) first = line;
  last += Math.max(1, (last - first) * 0.02);
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
      const box = { one, left: x(min ?? first), top: y(one.next_offset), right: Math.max(x(max), x(min ?? first) + 2), bottom: y(one.base_offset) };
      boxes.push(box);
      const [kind] = fate(one, view.now);
      context.globalAlpha = view.mark?.faded.has(one.base_offset) ? 0.15 : min === null ? 0.35 : 0.85;
      context.fillStyle = colour(kind);
      context.fillRect(box.left, box.top + 0.5, box.right - box.left, Math.max(2, box.bottom - box.top - 1));
      context.globalAlpha = 1;
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
    const rule = (ms, text, kind) => {
      if (ms === null || ms < first || ms > last) return;
      context.strokeStyle = colour(kind);
      context.setLineDash([5, 4]);
      context.beginPath();
      context.moveTo(x(ms), TOP - 4);
      context.lineTo(x(ms), floor);
      context.stroke();
      context.setLineDash([]);
      context.fillStyle = colour(kind);
      context.textAlign = x(ms) > width - 120 ? "right" : "left";
      context.fillText(text, x(ms) + (x(ms) > width - 120 ? -4 : 4), TOP - 3);
    };
    rule(line, "retention.ms", "bad");
    rule(view.now, "now", "warn");
    if (view.mark) {
      rule(view.mark.at, "looked up", "accent");
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
  return node;
}

function label(segments, now) {
  const held = segments.filter((one) => fate(one, now)[1] === "held").length;
  return `Map of ${plural(segments.length, "segment")} by time and offset, ${held} held; from offset ${segments[0].base_offset} to ${segments[segments.length - 1].next_offset}. Arrow keys choose a segment.`;
}

/** Why a segment is still there, in words with numbers. */
export function reasonOf(segment, now) {
  if (segment.future) return `It is held by a timestamp ahead of the clock: offset ${formatCount(segment.future.offset)} has ${formatTime(segment.future.timestamp_ms)}.`;
  if (segment.kept_by === "OLDER") return `It waits for an older segment, which is kept${segment.held_by === null ? "" : ` (base offset ${formatCount(segment.held_by)})`}: a log is deleted from its start only.`;
  if (!segment.kept_by) return `It goes when retention next runs: it is ${segment.reason ?? "due"}.`;
  const until = segment.goes_at_ms !== null && segment.goes_at_ms > now ? ` It goes at ${formatTime(segment.goes_at_ms)}${segment.reason ? ` (${segment.reason})` : ""}.` : "";
  return `It stays because ${segment.why}.${until}`;
}
