// The settable clock of a broker for tests: where it stands, and moving it.
import { get, post } from "./api.js";
import { button, card, copyButton, el, failure, labelled, replace } from "./dom.js";
import { command, settings } from "./state.js";
import { formatDuration, formatTime, plural } from "./time.js";

const STEPS = [["1 min", 60_000], ["1 h", 3_600_000], ["1 d", 86_400_000], ["8 d", 8 * 86_400_000], ["30 d", 30 * 86_400_000]];

export async function show(root, { signal, refresh }) {
  let clock;
  try {
    clock = await get("/clock", {}, signal);
  } catch (error) {
    if (error.status !== 501) throw error;
    replace(root, el("div", { class: "head" }, el("h1", {}, "Clock")),
      el("div", { class: "note" }, `Not available: ${error.message}`), el("p", { class: "dim" }, `The clock of this machine: ${formatTime(Date.now())}`));
    return;
  }
  const result = el("div", { "aria-live": "polite" });
  const box = el("input", { "aria-label": "Time", "data-key": "t", placeholder: "2026-01-01T00:00Z" });
  const reading = el("div", { class: "tiles" });
  const draw = (found) => replace(reading,
    el("div", { class: "tile" }, el("b", {}, formatTime(found.wall_ms)), el("span", {}, "time of the broker")),
    el("div", { class: "tile" }, el("b", {}, found.rate === 0 ? "frozen" : found.rate === 1 ? "running" : `${found.rate} times`), el("span", {}, "speed")),
    el("div", { class: "tile" }, el("b", {}, formatDuration(found.elapsed_ms)), el("span", {}, "steady clock, which timers follow")));
  async function change(body) {
    try {
      const found = await post("/clock", body);
      draw(found);
      replace(result, el("div", { class: "note" }, `${plural(found.fired, "job")} ran, in ${formatDuration(found.took_ms)}. Deleted: ${plural(found.segments_deleted, "segment")}, ${plural(found.groups_expired, "group")}.`));
    } catch (error) {
      replace(result, failure(error));
    }
  }
  async function set() {
    try {
      const { ms } = await get("/time", { text: box.value });
      await change({ set_ms: ms });
    } catch (error) {
      replace(result, failure(error));
    }
  }
  draw(clock);
  replace(root, el("div", { class: "head" }, el("h1", {}, "Clock"), el("span", { class: "tag warn" }, "for tests"), el("span", { class: "grow" }), button("Read again", refresh), copyButton("Copy as command", command("clock", "show"))),
    reading,
    settings.readOnly === "1" ? el("div", { class: "note" }, "This console is read only.") : card("Move it", null,
      el("div", { class: "bar" }, "Let pass:", STEPS.map(([text, ms]) => button(text, () => change({ advance_ms: ms })))),
      el("div", { class: "bar" }, labelled("Set to", box), button("Set", set), button("Freeze", () => change({ rate: 0 })), button("Run", () => change({ rate: 1 }))),
      el("p", { class: "dim" }, "What is stored follows this clock: stamps, retention, compaction, expiry. What waits on connections follows real time."), result));
}
