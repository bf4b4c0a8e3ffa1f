// One group: members, positions, lag over the last hour, and moving it.
import { get, groupPath, part } from "./api.js";
import { canvas, card, colour, copyButton, el, empty, numbers, redraw, replace, shownName, table } from "./dom.js";
import { trendMark } from "./lag.js";
import { poll } from "./poll.js";
import { resetForm } from "./reset.js";
import { command, settings } from "./state.js";
import { formatCount, formatDuration, formatTick, formatTime, plural, ticks } from "./time.js";

const EVERY = 10_000;
const HEIGHT = 150;

function chart(samples) {
  const first = samples[0][0];
  const last = Math.max(first + 60_000, samples[samples.length - 1][0]);
  const highest = { 1: Math.max(1, ...samples.map((one) => one[1])), 2: Math.max(1000, ...samples.map((one) => one[2])) };
  return canvas(HEIGHT, (context, width, height) => {
    const x = (ms) => 10 + ((ms - first) / (last - first)) * (width - 20);
    const y = (value, kind) => height - 24 - (value / highest[kind]) * (height - 44);
    for (const [kind, name] of [[1, "bar-dim"], [2, "accent"]]) {
      context.strokeStyle = colour(name);
      context.lineWidth = kind === 2 ? 2 : 1.5;
      context.beginPath();
      samples.forEach((one, index) => (index ? context.lineTo(x(one[0]), y(one[kind], kind)) : context.moveTo(x(one[0]), y(one[kind], kind))));
      context.stroke();
    }
    context.fillStyle = colour("dim");
    context.textAlign = "left";
    context.fillText(`most: ${formatDuration(highest[2])}, ${plural(highest[1], "record")}`, 10, 12);
    for (const at of ticks(first, last, 8)) context.fillText(formatTick(at, last - first), Math.min(width - 60, x(at)), height - 6);
  }, { role: "img", "aria-label": `Lag over ${formatDuration(last - first)}: now ${formatDuration(samples[samples.length - 1][2])}, ${plural(samples[samples.length - 1][1], "record")}` });
}

const sampleNumbers = (samples) => numbers([
  { title: "At", class: "nowrap", cell: (one) => formatTime(one[0], 0) },
  { title: "Records behind", right: true, cell: (one) => formatCount(one[1]) },
  { title: "Behind in time", right: true, cell: (one) => formatDuration(one[2]) },
], () => [...samples].reverse());

export async function show(root, { words: [name], signal }) {
  const body = el("div");
  const moving = el("div");

  function draw(group) {
    const { records, lag_ms: lag } = group;
    redraw(body,
      el("div", { class: "head" }, el("h1", {}, shownName(name)), el("span", { class: "tag" }, group.state), el("span", { class: "dim" }, group.assignor), el("span", { class: "grow" }),
        copyButton("Copy as command", command(group.is_share ? "share" : "group", "describe", name))),
      el("div", { class: "tiles" },
        el("div", { class: "tile" }, el("b", {}, formatCount(records)), el("span", {}, "records behind")),
        el("div", { class: "tile" }, el("b", {}, formatDuration(lag)), el("span", {}, "behind in time")),
        el("div", { class: "tile" }, el("b", {}, trendMark(group.trend.slope)), el("span", {}, group.trend.sentence)),
        el("div", { class: "tile" }, el("b", {}, group.trend.slope === null ? "…" : group.trend.catch_up_s === null ? (records ? "not at this rate" : "-") : formatDuration(group.trend.catch_up_s * 1000)), el("span", {}, "until it has caught up"))),
      card("Lag", el("span", { class: "legend" }, el("span", {}, el("i"), "in time"), el("span", {}, el("i", { class: "k-dim" }), "in records")), group.samples.length > 1 ? [chart(group.samples), sampleNumbers(group.samples)] : empty("The chart begins with the second sample, in ten seconds.")),
      card("Positions", null, group.positions.length ? table([
        { title: "Topic", class: "name", cell: (row) => el("a", { href: `/topics/${part(row.topic)}` }, row.topic) },
        { title: "Partition", right: true, cell: (row) => row.partition },
        { title: group.is_share ? "First record not done" : "Position", right: true, cell: (row) => [formatCount(row.position), row.lost > 0 && el("div", { class: "bad" }, `${plural(row.lost, "offset")} deleted unread`)] },
        { title: "End", right: true, cell: (row) => formatCount(row.end) },
        { title: "Records behind", right: true, cell: (row) => formatCount(row.lag) },
        { title: "Behind in time", right: true, cell: (row) => formatDuration(row.lag_ms) },
        { title: "Next record", class: "nowrap", cell: (row) => formatTime(row.first_ms) },
        { title: "Read by", class: "name", cell: (row) => row.client_id ?? "-" },
      ], group.positions) : empty("The group has no positions.")),
      card(`Members (${group.members.length})`, null, group.members.length ? table([
        { title: "Client", class: "name", cell: (one) => one.client_id }, { title: "Host", class: "mono name", cell: (one) => one.host },
        { title: "Member", class: "mono name", cell: (one) => one.instance_id ?? one.member_id }, { title: "Partitions", cell: (one) => one.partitions.join(", ") },
      ], group.members) : empty("The group has no members now.")));
  }

  const load = async () => {
    const group = await get(groupPath(name), {}, signal);
    draw(group);
    return group;
  };
  const note = el("div", { "aria-live": "polite" });
  const isShare = (await load()).is_share;
  if (isShare) replace(moving, empty("A share group without members is moved by", copyButton("Copy a command", command("share", "reset", name, "--to-time", "-1h"))));
  else if (settings.readOnly !== "1") resetForm(moving, { name, reload: load });
  replace(root, note, body, moving);
  poll(load, { every: EVERY, note, signal });
}
