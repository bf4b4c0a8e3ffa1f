// Delete the records that are older than a time: first what would go, then exactly that.
import { part, post } from "./api.js";
import { button, card, copyButton, el, failure, groupLink, labelled, notice, replace, table } from "./dom.js";
import { found } from "./reset.js";
import { command, param } from "./state.js";
import { formatCount, formatTime, plural, typedTime } from "./time.js";

const SHOWN = 200;

/** Says that groups may lose records of which the page does not know; null is that none could be asked. */
export const unasked = (count) => count !== 0 && el("div", { class: "note warn" },
  count === null ? "The groups could not be asked, so it is not known which of them lose records that they have not read." : `The positions of ${plural(count, "more group")} are not known: they may lose records that they have not read.`);

export function deletionForm(root, { name, reload }) {
  const before = el("input", { "aria-label": "Older than", "data-key": "t", placeholder: "-30d, 2026-11-01T10:00Z", size: 34 });
  const result = el("div", { "aria-live": "polite" });

  async function preview() {
    try {
      const text = before.value.trim();
      const chosen = param("p") ?? "";
      const plan = await post(`/topics/${part(name)}/deletion-preview`, { before: text }, { p: chosen });
      const rows = plan.positions.filter((row) => row.then > row.now);
      const going = rows.reduce((sum, row) => sum + row.then - row.now, 0);
      const emptied = rows.filter((row) => row.then >= row.end).length;
      replace(result,
        el("div", { class: going ? "note warn" : "note" },
          `${plural(going, "offset")} of ${plural(rows.length, "partition")} would go, all older than ${formatTime(plan.time_ms)}; no newer record goes. Records that are older but arrived after a newer one stay. `,
          emptied > 0 && el("b", {}, `${plural(emptied, "partition")} would be empty. `), "Nothing is changed yet."),
        plan.losers.length > 0 && [el("div", { class: "note warn" }, "These groups would lose records that they have not read:"), table([
          { title: "Group", class: "name", cell: (one) => groupLink(one.group) },
          { title: "Partition", right: true, cell: (one) => one.partition }, { title: "Unread records lost", right: true, cell: (one) => formatCount(one.lost) }], plan.losers)],
        unasked(plan.groups_unknown),
        rows.length > 0 && table([
          { title: "Partition", right: true, cell: (row) => row.partition },
          { title: "Starts at", right: true, cell: (row) => formatCount(row.now) }, { title: "Then", right: true, cell: (row) => formatCount(row.then) },
          { title: "Go", right: true, cell: (row) => formatCount(row.then - row.now) }, { title: "Stay", right: true, cell: (row) => formatCount(row.end - row.then) },
          { title: "First record then", class: "found", cell: found },
        ], rows.slice(0, SHOWN), { label: "What would go" }),
        rows.length > SHOWN && el("p", { class: "dim" }, `The first ${SHOWN} of ${plural(rows.length, "partition")}.`),
        el("div", { class: "bar" }, rows.length > 0 && button("Delete these records…", () => commit(rows, going), { class: "danger" }),
          /^\d*$/.test(chosen) && copyButton("Copy as command", command("topic", "delete-records", name, "--before", typedTime(text, plan.time_ms), ...(chosen ? ["-p", chosen] : [])))));
    } catch (error) {
      replace(result, failure(error));
    }
  }

  async function commit(rows, going) {
    if (!confirm(`Delete ${plural(going, "offset")} of ${name} for ever?`)) return;
    try {
      const positions = rows.map(({ topic, partition, now, then }) => ({ topic, partition, now, then }));
      const done = await post(`/topics/${part(name)}/deletion`, { positions });
      notice(`Deleted ${plural(done.deleted, "offset")} of ${name}.`);
      await reload();
    } catch (error) {
      replace(result, failure(error), button("Preview again", preview));
    }
  }

  before.addEventListener("keydown", (event) => event.key === "Enter" && preview());
  replace(root, card("Delete records older than a time", null,
    el("div", { class: "bar" }, labelled("Older than", before), button("Preview", preview)), result));
}
