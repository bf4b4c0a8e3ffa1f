// How disordered the times of a topic are, and which producers have wrong clocks; elsewhere a sample.
import { get, part } from "./api.js";
import { button, card, choice, copyButton, el, empty, failure, incomplete, labelled, replace, skeleton, table } from "./dom.js";
import { disorderTable, sampleView } from "./skew_sample.js";
import { command } from "./state.js";
import { formatCount, formatDuration, formatSize, formatTime, plural, unitOf } from "./time.js";

const SIZES = [1, 8, 64].map((size) => [String(size * 1024 * 1024), formatSize(size * 1024 * 1024)]);
const AHEAD = 60_000;

/** What is wrong with a producer's times, a sentence for each fault. */
function faults(one) {
  const found = [];
  const place = (record) => `offset ${formatCount(record.offset)}, ${formatTime(record.timestamp_ms)}`;
  if (one.ahead && one.ahead_ms > AHEAD) found.push(`Its clock is ahead by at least ${formatDuration(one.ahead_ms)} (${place(one.ahead)}).`);
  for (const record of [one.behind, one.ahead]) {
    const unit = record && unitOf(record.timestamp_ms);
    if (unit) found.push(`Its times look like ${unit} instead of milliseconds (offset ${formatCount(record.offset)}, timestamp ${record.timestamp_ms}).`);
  }
  if (one.without_time) found.push(`${formatCount(one.without_time)} of its records carry no time.`);
  if (one.out_of_order * 10 > one.records) found.push(`${Math.round((100 * one.out_of_order) / one.records)} % of its records are older than an earlier one.`);
  return found;
}

/** What is wrong with the batches of a client, a sentence for each fault. */
function clientFaults(one) {
  const found = [];
  const batches = (count) => plural(count, "batch", "batches");
  for (const side of ["ahead", "behind"]) {
    const place = one[`most_${side}`];
    if (!place) continue;
    const unit = unitOf(place.timestamp_ms);
    found.push(el("span", {}, `${batches(one[side])} ${side}, by ${formatDuration(one[`${side}_ms`])} at most: `,
      el("a", { href: `?open=${place.partition}:${place.offset}` }, `partition ${place.partition}, offset ${formatCount(place.offset)}`),
      unit ? `. Its times look like ${unit} instead of milliseconds.` : ""));
  }
  if (one.without_time) found.push(`${batches(one.without_time)} with a record without a time.`);
  if (one.refused) found.push(`${batches(one.refused)} refused by the bounds of the topic.`);
  return found;
}

function clientTable(clients) {
  return table([
    { title: "Client", class: "name", cell: (one) => one.client_id || el("span", { class: "dim" }, "without a client id") },
    { title: "What", cell: (one) => clientFaults(one).map((text) => el("div", {}, text)) },
    { title: "First seen", class: "nowrap", cell: (one) => formatTime(one.first_ms) },
    { title: "Last seen", class: "nowrap", cell: (one) => formatTime(one.last_ms) },
  ], clients, { label: "Clients" });
}

export async function show(root, { name, signal }) {
  let bytes = SIZES[1][0];
  const body = el("div", {}, skeleton(200, "Reading the newest records"));

  async function load() {
    replace(body, skeleton(200, "Reading the newest records"));
    try {
      const found = await get(`/topics/${part(name)}/skew`, { bytes }, signal);
      draw(found);
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 501) await sample(error.message);
      else replace(body, failure(error, load));
    }
  }

  async function sample(why) {
    try {
      replace(body, sampleView(await get(`/topics/${part(name)}/skew-sample`, {}, signal), why));
      replace(tools);
    } catch (error) {
      if (!signal.aborted) replace(body, failure(error, load));
    }
  }

  function draw(found) {
    const wrong = found.partitions.flatMap((one) => one.producers.map((producer) => ({ ...producer, partition: one.partition, faults: faults(producer) }))).filter((one) => one.faults.length);
    const stamped = found.partitions.reduce((sum, one) => sum + one.stamped, 0);
    replace(body, incomplete(found),
      el("h2", {}, "Clients whose batches were off when they were appended"),
      found.clients?.length ? clientTable(found.clients) : empty("None since the broker's start: no batch was ahead by more than a minute, behind by more than an hour, or refused for its times."),
      el("h2", {}, "Producers that are off"),
      wrong.length ? table([
        { title: "Partition", right: true, cell: (one) => one.partition },
        { title: "Producer", cell: (one) => (one.producer_id < 0 ? "not idempotent" : `id ${one.producer_id}`) },
        { title: "Records", right: true, cell: (one) => formatCount(one.records) },
        { title: "What", cell: (one) => one.faults.map((text) => el("div", {}, text)) },
      ], wrong) : empty("No producer is off."),
      el("h2", {}, "Disorder"),
      disorderTable(found.partitions),
      stamped > 0 && el("div", { class: "note" }, `${formatCount(stamped)} records have the broker's own time, which is never off.`),
      el("p", { class: "dim" }, `The newest ${formatSize(found.bytes_max)} of all partitions were read. A record is late by how much it is older than the youngest before it.`));
  }

  const tools = el("span", { class: "bar" },
    labelled("read", choice(SIZES, bytes, (value) => { bytes = value; load(); }, "How much to read")), button("Again", load),
    copyButton("Copy as command", () => command("skew", name, "--bytes", bytes)));
  replace(root, card("Times of the records", tools, body));
  await load();
}
