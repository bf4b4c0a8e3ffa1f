// A lookup by time, step by step, on the map of segments.
import { get, part } from "./api.js";
import { button, card, copyButton, el, failure, labelled, replace } from "./dom.js";
import { isTyping } from "./keys.js";
import { command } from "./state.js";
import { formatCount, formatSize, formatTime, isoTime, plural } from "./time.js";

const at = (record) => (record ? `offset ${formatCount(record.offset)} of ${formatTime(record.timestamp)}` : "none");

/** The five steps in words; each may have a list of details. */
function stepsOf(found) {
  const searched = found.searched[found.searched.length - 1];
  const probes = found.segment_steps ?? [];
  const steps = [[
    `Segments: of ${plural(found.segments, "segment")}, those whose newest time so far is before the lookup cannot hold the answer.`,
    probes.map((one) => `segment ${formatCount(one.base_offset)}: newest so far ${formatTime(one.newest_so_far)}`)]];
  if (!searched) {
    steps.push(["No segment has a record at or after this time, so nothing was read.", []]);
    return steps;
  }
  const entry = searched.time_entry;
  steps.push([entry && entry.timestamp >= 0
    ? `Time index of segment ${formatCount(searched.base_offset)}: up to offset ${formatCount(entry.offset)} nothing is newer than ${formatTime(entry.timestamp)}, which is before the lookup. So the first record at or after it is not among them.`
    : `Time index of segment ${formatCount(searched.base_offset)}: no entry is before the lookup, so the search starts at the segment's first record.`,
  (searched.time_steps ?? []).map((one) => `entry ${formatCount(one.slot)}: ${formatTime(one.timestamp)}, offset ${formatCount(one.offset)}`)]);
  steps.push([`Offset index: offset ${formatCount(searched.offset_entry.offset)} is at byte ${formatCount(searched.offset_entry.position)} of the file.`,
    (searched.offset_steps ?? []).map((one) => `entry ${formatCount(one.slot)}: offset ${formatCount(one.offset)}`)]);
  steps.push([`Reading from there: ${plural(searched.batches_scanned, "batch", "batches")}, ${plural(searched.records_scanned, "record")}, ${formatSize(found.bytes_read)}.`, []]);
  steps.push([found.found ? `The answer: ${at(found.found)}. Before it: ${at(found.before)}. After it: ${at(found.after)}.` : "There is no record at or after this time.", []]);
  return steps;
}

export function explainForm(root, { name, partition, signal, show }) {
  const box = el("input", { "aria-label": "Time to look up", "data-key": "t", placeholder: "-2h, 2026-11-01T10:00Z", size: 34 });
  const result = el("div", { "aria-live": "polite" });

  async function run() {
    try {
      const found = await get(`/topics/${part(name)}/explain`, { partition, at: box.value }, signal);
      const steps = stepsOf(found);
      let step = matchMedia("(prefers-reduced-motion: reduce)").matches ? steps.length : 1;
      const draw = () => {
        replace(result, el("ol", { class: "steps" }, steps.slice(0, step).map(([text, details], index) =>
          el("li", { "aria-current": index === step - 1 ? "step" : null }, text,
            details.length > 0 && el("ul", { class: "dim mono" }, details.map((line) => el("li", {}, line)))))),
        el("div", { class: "bar" },
          button("Back", () => go(step - 1), { disabled: step === 1 }), button("Next step", () => go(step + 1), { disabled: step === steps.length, class: "main" }),
          el("span", { class: "dim" }, `${step} of ${steps.length}; keys 1 to ${steps.length}`),
          copyButton("Copy as command", command("offsets", name, "--partition", String(partition), "--at", isoTime(found.timestamp), "--explain"))));
        const kept = new Set(found.searched.map((one) => one.base_offset));
        const isLast = step === steps.length;
        show({ at: found.timestamp, faded: { has: (base) => kept.size > 0 && !kept.has(base) }, offset: isLast && found.found ? found.found.offset : null, found: found.found?.timestamp });
      };
      const go = (to) => { step = Math.max(1, Math.min(steps.length, to)); draw(); };
      root.go = go;
      draw();
    } catch (error) {
      if (!signal.aborted) replace(result, failure(error));
    }
  }

  document.addEventListener("keydown", (event) => {
    if (root.go && /^[1-5]$/.test(event.key) && !isTyping(event)) root.go(Number(event.key));
  }, { signal });
  box.addEventListener("keydown", (event) => event.key === "Enter" && run());
  replace(root, card("A lookup by time, explained", null, el("div", { class: "bar" }, labelled("Find the first record at or after", box), button("Explain", run)), result));
}
