// All groups with their lag in records and in time.
import { get } from "./api.js";
import { copyButton, el, empty, groupLink, redraw, replace, table } from "./dom.js";
import { trendMark } from "./lag.js";
import { poll } from "./poll.js";
import { command, noneToSee, param, setParams } from "./state.js";
import { formatCount, formatDuration } from "./time.js";

const EVERY = 10_000;

export async function show(root, { signal }) {
  let found = null;
  const search = el("input", { type: "search", value: param("name") ?? "", placeholder: "Part of a name", "aria-label": "Search groups", "data-key": "/", oninput: () => { setParams({ name: search.value }); draw(); } });
  const list = el("section", { class: "card", "aria-label": "Groups" });
  const status = el("span", { class: "dim" });

  function draw() {
    const rows = found.groups.filter((row) => row.group.toLowerCase().includes(search.value.toLowerCase()));
    redraw(list, rows.length ? table([
      { title: "Group", class: "name", cell: (row) => groupLink(row.group) },
      { title: "State", cell: (row) => row.state || "-" },
      { title: "Protocol", cell: (row) => row.type },
      { title: "Behind by records", right: true, cell: (row) => (row.error ? el("span", { class: "dim", title: row.error }, "not known") : formatCount(row.records)) },
      { title: "Behind by time", right: true, cell: (row) => (row.error ? "-" : formatDuration(row.lag_ms)) },
      { title: "Trend", cell: (row) => trendMark(row.slope) },
    ], rows, { label: "Groups" }) : empty(found.groups.length ? "No group has that in its name." : `${noneToSee("groups")}. A consumer with a group.id makes one.`));
    replace(status, found.groups.length > found.with_lag ? `The lag of the first ${found.with_lag} is measured. ` : "", "Every ten seconds.");
  }

  async function load() {
    found = await get("/groups", {}, signal);
    draw();
  }

  const note = el("div", { "aria-live": "polite" });
  await load();
  replace(root, note, el("div", { class: "head" }, el("h1", {}, "Groups"), status, el("span", { class: "grow" }), search, copyButton("Copy as command", command("group", "list"))), list);
  poll(load, { every: EVERY, note, signal });
}
