// The partitions of a wide topic: which of them hold what retention cannot delete.
import { get, part } from "./api.js";
import { button, card, copyButton, el, failure, incomplete, replace, skeleton, table } from "./dom.js";
import { command } from "./state.js";
import { formatCount, formatDuration, formatSize, formatTime, plural } from "./time.js";

/** Topics with more partitions begin with this list; the map shows one partition. */
export const WIDE = 8;

export function heldTable(root, { name, choose, signal }) {
  const body = el("div", {}, skeleton(160, "Reading the segments of all partitions"));

  async function load(after) {
    try {
      const found = await get(`/topics/${part(name)}/held`, { after }, signal);
      const link = (row) => button(String(row.partition), () => choose(row.partition), { title: `Show the map of partition ${row.partition}` });
      replace(body, incomplete(found),
        el("p", { class: "dim" }, `${plural(found.held, "partition")} of ${formatCount(found.partitions)} ${found.held === 1 ? "holds" : "hold"} ${formatSize(found.held_bytes)} that retention cannot delete. `,
          found.partitions > found.rows.length && `The first ${found.rows.length} by what they hold, then by the time that they span.`),
        table([
          { title: "Partition", right: true, cell: link },
          { title: "Held", right: true, cell: (row) => (row.held_segments ? `${plural(row.held_segments, "segment")}, ${formatSize(row.held_bytes)}` : "-") },
          { title: "By", cell: (row) => (row.future ? `${formatTime(row.future.timestamp_ms)}, in the batch that ends at offset ${formatCount(row.future.offset)}` : "-") },
          { title: "Segments", right: true, cell: (row) => formatCount(row.segments) },
          { title: "On disk", right: true, cell: (row) => formatSize(row.bytes) },
          { title: "Spans", right: true, cell: (row) => formatDuration(row.width_ms) },
          { title: "Oldest time", class: "nowrap", cell: (row) => formatTime(row.oldest_ms) },
          { title: "Newest time", class: "nowrap", cell: (row) => formatTime(row.newest_ms) },
        ], found.rows, { label: "Partitions by what they hold" }),
        el("div", { class: "bar" }, found.next && button("The partitions after these", () => load(found.next)), after && button("From the first partition", () => load(""))));
    } catch (error) {
      if (!signal.aborted) replace(body, failure(error, () => load(after)));
    }
  }

  replace(root, card("Partitions by what they hold", copyButton("Copy as command", command("retention", name)), body));
  load("");
}
