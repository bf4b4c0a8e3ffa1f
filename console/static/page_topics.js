// The list of topics; what costs lookups is asked for the rows that are visible.
import { get } from "./api.js";
import { button, canvas, choice, colour, copyButton, el, empty, groupLink, labelled, replace, table } from "./dom.js";
import { command, noneToSee, param, setParams } from "./state.js";
import { formatAge, formatCount, formatDuration, formatRetention, formatSize, formatTime, plural } from "./time.js";

const PAGE = 50;

export async function show(root, { signal, refresh }) {
  const name = param("name") ?? "";
  const order = param("order") ?? "name";
  const isInternal = param("internal") === "1";
  const found = await get("/topics", { name, order, internal: isInternal ? 1 : "" }, signal);
  const start = Number(param("start"));
  const from = start > 0 && start < found.topics.length ? Math.floor(start) : 0;
  const rows = found.topics.slice(from, from + PAGE);
  const change = (changes) => {
    setParams({ start: "", ...changes }, true);
    refresh();
  };
  const search = el("input", { type: "search", value: name, placeholder: "Part of a name", "aria-label": "Search topics", "data-key": "/", onchange: () => change({ name: search.value }) });
  const list = el("div");
  const more = { details: null, now: Date.now(), days: null, latest: null };
  const draw = () => {
    const { details, now } = more;
    const of = (row, field) => details?.get(row.name)?.[field];
    const wait = (value) => (details ? value : "…");
    replace(list, table([
      { title: "Topic", class: "name", cell: (row) => [el("a", { href: `/topics/${encodeURIComponent(row.name)}` }, row.name), row.is_internal && el("span", { class: "tag" }, "internal")] },
      { title: "Partitions", right: true, cell: (row) => formatCount(row.partitions) },
      { title: "Offsets", right: true, cell: (row) => wait(of(row, "error") ? "-" : `${of(row, "is_estimate") ? "≥ " : ""}${formatCount(of(row, "records"))}`) },
      { title: "On disk", right: true, cell: (row) => formatSize(row.bytes) },
      { title: "Retention", cell: (row) => wait(`${formatRetention(of(row, "retention.ms"))}${Number(of(row, "retention.bytes")) > 0 ? `, ${formatSize(Number(of(row, "retention.bytes")))}` : ""}`) },
      { title: "Policy", cell: (row) => wait(of(row, "cleanup.policy") ?? "-") },
      { title: "First record", class: "nowrap", cell: (row) => wait(formatTime(of(row, "first_ms"), 0)) },
      { title: "Newest record", class: "nowrap", cell: (row) => {
        const newest = of(row, "newest_ms");
        return wait(el("span", { title: formatTime(newest), class: newest > now ? "bad" : null }, formatAge(newest, now)));
      } },
      { title: "Last 24 h", cell: (row) => (more.days ? spark(more.days.get(row.name) ?? []) : "…") },
      { title: "Latest group", class: "name", cell: (row) => {
        const group = more.latest?.get(row.name);
        return group ? [groupLink(group.group), el("span", { class: "dim" }, ` ${behind(group)}`)] : more.latest ? "-" : "…";
      } },
    ], rows, { label: "Topics" }));
  };
  replace(root,
    el("div", { class: "head" }, el("h1", {}, "Topics"), el("span", { class: "dim" }, `${formatCount(found.found)} of ${formatCount(found.all)}`), el("span", { class: "grow" }),
      search,
      labelled("by", choice([["name", "name"], ["bytes", "size"], ["partitions", "partitions"]], order, (value) => change({ order: value }), "Order")),
      labelled("", el("input", { type: "checkbox", checked: isInternal, "aria-label": "internal topics", onchange: (event) => change({ internal: event.target.checked ? "1" : "" }) })), "internal",
      copyButton("Copy as command", command("topic", "list"))),
    el("section", { class: "card", "aria-label": "Topics" }, rows.length ? list : empty(name ? `No topic has '${name}' in its name.` : `${noneToSee("topics")}; make one:`,
      copyButton("Copy a command", command("topic", "create", "hello")))),
    el("div", { class: "bar" },
      from > 0 && button("Previous", () => change({ start: Math.max(0, from - PAGE) })),
      from + PAGE < found.topics.length && button("Next", () => change({ start: from + PAGE })),
      found.found > found.topics.length && el("span", { class: "dim" }, `The first ${plural(found.topics.length, "topic")} of ${formatCount(found.found)}: search for others.`)));
  if (!rows.length) return;
  draw();
  const names = { name: rows.map((row) => row.name) };
  // By name in a Map: an object has more names than its own, such as "constructor".
  const part = async (path, params, take) => {
    try {
      take(byName(await get(path, params, signal)));
    } catch {
      take(new Map()); // These columns stay empty; the list itself has its own error.
    }
    if (!signal.aborted) draw();
  };
  const details = Promise.all([get("/topic-details", names, signal), get("/time", { text: "now" }, signal)]);
  part("/topic-days", names, (days) => { more.days = days; });
  part("/groups", {}, (latest) => { more.latest = latest; });
  const [answer, time] = await details;
  more.details = byName(answer);
  more.now = time.now_ms;
  if (!signal.aborted) draw();
}

const byName = ({ topics }) => new Map(Object.entries(topics));

/** How far the group is behind: in time, else in records. */
function behind({ records, lag_ms: lag }) {
  if (!records) return "at the end";
  return lag ? formatDuration(lag) : plural(records, "record");
}

/** A day as bars without a scale. */
function spark(bars) {
  const total = bars.reduce((sum, count) => sum + count, 0);
  if (!total) return el("span", { class: "dim" }, "-");
  const highest = Math.max(...bars);
  const node = canvas(20, (context, width, height) => {
    const step = width / bars.length;
    context.fillStyle = colour("bar");
    bars.forEach((count, hour) => {
      const tall = count ? Math.max(1, (count / highest) * height) : 0;
      context.fillRect(hour * step, height - tall, Math.max(1, step - 1), tall);
    });
  }, { class: "spark", role: "img", "aria-label": "Records by hour of the last 24 hours: the highest hour is " + hourOf(bars, highest) });
  return node;
}

function hourOf(bars, highest) {
  const ago = bars.length - bars.indexOf(highest);
  return ago === 1 ? "the last one" : `${ago} hours ago`;
}
