// Bars of records over time: drag to select, Shift-drag or the wheel to zoom, or all of it by keys.
import { canvas, colour, el, numbers } from "./dom.js";
import { drawRules } from "./rules.js";
import { formatCount, formatSize, formatTick, formatTime, plural, ticks } from "./time.js";

const HEIGHT = 210;
const TOP = 20;
const BOTTOM = 26;
const TIP_LINES = 8;
const END = 54; // the width of each end bar

/**
 * @param {any} data the answer of /timeline
 * @param {{selected: ?number[], isSplit: boolean, select: (from: number, to: number) => void, zoom: (from: number, to: number) => void}} options
 */
export function timeline(data, options) {
  const { edges, bars } = data;
  const first = edges[0];
  const last = edges[edges.length - 1];
  const highest = Math.max(1, ...bars);
  const tip = el("div", { class: "tip", hidden: true });
  let mark = -1; // the bar of the keyboard
  let held = null; // {start, end, isZoom} while dragging or selecting by keys, in bars
  let geometry = null;

  const xOf = (ms) => geometry.left + ((ms - first) / (last - first)) * geometry.span;
  const barAt = (x) => Math.max(0, Math.min(bars.length - 1, Math.floor(((x - geometry.left) / geometry.span) * bars.length)));
  const rangeOf = ({ start, end }) => [edges[Math.min(start, end)], edges[Math.max(start, end) + 1]];

  function drawEnd(context, x, count, name, floor, ahead = 0) {
    const full = floor - TOP;
    const height = count ? Math.max(3, Math.min(full, (count / highest) * full)) : 0;
    const red = count ? Math.max(ahead ? 3 : 0, (height * Math.min(ahead, count)) / count) : 0;
    context.fillStyle = colour("bar-dim");
    context.fillRect(x, floor - height, END - 14, height);
    context.fillStyle = colour("bad");
    context.fillRect(x, floor - red, END - 14, red);
    if (count > highest) {
      context.fillStyle = colour("paper");
      context.fillRect(x - 1, TOP + 14, END - 12, 3);
    }
    context.fillStyle = colour("dim");
    context.textAlign = "center";
    context.fillText(name, x + (END - 14) / 2, floor + 17);
  }

  function drawSpan(context, shown, floor) {
    const from = Math.max(geometry.left, xOf(shown[0]));
    const to = Math.min(geometry.left + geometry.span, xOf(shown[1]));
    const [soft, edge] = held?.isZoom ? ["warn-soft", "warn"] : ["accent-soft", "accent"];
    context.fillStyle = colour(soft);
    context.fillRect(from, TOP, Math.max(2, to - from), floor - TOP);
    context.fillStyle = colour(edge);
    for (const x of [from, to]) context.fillRect(x - 0.5, TOP, 1, floor - TOP);
  }

  function draw(context, width, height) {
    const floor = height - BOTTOM;
    geometry = { left: END, span: width - 2 * END, floor };
    context.fillStyle = colour("line");
    context.fillRect(geometry.left, floor, geometry.span, 1);
    const shown = held ? rangeOf(held) : options.selected;
    if (shown) drawSpan(context, shown, floor);
    const layers = options.isSplit && data.split?.length ? data.split.map((one) => one.bars) : [bars];
    const step = geometry.span / bars.length;
    const gap = step > 4 ? 1 : 0;
    bars.forEach((_, index) => {
      let base = floor;
      // The bars of the selected span stand out.
      context.globalAlpha = shown && (edges[index + 1] <= shown[0] || edges[index] >= shown[1]) ? 0.4 : 1;
      layers.forEach((counts, layer) => {
        if (!counts[index]) return;
        const tall = Math.max(1, (counts[index] / highest) * (floor - TOP));
        context.fillStyle = colour(layers.length > 1 ? layerColour(layer) : "bar");
        context.fillRect(geometry.left + index * step, base - tall, Math.max(0.7, step - gap), tall);
        base -= tall;
      });
    });
    context.globalAlpha = 1;
    drawEnd(context, 4, data.before, "before", floor);
    drawEnd(context, width - END + 10, data.after, data.ahead ? "ahead" : "after", floor, data.ahead);
    context.fillStyle = colour("dim");
    context.textAlign = "center";
    for (const at of ticks(first, last, Math.max(2, Math.floor(geometry.span / 110)))) {
      const x = xOf(at);
      context.fillRect(x, floor, 1, 4);
      if (x < geometry.left + 30 || x > geometry.left + geometry.span - 30) continue;
      context.fillText(formatTick(at, last - first), x, floor + 17);
    }
    context.textAlign = "left";
    const most = amount(highest, data);
    context.fillText(most, 4, TOP - 8);
    const lines = [[data.now_ms, "now", "warn"]];
    if (data.retention_ms !== null) lines.push([data.now_ms - data.retention_ms, "retention.ms", "bad"]);
    drawRules(context, lines.filter(([ms]) => ms >= first && ms <= last).map(([ms, text, kind]) => [xOf(ms), text, kind]),
      { right: geometry.left + geometry.span, top: TOP, floor, taken: [{ row: 0, start: 4, end: 4 + context.measureText(most).width }] });
    if (mark >= 0) {
      context.strokeStyle = colour("accent");
      context.lineWidth = 2;
      context.strokeRect(geometry.left + mark * step, TOP, Math.max(2, step), floor - TOP);
      context.lineWidth = 1;
    }
  }

  const area = canvas(HEIGHT, draw, { tabindex: 0, role: "img", "aria-label": label(data) });

  function showTip(index, x) {
    tip.hidden = false;
    const parts = options.isSplit ? data.split.filter((one) => one.bars[index]).slice(0, TIP_LINES).map((one) => `\n${one.partition}: ${amount(one.bars[index], data)}`) : [];
    tip.textContent = `${formatTime(edges[index])}\n${amount(bars[index], data)}${parts.join("")}`;
    tip.style.left = `${Math.max(0, Math.min(area.clientWidth - 220, x + 12))}px`;
    tip.style.top = "4px";
  }

  function finish() {
    const [from, to] = rangeOf(held);
    const { isZoom } = held;
    held = null;
    area.paint();
    if (isZoom) options.zoom(from, to);
    else options.select(from, to);
  }

  area.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    const at = barAt(event.offsetX);
    held = { start: at, end: at, isZoom: event.shiftKey };
    area.setPointerCapture(event.pointerId);
    area.paint();
  });
  area.addEventListener("pointermove", (event) => {
    const at = barAt(event.offsetX);
    showTip(at, event.offsetX);
    if (held && event.buttons) {
      held.end = at;
      area.paint();
    }
  });
  area.addEventListener("pointerup", () => held && finish());
  area.addEventListener("pointerleave", () => { tip.hidden = true; });
  area.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoomAt(event.deltaY < 0 ? 0.5 : 2, edges[barAt(event.offsetX)]);
  }, { passive: false });

  function zoomAt(factor, centre) {
    const span = Math.max(2, Math.round((last - first) * factor));
    const share = (centre - first) / (last - first);
    options.zoom(Math.max(0, Math.round(centre - span * share)), Math.max(1, Math.round(centre + span * (1 - share))));
  }

  area.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -bars.length, End: bars.length };
    if (event.key in moves) {
      event.preventDefault();
      const at = Math.max(0, Math.min(bars.length - 1, mark + moves[event.key]));
      if (event.shiftKey) held = { start: held ? held.start : Math.max(0, mark), end: at, isZoom: false };
      else held = null;
      mark = at;
      showTip(at, geometry.left + (at * geometry.span) / bars.length);
    } else if (event.key === "Enter") {
      held ??= { start: Math.max(0, mark), end: Math.max(0, mark), isZoom: false };
      finish();
      return;
    } else if (event.key === "+" || event.key === "-") {
      zoomAt(event.key === "+" ? 0.5 : 2, edges[Math.max(0, mark)]);
      return;
    } else return;
    area.paint();
  });
  area.addEventListener("blur", () => { tip.hidden = true; });
  return el("div", { class: "chart" }, area, tip);
}

