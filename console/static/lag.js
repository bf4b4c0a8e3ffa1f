// How a lag's trend is shown.
import { el } from "./dom.js";
import { formatDuration } from "./time.js";

/** An arrow with words; `slope` is seconds of lag per second. */
export function trendMark(slope) {
  if (slope === null || slope === undefined) return el("span", { class: "dim" }, "…");
  if (Math.abs(slope) <= 0.05) return el("span", { class: "dim" }, "→ steady");
  const pace = `${formatDuration(Math.round(Math.abs(slope) * 60) * 1000)} a minute`;
  return slope > 0 ? el("span", { class: "bad" }, `↗ grows ${pace}`) : el("span", { class: "good" }, `↘ shrinks ${pace}`);
}
