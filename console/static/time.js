// Times, durations, sizes and counts as people read them, in the zone that the page is set to.
import { param, preference } from "./state.js";

const DAY = 86_400_000;
const formats = new Map();

/** "UTC" or the name of a zone. */
export function zoneName() {
  const chosen = param("zone") || preference("zone") || "utc";
  if (chosen === "utc") return "UTC";
  return chosen === "local" ? Intl.DateTimeFormat().resolvedOptions().timeZone : chosen;
}

function partsOf(ms) {
  const zone = zoneName();
  if (!formats.has(zone)) {
    /** @type {Intl.DateTimeFormatOptions} */
    const base = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "longOffset" };
    try {
      formats.set(zone, new Intl.DateTimeFormat("en-CA", { ...base, timeZone: zone }));
    } catch {
      formats.set(zone, new Intl.DateTimeFormat("en-CA", { ...base, timeZone: "UTC" }));
    }
  }
  const parts = {};
  for (const { type, value } of formats.get(zone).formatToParts(ms)) parts[type] = value;
  parts.offset = zone === "UTC" ? "Z" : parts.timeZoneName.replace("GMT", "") || "+00:00";
  return parts;
}

/** ISO 8601 with milliseconds and the zone's offset; "-" where there is no time. */
export function formatTime(ms, digits = 3) {
  if (ms === null || ms === undefined || ms === -1) return "-";
  if (Math.abs(ms) > 8.64e15) return `${ms} ms`;
  const p = partsOf(ms);
  const fraction = digits ? `.${String(((ms % 1000) + 1000) % 1000).padStart(3, "0")}` : "";
  return `${p.year}-${p.month}-${p.day} ${p.hour}:${p.minute}:${p.second}${fraction}${p.offset}`;
}

const CALENDAR_END = 253402300800000;
/** Numbers that everybody takes for milliseconds; others have to be written with their unit. */
const PLAIN = [1e11, CALENDAR_END];

/** A time as an address and a question have it. */
export const exactTime = (ms) => (ms >= PLAIN[0] && ms < PLAIN[1] ? ms : `${ms}ms`);

/** The form that a command line and the time box take. */
export const isoTime = (ms) => (ms < CALENDAR_END ? formatTime(ms).replace(" ", "T") : `${ms}ms`);

/** A time that was typed here, for a command line: without a zone it would mean another time there. */
export const typedTime = (text, ms) => (/^([-+]\d|now$)/i.test(text) ? text : isoTime(ms));

/** A label of an axis: no more than the span needs. */
export function formatTick(ms, spanMs) {
  if (Math.abs(ms) > 8.64e15) return "";
  const p = partsOf(ms);
  if (spanMs > 400 * DAY) return `${p.year}-${p.month}-${p.day}`;
  if (spanMs > 12 * DAY) return `${p.month}-${p.day}`;
  if (spanMs > DAY / 2) return `${p.month}-${p.day} ${p.hour}:${p.minute}`;
  if (spanMs > 300_000) return `${p.hour}:${p.minute}`;
  const fraction = spanMs < 5000 ? `.${String(ms % 1000).padStart(3, "0")}` : "";
  return `${p.hour}:${p.minute}:${p.second}${fraction}`;
}

const STEPS = [1, 5, 10, 50, 100, 500, 1e3, 5e3, 15e3, 6e4, 3e5, 9e5, 1.8e6, 3.6e6, 1.08e7, 2.16e7, 4.32e7, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 91 * DAY, 365 * DAY, 3650 * DAY];

/** How far the clocks of the page's zone are ahead of UTC at a time, in ms. */
function aheadOfUtc(ms) {
  if (zoneName() === "UTC" || Math.abs(ms) > 8.64e15) return 0;
  const [, sign, hours, minutes, seconds = "0"] = /([+-])(\d\d):(\d\d)(?::(\d\d))?/.exec(partsOf(ms).offset) ?? [];
  return sign ? Number(`${sign}1`) * (Number(hours) * 3600 + Number(minutes) * 60 + Number(seconds)) * 1000 : 0;
}

/** Times between two, about `count` of them, that are round on the clocks of the page's zone. */
export function ticks(from, to, count) {
  const step = STEPS.find((one) => (to - from) / one <= count) ?? Math.ceil((to - from) / count);
  const found = [];
  for (let clock = Math.ceil((from + aheadOfUtc(from)) / step) * step; ; clock += step) {
    const at = clock - aheadOfUtc(clock - aheadOfUtc(clock));
    if (at > to) return found;
    // Where clocks go back, a round time may come twice.
    if (at >= from && at > (found[found.length - 1] ?? -Infinity)) found.push(at);
  }
}

/** @type {[number, string][]} */
const UNITS = [[86_400, "d"], [3600, "h"], [60, "m"], [1, "s"]];

export function formatDuration(ms) {
  if (ms === null || ms === undefined) return "-";
  if (ms < 0) return `-${formatDuration(-ms)}`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  let rest = Math.floor(ms / 1000);
  const found = [];
  for (const [seconds, unit] of UNITS) {
    const count = Math.floor(rest / seconds);
    rest -= count * seconds;
    if (count) found.push(`${count} ${unit}`);
  }
  return found.slice(0, 2).join(" ");
}

export function formatAge(ms, now) {
  if (ms === null || ms === undefined || ms === -1) return "-";
  const age = now - ms;
  return age >= 0 ? `${formatDuration(age)} ago` : `${formatDuration(-age)} ahead`;
}

export function formatSize(bytes) {
  if (bytes === null || bytes === undefined) return "-";
  if (bytes < 1024) return `${bytes} B`;
  let size = bytes / 1024;
  for (const unit of ["KiB", "MiB", "GiB", "TiB"]) {
    if (size < 1024 || unit === "TiB") return `${size < 10 ? size.toFixed(1) : Math.round(size)} ${unit}`;
    size /= 1024;
  }
  return "-";
}

const digits = new Intl.NumberFormat("en-US");
export const formatCount = (count) => (count === null || count === undefined ? "-" : digits.format(count));
export const plural = (count, one, many = `${one}s`) => `${formatCount(count)} ${count === 1 ? one : many}`;

/** A setting in ms or bytes with its meaning. */
export function formatRetention(ms) {
  if (ms === undefined || ms === null) return "-";
  return Number(ms) < 0 ? "for ever" : formatDuration(Number(ms));
}

/** The unit in which a time looks, where that is not milliseconds; null where it is. */
export function unitOf(ms) {
  if (ms >= 1e8 && ms < 1e11) return "seconds";
  if (ms >= 253402387200000 && ms < 1e17) return "microseconds";
  return ms >= 1e17 ? "nanoseconds" : null;
}
