// How a lag's trend is shown.
import { el } from "./dom.js";

/** An arrow with words; `slope` is seconds of lag per second. */
export function trendMark(slope) {
  if (slope === null || slope === undefined) return el("span", { class: "dim" }, "…");
  if (Math.abs(slope) <= 0.05) return el("span", { class: "dim" }, "→ steady");
  return slope > 0
    ? el("span", { class: "bad" }, `↗ grows ${(slope * 60).toFixed(0)} s a minute`)
    : el("span", { class: "good" }, `↘ shrinks ${(-slope * 60).toFixed(0)} s a minute`);
}
