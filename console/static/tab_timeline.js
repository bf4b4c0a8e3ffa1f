// The timeline of a topic, the box for times, and the records of what is selected.
import { get, part } from "./api.js";
import { button, card, choice, colour, copyButton, el, labelled, empty, failure, notice, replace, skeleton } from "./dom.js";
import { recordsView } from "./records.js";
import { chosen, command, param, setParams } from "./state.js";
import { amount, barNumbers, crowd, inBytes, layerColour, timeline } from "./timeline.js";
import { exactTime, formatAge, formatCount, formatDuration, formatSize, formatTime, isoTime, plural } from "./time.js";

const HEIGHT = 262; // of the bars with their legend, so that nothing below jumps

export async function show(root, { name, topic, signal }) {
  const chart = el("div", { class: "bars" }, skeleton(HEIGHT));
  const list = el("div");
  const box = el("input", { "aria-label": "Time or range", "data-key": "t", size: 30, placeholder: "-15m, 2026-11-01T10:00Z, A..B" });
  const partitions = el("input", { "aria-label": "Partitions", size: 6, placeholder: "all", value: param("p") ?? "" });
  let data = null;

  const selected = () => {
    const [, from, to] = /^(\d{1,15})\.\.(\d{1,15})$/.exec(param("sel") ?? "") ?? [];
    return from ? [Number(from), Number(to)] : null;
  };

  function drawChart() {
    if (!data) return;
    if (!data.records && !data.bars.some(Boolean)) {
      replace(chart, topic.window ? empty("No record of the topic is in this window.") : empty("This topic has no records yet.", copyButton("Copy a command that writes one", `echo hello | ${command("produce", name)}`)));
      return;
    }
    if (data.first_ms === null && !data.bars.some(Boolean)) {
      replace(chart, empty(`The ${plural(data.records, "record")} of this topic carry no time, so there are no bars over time. The list is by offset; `,
        el("a", { href: `/topics/${part(name)}?tab=partitions` }, "the partitions"), " have the offsets of each."));
      return;
    }
    const shown = param("unit") === "bytes" ? inBytes(data) : data;
    const isSplit = param("split") === "1" && data.split.length > 0;
    replace(chart, timeline(shown, { selected: selected(), isSplit, select, zoom }), isSplit && layers(shown, choose), legend(shown), notes(data), farTimes(), barNumbers(shown));
    if (param("split") === "1" && !isSplit && topic.count > 1) chart.append(empty("The bars are split for 2 to 16 partitions: choose some, such as 0-7."));
  }

  function choose(partition) {
    partitions.value = String(partition);
    partitions.dispatchEvent(new Event("change"));
  }

  function select(from, to) {
    setParams({ sel: `${from}..${to}` });
    drawChart();
    drawRecords();
  }

  function zoom(from, to) {
    setParams({ from: exactTime(from), to: exactTime(to) }, true);
    load();
  }

  /** Times far from all others make the bars of the whole topic useless; its records are elsewhere. */
  function farTimes() {
    const most = isWhole() ? crowd(data) : null;
    return most && el("div", { class: "note" }, `Nearly all records are between ${formatTime(most[0])} and ${formatTime(most[1])}. `, button("Show that time", () => zoom(...most)));
  }

  const isWhole = () => !param("from") && !param("to");

  /** What the bars show, to the millisecond: the list and the command have the same; null for the whole topic. */
  const shownSpan = () => selected() ?? (isWhole() || !data ? null : [data.edges[0], data.edges[data.edges.length - 1]]);

  function drawRecords() {
    const span = selected();
    const shown = shownSpan();
    const window = shown ? { from: exactTime(shown[0]), to: exactTime(shown[1]) } : { from: "", to: "" };
    recordsView(list, { name, window, title: span ? `Records from ${formatTime(span[0])} to ${formatTime(span[1])}` : "Records of the shown time", clear: span && clear, now: topic.now_ms, signal });
  }

  function clear() {
    setParams({ sel: "" });
    drawChart();
    drawRecords();
  }

  /** The bars, and what lies beneath them: at once where its span does not depend on the bars. */
  async function load() {
    const waits = !isWhole() && !selected();
    if (!waits) drawRecords();
    if (await count() && waits) drawRecords();
  }

  async function count() {
    data = null;
    replace(chart, skeleton(HEIGHT, "Counting records"));
    try {
      data = await get(`/topics/${part(name)}/timeline`, { from: param("from"), to: param("to"), p: param("p"), unit: param("unit") }, signal);
      drawChart();
      return true;
    } catch (error) {
      if (signal.aborted) return false;
      replace(chart, failure(error, load));
      replace(list);
      return false;
    }
  }

  async function go() {
    const text = box.value.trim();
    if (!text) {
      setParams({ from: "", to: "", sel: "" }, true);
    } else {
      const [from, to] = text.includes("..") ? text.split("..").map((one) => one.trim()) : [text, ""];
      try {
        for (const one of [from, to]) if (one) await get("/time", { text: one }, signal);
      } catch (error) {
        replace(problem, failure(error));
        return;
      }
      setParams({ from, to, sel: "" }, true);
    }
    replace(problem);
    load();
  }

  const problem = el("div");
  box.value = [param("from"), param("to")].filter(Boolean).join("..");
  box.addEventListener("keydown", (event) => event.key === "Enter" && go());
  partitions.addEventListener("change", () => { setParams({ p: partitions.value.trim(), sel: "" }, true); load(); });
  const quick = [["1 h", "-1h"], ["24 h", "-1d"], ["7 d", "-7d"], ["All", ""]].map(([text, value]) => button(text, () => { box.value = value; go(); }));
  const pin = () => {
    if (!data) return;
    setParams({ from: exactTime(data.edges[0]), to: exactTime(data.edges[data.edges.length - 1]) });
    notice("The address now holds these times, whenever it is opened.");
  };
  replace(root,
    card("Records over time", el("span", { class: "bar" }, box, button("Show", go), quick, topic.count > 1 && partitions, choice([["", "records"], ["bytes", "bytes"]], param("unit") ?? "", (value) => { setParams({ unit: value }); count(); }, "What the bars show"),
      topic.count > 1 && labelled("split", el("input", { type: "checkbox", checked: param("split") === "1", "aria-label": "Split the bars by partition", onchange: (event) => { setParams({ split: event.target.checked ? "1" : "" }); drawChart(); } })),
      button("Pin", pin, { title: "Make relative times in the address absolute" }),
      copyButton("Copy link", () => location.href),
      copyButton("Copy as command", () => consumeCommand(name, shownSpan()))), problem, chart),
    list);
  await load();
}

