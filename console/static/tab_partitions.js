// The partitions of a topic: leaders, ends, times, sizes; deleting what is older than a time.
import { card, copyButton, el, empty, table } from "./dom.js";
import { deletionForm } from "./delete_records.js";
import { command, settings } from "./state.js";
import { formatAge, formatCount, formatSize, formatTime } from "./time.js";

export async function show(root, { topic, name, refresh }) {
  const deletion = el("div");
  const now = topic.now_ms;
  root.replaceChildren(card("Partitions", copyButton("Copy as command", command("topic", "describe", name)),
    topic.count > topic.partitions.length ? empty(`The first ${topic.partitions.length} of ${topic.count}.`) : "",
    table([
      { title: "Partition", right: true, cell: (one) => one.partition },
      { title: "Leader", right: true, cell: (one) => (one.leader < 0 ? el("span", { class: "tag bad" }, "offline") : one.leader) },
      { title: "In sync", cell: (one) => `${one.in_sync.length} of ${one.replicas.length}` },
      { title: "First offset", right: true, cell: (one) => formatCount(one.start) },
      { title: "End", right: true, cell: (one) => formatCount(one.end) },
      { title: "Offsets", right: true, cell: (one) => formatCount(one.end - one.start) },
      { title: "On disk", right: true, cell: (one) => formatSize(one.bytes) },
      { title: "First time", class: "nowrap", cell: (one) => formatTime(one.first_ms) },
      { title: "Newest time", class: "nowrap", cell: (one) => el("span", { class: one.newest_ms > now ? "bad" : null, title: formatAge(one.newest_ms, now) }, formatTime(one.newest_ms)) },
    ], topic.partitions)), deletion);
  if (settings.readOnly !== "1" && !topic.window) deletionForm(deletion, { name, reload: refresh });
}
