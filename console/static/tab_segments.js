// Where a partition's segments lie in time, what keeps them, what other settings would delete.
import { get, part } from "./api.js";
import { card, choice, copyButton, el, labelled, replace, skeleton, failure } from "./dom.js";
import { explainForm } from "./explain.js";
import { fate, reasonOf, segmentMap } from "./segment_map.js";
import { simulator } from "./simulator.js";
import { command, param, setParams } from "./state.js";
import { formatCount, formatDuration, formatSize, formatTime, plural } from "./time.js";

export async function show(root, { name, topic, signal }) {
  let partition = Number(param("partition") ?? topic.partitions[0]?.partition ?? 0);
  const map = el("div", {}, skeleton(260));
  const facts = el("div");
  const explain = el("div");
  const simulation = el("div");
  const view = { now: 0, retentionMs: -1, chosen: null, mark: null, choose };
  let segments = [];

  function choose(one) {
    view.chosen = one.base_offset;
    drawMap();
    drawFacts();
  }

  function drawMap() {
    const hadFocus = map.contains(document.activeElement);
    const node = segmentMap(segments, view);
    replace(map, node, legend());
    if (hadFocus) node.focus();
  }

  function legend() {
    const counts = {};
    for (const one of segments) {
      const [kind, text] = fate(one, view.now);
      (counts[kind] ??= [text, 0, 0])[1]++;
      counts[kind][2] += one.size_bytes;
    }
    return el("div", { class: "legend" }, Object.entries(counts).map(([kind, [text, count, bytes]]) =>
      el("span", {}, el("i", { class: { bad: "k-bad", held: "k-warn", good: "k-good", "bar-dim": "k-dim" }[kind] }), `${text}: ${plural(count, "segment")}, ${formatSize(bytes)}`)));
  }

  function drawFacts() {
    const one = segments.find((segment) => segment.base_offset === view.chosen);
    if (!one) {
      replace(facts, el("p", { class: "dim" }, "Choose a segment on the map to see why it is still there."));
      return;
    }
    const width = one.min_timestamp >= 0 && one.min_timestamp !== null ? formatDuration(one.max_timestamp - one.min_timestamp) : "not known";
    replace(facts, el("div", { class: `note ${fate(one, view.now)[0] === "held" ? "warn" : ""}` }, reasonOf(one, view.now)),
      el("dl", { class: "facts" },
        el("dt", {}, "Offsets"), el("dd", {}, `${formatCount(one.base_offset)} to ${formatCount(one.next_offset - 1)}${one.records === null || one.records === undefined ? "" : `, ${plural(one.records, "record")}`}, ${formatSize(one.size_bytes)}`),
        el("dt", {}, "Times"), el("dd", {}, `${formatTime(one.min_timestamp)} to ${formatTime(one.max_timestamp)} (${width})`),
        one.appended_ms > 0 && [el("dt", {}, "Last append"), el("dd", {}, formatTime(one.appended_ms))]));
  }

  async function load() {
    replace(map, skeleton(260));
    try {
      const [plan, known] = await Promise.all([
        get(`/topics/${part(name)}/retention`, { partition }, signal),
        get(`/topics/${part(name)}/segments`, { partition }, signal)]);
      const more = new Map(known.segments.map((one) => [one.base_offset, one]));
      segments = (plan.partitions[0]?.segments ?? []).map((one) => ({ ...more.get(one.base_offset), ...one }));
      view.now = plan.now_ms;
      view.retentionMs = plan.settings["cleanup.policy"].includes("delete") ? plan.settings["retention.ms"] : -1;
      view.chosen = segments.find((one) => fate(one, view.now)[1] === "held")?.base_offset ?? null;
      view.mark = null;
      drawMap();
      drawFacts();
      explainForm(explain, { name, partition, signal, show: (mark) => { view.mark = mark; drawMap(); } });
      await simulator(simulation, { name, plan, partition, count: topic.count, signal, reload: load, preview: (found, retentionMs) => {
        const fates = new Map((found.partitions.find((one) => one.partition === partition)?.segments ?? []).map((one) => [one.base_offset, one]));
        segments = segments.map((one) => ({ ...one, ...fates.get(one.base_offset) }));
        view.retentionMs = retentionMs;
        drawMap();
        drawFacts();
      } });
    } catch (error) {
      if (signal.aborted) return;
      replace(root, error.status === 501
        ? el("div", { class: "note" }, `The map of segments needs a Tidelog with a metrics port: ${error.message}. The timeline counts this topic's records by lookups, and the list of partitions has their sizes on disk.`)
        : failure(error, load));
    }
  }

  const numbers = topic.partitions.map((one) => [String(one.partition), String(one.partition)]);
  replace(root,
    card("Segments in time", el("span", { class: "bar" },
      topic.count > 1 && labelled("partition", choice(numbers, String(partition), (value) => { partition = Number(value); setParams({ partition }); load(); }, "Partition")),
      copyButton("Copy as command", () => command("retention", name, "--partition", String(partition)))), map, facts),
    explain, simulation);
  await load();
}