function consumeCommand(name, span) {
  const range = span ? ["--from", isoTime(span[0]), "--until", isoTime(span[1])] : ["--from", "earliest"];
  return command("consume", name, ...range, ...chosen(), "--exit-at-end");
}

/** The partitions with their colours; one of them can be chosen. */
function layers(data, choose) {
  return el("div", { class: "legend" }, data.split.map((one, layer) => {
    const swatch = el("i");
    swatch.style.background = colour(layerColour(layer));
    const total = one.bars.reduce((sum, value) => sum + value, 0);
    return button([swatch, `partition ${one.partition}: ${amount(total, data)}`], () => choose(one.partition), { class: "swatch", title: `Show partition ${one.partition} alone` });
  }));
}

function legend(data) {
  const inside = data.bars.reduce((sum, count) => sum + count, 0);
  const width = data.edges[1] - data.edges[0];
  const how = data.unit === "bytes" ? ", each as large as the mean of its partition on disk" : "";
  return el("div", { class: "legend" },
    el("span", {}, el("i"), `${data.unit === "bytes" ? "about " : ""}${amount(inside, data)} ${data.source === "counts" ? "by their own time" : "by arrival"}${how}, bars of ${formatDuration(width)}`),
    el("span", {}, el("i", { class: "k-dim" }), `${amount(data.before, data)} before, ${amount(data.after, data)} after`),
    data.ahead > 0 && el("span", {}, el("i", { class: "k-bad" }), `${amount(data.ahead, data)} after a timestamp ahead of the clock`),
    el("span", {}, data.source === "counts" ? "exact counts of the broker" : `${plural(data.lookups, "lookup")}`));
}

function notes(data) {
  const found = [];
  if (data.is_stamped) found.push(el("div", { class: "note" }, "The broker stamps this topic's records (message.timestamp.type=LogAppendTime), so the bars are arrivals."));
  if (data.source === "lookups") {
    found.push(el("div", { class: "note" }, "Counted by lookups, which follow the log's order: a record that arrived late is in the bar of the record before it, and offsets without records (compaction, transactions) count too. All bars and both ends together are the whole log."));
  }
  if (data.ahead > 0) {
    found.push(el("div", { class: "note warn" }, `${plural(data.ahead, "record")} lie in the log after one whose time is ahead of the clock (the newest is ${formatAge(data.newest_ms, data.now_ms)}), so lookups cannot place them in time. The orders by offset and newest first show them.`));
  } else if (data.newest_ms > data.now_ms) {
    found.push(el("div", { class: "note warn" }, `The newest record is ${formatAge(data.newest_ms, data.now_ms)}: a producer's clock or unit is wrong.`));
  }
  if (data.partitions_drawn < data.partitions) {
    found.push(el("div", { class: "note warn" }, `Estimate from ${data.partitions_drawn} of ${formatCount(data.partitions)} partitions, evenly spread.`));
  }
  if (data.without_time > 0) found.push(el("div", { class: "note" }, `${plural(data.without_time, "record")} carry no time and are in no bar.`));
  if (data.missing_bytes > 0) found.push(el("div", { class: "note warn" }, `${formatSize(data.missing_bytes)} of the log are not counted yet: load the page again to continue.`));
  return found;
}
