// The records of a window: filter, order, pages, and the one that is open beside them.
import { address, cursorOf, get, part } from "./api.js";
import { button, choice, copyButton, el, empty, failure, labelled, replace, skeleton, table } from "./dom.js";
import { copyDialog } from "./copy_records.js";
import { inspector } from "./inspector.js";
import { keptFilters } from "./kept_filters.js";
import { param, setParams, settings } from "./state.js";
import { formatAge, formatCount, formatSize, formatTime, plural } from "./time.js";

const ORDERS = [["time", "time"], ["newest", "newest first"], ["offset", "partition and offset"]];

/**
 * @param {Element} root
 * @param {{name: string, window: {from: any, to: any}, title: string, clear: any, now: number, signal: AbortSignal}} options `now` is the brokers' present
 */
export function recordsView(root, { name, window: span, title, clear, now, signal }) {
  const rows = [];
  let cursor = null;
  let last = null;
  const read = { bytes: 0, records: 0 };
  let run = 0;
  const body = el("div", {}, skeleton(200, "Reading records"));
  const side = el("div");
  const status = el("div", { "aria-live": "polite" });
  const filter = el("input", { class: "grow-1", type: "search", "aria-label": "Filter", "data-key": "/", value: param("f") ?? "", placeholder: 'Filter: value.user = "ann" and size > 100', onchange: () => search(filter.value) });
  const kept = keptFilters({ topic: name, current: () => param("f") ?? "", use: search });
  const order = param("order") ?? "time";
  const question = () => ({ ...span, p: param("p"), f: param("f"), order: param("order") });

  function search(text) {
    filter.value = text;
    setParams({ f: text });
    kept.draw();
    restart();
  }

  function draw() {
    if (!rows.length) {
      replace(body, last && (cursor ? null : empty("There are no such records in this window.")));
      return;
    }
    replace(body, table([
      { title: "Time", class: "nowrap", cell: (row) => el("span", { title: formatAge(row.time_ms, now) }, formatTime(row.time_ms)) },
      { title: "Partition", right: true, cell: (row) => row.partition },
      { title: "Offset", right: true, cell: (row) => formatCount(row.offset) },
      { title: "Key", class: "cut key", cell: (row) => row.key ?? el("span", { class: "dim" }, "null") },
      { title: "Value", class: "cut", cell: (row) => row.value ?? el("span", { class: "dim" }, "null") },
      { title: "Headers", right: true, cell: (row) => row.headers || el("span", { class: "dim" }, "-") },
      { title: "Size", right: true, class: "nowrap", cell: (row) => formatSize(row.size) },
    ], rows, { open, label: "Records" }));
  }

  function open(row, index) {
    body.querySelectorAll("tr.row").forEach((line, at) => line.setAttribute("aria-selected", String(at === index)));
    setParams({ open: `${row.partition}:${row.offset}` });
    layout.className = "split";
    inspector(side, { name, partition: row.partition, offset: row.offset, close, signal });
  }

  function close() {
    setParams({ open: "" });
    layout.className = "";
    replace(side);
  }

  async function more() {
    const mine = ++run;
    replace(status, el("span", { class: "dim" }, "Searching… "), button("Stop", () => { run++; showStatus(); }));
    try {
      do {
        last = await get(`/topics/${part(name)}/records`, { ...question(), cursor: cursorOf(cursor) }, signal);
        if (mine !== run) return;
        rows.push(...last.rows);
        cursor = last.cursor;
        draw();
        read.bytes += last.read_bytes;
        read.records += last.read_records;
        if (!rows.length && cursor) replace(status, progress(), el("span", { class: "dim" }, ` ${searched()} `), button("Stop", () => { run++; showStatus(); }));
      } while (!rows.length && cursor && param("f") && run === mine);
      showStatus();
    } catch (error) {
      if (mine !== run || signal.aborted) return;
      replace(status);
      replace(rows.length ? status : body, failure(error, more));
    }
  }

  /** How much of the search is done; what is left has the mean size of what was read. */
  function progress() {
    return el("progress", { max: Math.max(1, read.records + last.offsets_left), value: read.records, "aria-label": "Search" });
  }

  function searched() {
    const all = read.records ? (read.bytes / read.records) * (read.records + last.offsets_left) : 0;
    return `Read ${formatSize(read.bytes)}${all > read.bytes ? ` of about ${formatSize(Math.round(all))}` : ""}, ${plural(read.records, "record")}; ${last.offsets_left ? `${plural(last.offsets_left, "offset")} are left to search` : "there are more"}.`;
  }

  function showStatus() {
    if (!last) return;
    replace(status,
      last.partitions_left_out > 0 && el("div", { class: "note warn" }, `${plural(last.partitions_left_out, "partition")} left out of this page: choose partitions above.`),
      last.late_unsearched > 0 && el("div", { class: "note" }, `${plural(last.late_unsearched, "offset")} after the window's end were not searched for records that arrived late; the order by time searches them.`),
      el("div", { class: "bar" }, el("span", { class: "dim" }, `${plural(rows.length, "record")}. ${cursor ? searched() : "That is all."}`), cursor && button("More", more)));
  }

  function restart() {
    rows.length = 0;
    read.bytes = read.records = 0;
    cursor = null;
    replace(body, skeleton(200, "Reading records"));
    more();
  }

  const layout = el("div", {}, el("section", { class: "card", "aria-label": "Records" },
    el("div", { class: "bar" }, el("h2", {}, title), clear && button("Clear selection", clear), el("span", { class: "grow" }),
      settings.export === "1" && ["jsonl", "csv"].map((format) => el("a", { href: address(`/topics/${part(name)}/export`, { ...question(), format }), download: "" }, format === "csv" ? "CSV" : "JSON Lines")),
      settings.readOnly !== "1" && button("Copy to a topic…", () => copyDialog({ name, question })),
      copyButton("Copy rows", () => rows.map((row) => JSON.stringify(row)).join("\n"))),
    el("div", { class: "bar" }, filter, kept, labelled("order", choice(ORDERS, order, (value) => { setParams({ order: value === "time" ? "" : value }); restart(); }, "Order"))),
    body, status), side);
  replace(root, layout);
  document.addEventListener("escape", () => root.isConnected && side.firstChild && close(), { signal });
  const [partition, offset] = (param("open") ?? "").split(":");
  if (offset) {
    layout.className = "split";
    inspector(side, { name, partition: Number(partition), offset: Number(offset), close, signal });
  }
  more();
}
