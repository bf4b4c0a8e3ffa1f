// The cluster at a glance.
import { get } from "./api.js";
import { card, el, empty, failure, groupLink, replace, skeleton, table } from "./dom.js";
import { formatCount, formatDuration, formatSize, formatTime, plural } from "./time.js";
import { trendMark } from "./lag.js";
import { poll } from "./poll.js";

const FIRST = 1_500;
const EVERY = 10_000;

const tile = (value, text, kind = "") => el("div", { class: "tile" }, el("b", { class: kind }, value), el("span", {}, text));

export async function show(root, { signal, refresh }) {
  const found = await get("/cluster", {}, signal);
  const groups = el("div", {}, skeleton(120));
  const activity = el("div", { class: "tiles", "aria-label": "Activity", role: "group" });
  const isTidelog = found.kind === "Tidelog";
  const note = el("div", { "aria-live": "polite" });
  replace(root, note,
    el("div", { class: "head" }, el("h1", {}, "Overview"), el("span", { class: `tag ${isTidelog ? "good" : ""}` }, isTidelog ? "Tidelog" : "Apache Kafka"),
      found.has_settable_clock && el("a", { class: "tag warn", href: "/clock" }, `settable clock: ${formatTime(found.now_ms, 0)}`)),
    found.why_not && el("div", { class: "note" }, isTidelog
      ? `Segments, forecasts, exact counts and explained lookups are not available: ${found.why_not}`
      : "These brokers are no Tidelog. Timelines are counted by lookups; the map of segments, forecasts of retention, explained lookups and audits of time are not available."),
    el("div", { class: "tiles" },
      tile(formatCount(found.topics), found.internal_topics ? `topics, and ${found.internal_topics} internal` : "topics"),
      tile(formatCount(found.partitions), "partitions"),
      tile(formatCount(found.offline), "partitions offline", found.offline ? "bad" : ""),
      tile(formatSize(found.bytes), found.bytes === null ? "size may not be asked" : "on disk"),
      tile(formatCount(found.brokers.length), found.brokers.length === 1 ? "broker" : "brokers")),
    found.has_activity && activity,
    card("Groups that are furthest behind", el("a", { href: "/groups" }, "All groups"), groups),
    card("Brokers", null, table([
      { title: "Id", right: true, cell: (one) => one.id },
      { title: "Address", class: "mono name", cell: (one) => one.address },
      { title: "Rack", cell: (one) => one.rack ?? "-" },
      { title: "", cell: (one) => one.id === found.controller_id && el("span", { class: "tag" }, "controller") },
    ], found.brokers), el("p", { class: "dim" }, `Cluster ${found.cluster_id ?? "without an id"}`)));
  if (found.has_activity) follow(activity, note, signal);
  try {
    const { groups: rows } = await get("/groups", {}, signal);
    const behind = rows.filter((row) => row.records).sort((a, b) => (b.lag_ms ?? 0) - (a.lag_ms ?? 0)).slice(0, 8);
    replace(groups, behind.length ? table([
      { title: "Group", class: "name", cell: (row) => groupLink(row.group) },
      { title: "State", cell: (row) => row.state || "-" },
      { title: "Behind by", right: true, cell: (row) => plural(row.records, "record") },
      { title: "In time", right: true, cell: (row) => formatDuration(row.lag_ms) },
      { title: "Trend", cell: (row) => trendMark(row.slope) },
    ], behind) : empty(rows.length ? `None of ${plural(rows.length, "group")} is behind.` : "There are no groups."));
  } catch (error) {
    if (!signal.aborted) replace(groups, failure(error, refresh));
  }
}

/** What is produced, asked again and again; a rate needs two answers. */
function follow(tiles, note, signal) {
  const draw = (now) => replace(tiles,
    tile(now.records_per_s === null ? "…" : formatCount(Math.round(now.records_per_s)), "records a second"),
    tile(now.bytes_per_s === null ? "…" : formatSize(Math.round(now.bytes_per_s)), "produced a second"),
    tile(formatCount(now.held_by_future), now.held_by_future ? "partitions held by a timestamp ahead of the clock: see a topic's segments" : "partitions held by a timestamp ahead", now.held_by_future ? "bad" : ""));
  draw({ records_per_s: null, bytes_per_s: null, held_by_future: null });
  const load = async () => draw(await get("/activity", {}, signal));
  load().catch(() => {}); // The next question says why there is no answer.
  poll(load, { every: EVERY, first: FIRST, note, signal });
}