/** A bar's height in words. */
export const amount = (value, data) => (data.unit === "bytes" ? formatSize(Math.round(value)) : plural(value, "record"));

/** The colour of a partition's part of the bars. */
export const layerColour = (layer) => `s${layer % 8}`;

/** The same data with bytes in place of records: each record counts as the mean of its partition. */
export function inBytes(data) {
  const mean = data.record_bytes;
  const scaled = (counts, partition) => counts.map((count) => count * (mean[partition] ?? mean[-1] ?? 0));
  const split = data.split.map((one) => ({ ...one, bars: scaled(one.bars, one.partition) }));
  const sums = data.bars.map((_, index) => split.reduce((sum, one) => sum + one.bars[index], 0));
  const [before, after, ahead] = scaled([data.before, data.after, data.ahead], -1);
  return { ...data, unit: "bytes", split, bars: split.length ? sums : scaled(data.bars, -1), before, after, ahead };
}

function label(data) {
  const inside = data.bars.reduce((sum, count) => sum + count, 0);
  const text = (value) => (data.unit === "bytes" ? formatSize(Math.round(value)) : formatCount(value));
  return `${data.unit === "bytes" ? "Bytes" : "Records"} over time, ${plural(data.bars.length, "bar")}: ${text(inside)} from ${formatTime(data.edges[0])} to ${formatTime(data.edges[data.edges.length - 1])}, ` +
    `${text(data.before)} before, ${text(data.after)} after. Arrow keys move, Shift selects, Enter shows the records.`;
}

const MOST = 0.99;

/** The time that holds nearly all records, where it is a small part of the bars; else null. */
export function crowd({ edges, bars }) {
  const wanted = MOST * bars.reduce((sum, count) => sum + count, 0);
  let best = null;
  let held = 0;
  for (let start = 0, end = 0; end < bars.length; end++) {
    held += bars[end];
    while (held - bars[start] >= wanted && start < end) held -= bars[start++];
    if (held >= wanted && (!best || end - start < best[1] - best[0])) best = [start, end];
  }
  return wanted > 0 && bars.length >= 20 && best[1] - best[0] + 1 <= bars.length / 10 ? [edges[best[0]], edges[best[1] + 1]] : null;
}

/** The numbers of the bars as a table. */
export const barNumbers = (data) => numbers([
  { title: "From", cell: (row) => formatTime(row[0]) }, { title: "To", cell: (row) => formatTime(row[1]) },
  { title: data.unit === "bytes" ? "Bytes" : "Records", right: true, cell: (row) => formatCount(Math.round(row[2])) }],
() => data.bars.map((count, index) => [data.edges[index], data.edges[index + 1], count]).filter(([, , count]) => count));
