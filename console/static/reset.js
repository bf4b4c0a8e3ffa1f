// Move a group to a time: first what would happen, then exactly that.
import { groupPath, post } from "./api.js";
import { button, card, copyButton, el, failure, labelled, notice, replace, table } from "./dom.js";
import { command } from "./state.js";
import { formatCount, formatTime, plural, typedTime } from "./time.js";

/** The record that a position would be at. */
export function found(row) {
  if (row.is_end) return el("span", { class: "dim" }, row.before ? `none at or after: the end, after ${formatTime(row.before.time_ms)}` : "none at or after: the end");
  return row.at ? [formatTime(row.at.time_ms), " ", el("span", { class: "dim mono" }, row.at.key ?? ""), row.before && el("div", { class: "dim" }, `after ${formatTime(row.before.time_ms)}`)] : "-";
}

export function resetForm(root, { name, reload }) {
  const to = el("input", { "aria-label": "Move to", "data-key": "t", placeholder: "-2h, 2026-11-01T10:00Z, earliest, latest", size: 40 });
  const topics = el("input", { "aria-label": "Topics", placeholder: "all that it has read" });
  const result = el("div", { "aria-live": "polite" });

  async function preview() {
    try {
      const names = topics.value.split(",").map((one) => one.trim()).filter(Boolean);
      const plan = await post(`${groupPath(name)}/reset-preview`, { to: to.value.trim(), topics: names });
      const again = plan.positions.reduce((sum, row) => sum + Math.max(0, row.moved), 0);
      const skipped = plan.positions.reduce((sum, row) => sum + Math.max(0, -row.moved), 0);
      const target = ["earliest", "latest"].includes(to.value.trim()) ? [`--to-${to.value.trim()}`] : ["--to-time", typedTime(to.value.trim(), plan.target)];
      replace(result,
        el("div", { class: skipped ? "note warn" : "note" }, `${plural(again, "record")} would be read again, ${plural(skipped, "record")} would be skipped. Nothing is changed yet.`),
        table([
          { title: "Topic", class: "name", cell: (row) => row.topic }, { title: "Partition", right: true, cell: (row) => row.partition },
          { title: "Now", right: true, cell: (row) => formatCount(row.now) }, { title: "Then", right: true, cell: (row) => formatCount(row.then) },
          { title: "Effect", right: true, cell: (row) => (row.moved < 0 ? el("span", { class: "bad" }, `${formatCount(-row.moved)} skipped`) : row.moved ? `${formatCount(row.moved)} again` : "-") },
          { title: "Next record then", class: "name found", cell: found },
        ], plan.positions),
        el("div", { class: "bar" }, button("Move the group", () => commit(plan), { class: "main" }),
          copyButton("Copy as command", command("group", "reset", name, ...target, ...names.flatMap((one) => ["--topic", one]), "--dry-run"))));
    } catch (error) {
      replace(result, failure(error));
    }
  }

  async function commit(plan) {
    try {
      const positions = plan.positions.map(({ topic, partition, now, then }) => ({ topic, partition, now, then }));
      const done = await post(`${groupPath(name)}/reset`, { positions });
      replace(result, el("div", { class: "note" }, `Moved ${plural(done.moved, "position")} of ${name}.`));
      notice(`Moved ${name}.`);
      await reload();
    } catch (error) {
      replace(result, failure(error), button("Preview again", preview));
    }
  }

  to.addEventListener("keydown", (event) => event.key === "Enter" && preview());
  replace(root, card("Move the group to a time", null,
    el("div", { class: "bar" }, labelled("To", to), labelled("Topics", topics), button("Preview", preview)), result));
}
