// Where a partition's segments lie in time, what keeps them, what other settings would delete.
import { get, part } from "./api.js";
import { card, choice, copyButton, el, labelled, redraw, replace, skeleton, failure } from "./dom.js";
import { heldTable, WIDE } from "./held_table.js";
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
  let deleted = [];

  function choose(one) {
    view.chosen = one.base_offset;
    drawMap();
    drawFacts();
  }

  function drawMap() {
    redraw(map, segmentMap(segments, view), legend());
  }

  function legend() {
    const counts = {};
    for (const one of segments) {
      const [kind, text] = fate(one, view.now);
      (counts[kind] ??= [text, 0, 0])[1]++;
      counts[kind][2] += one.size_bytes;
    }
    return el("div", { class: "legend" }, Object.entries(counts).map(([kind, [text, count, bytes]]) =>
      el("span", {}, el("i", { class: { bad: "k-bad", held: "k-warn", good: "k-good", "bar-dim": "k-dim" }[kind] }), `${text}: ${plural(count, "segment")}, ${formatSize(bytes)}`)),
      segments.some((one) => one.min_timestamp === null) && el("span", {}, "striped: the oldest time is not known yet"),
      deleted.length > 0 && el("span", {}, `deleted: ${plural(deleted.length, "segment")}, ${formatSize(deleted.reduce((sum, one) => sum + one.size_bytes, 0))} that leave the disk by ${formatTime(Math.max(...deleted.map((one) => one.unlinked_at_ms)))} (file.delete.delay.ms)`));
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
      deleted = known.deleted ?? [];
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

  const known = new Set([...topic.partitions.map((one) => one.partition), partition]);
  const numbers = [...known].sort((a, b) => a - b).map((number) => [String(number), String(number)]);
  const chooser = choice(numbers, String(partition), change, "Partition");
  const wide = el("div");

  function change(value) {
    partition = Number(value);
    setParams({ partition });
    if (!known.has(partition)) chooser.append(el("option", { value: String(partition) }, String(partition)));
    known.add(partition);
    chooser.value = String(partition);
    load();
  }

  const mapCard = card("Segments in time", el("span", { class: "bar" },
      topic.count > 1 && labelled("partition", chooser),
      copyButton("Copy as command", () => command("retention", name, "--partition", String(partition)))), map, facts);
  replace(root, wide, mapCard, explain, simulation);
  // The list is longer than a screen, so the map comes to the eye.
  const open = (value) => {
    change(value);
    mapCard.scrollIntoView({ block: "start" });
    chooser.focus({ preventScroll: true });
  };
  if (topic.count > WIDE) heldTable(wide, { name, choose: open, signal });
  await load();
}
