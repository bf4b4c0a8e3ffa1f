// One record in full: where it is, when it was, headers, key and value in the format of choice.
import { address, get, part } from "./api.js";
import { jsonTree } from "./json_tree.js";
import { button, choice, copyButton, el, failure, replace, skeleton } from "./dom.js";
import { command, settings } from "./state.js";
import { formatAge, formatCount, formatDuration, formatSize, formatTime, isoTime, plural } from "./time.js";

const FORMATS = [["", "guess"], ["json", "JSON"], ["avro", "Avro"], ["protobuf", "Protobuf"], ["msgpack", "MessagePack"], ["text", "text"], ["hex", "hex"]];

export function inspector(root, { name, partition, offset, close, signal }) {
  const formats = { key: "", value: "" };
  const asTree = { key: false, value: false };
  const frame = el("section", { class: "card inspector", "aria-label": "Record" }, skeleton(300));
  replace(root, frame);
  // On a narrow screen it stands below the list.
  if (matchMedia("(max-width: 1000px)").matches) frame.scrollIntoView({ block: "start" });

  function go(to) {
    inspector(root, { name, partition, offset: to, close, signal });
  }

  function side(which, record) {
    const shown = record[which];
    const raw = address(`/topics/${part(name)}/raw`, { partition, offset, part: which });
    const tree = jsonTree(shown.text, `The ${which} as a tree`);
    const text = el("pre", { class: shown.format === "hex" ? "hex" : "", tabindex: 0, "aria-label": `The ${which}` }, shown.text);
    const body = el("div", {}, asTree[which] && tree ? tree : text);
    const form = (value) => {
      asTree[which] = value === "tree";
      replace(body, asTree[which] ? tree : text);
    };
    return [el("div", { class: "bar" }, el("h2", {}, which === "key" ? "Key" : "Value"), el("span", { class: "tag" }, shown.format), el("span", { class: "dim" }, formatSize(shown.size)), el("span", { class: "grow" }),
      choice(FORMATS, formats[which], (value) => { formats[which] = value; load(); }, `Format of the ${which}`),
      tree && choice([["text", "as text"], ["tree", "as a tree"]], asTree[which] ? "tree" : "text", form, `Form of the ${which}`),
      which === "key" && record.same_key && el("a", { href: `/topics/${part(name)}?${new URLSearchParams({ f: record.same_key })}`, title: "All records of the topic with this key" }, "Same key"),
      copyButton("Copy", shown.text), shown.size > 0 && el("a", { href: raw, download: "" }, "Download")),
    shown.note && el("div", { class: "note" }, shown.note),
    shown.is_cut && el("div", { class: "note warn" }, "Only the first 256 KiB are shown; the download has all of it."),
    shown.format === "null" ? el("p", { class: "dim" }, "null") : body];
  }

  function near(record) {
    const show = (text, one) => one && el("span", {}, button(`${text} ${one.offset}`, () => go(one.offset)), " ", el("span", { class: "dim" }, distance(one.time_ms, record.time_ms)));
    return el("div", { class: "bar" }, show("←", record.previous), show("→", record.next));
  }

  async function load() {
    try {
      const record = await get(`/topics/${part(name)}/record`, { partition, offset, key_format: formats.key, value_format: formats.value }, signal);
      const produce = new URLSearchParams({ tab: "produce", from: `${partition}:${offset}` });
      replace(frame,
        el("div", { class: "bar" }, el("h2", {}, `${name}-${partition} @ ${offset}`), el("span", { class: "grow" }), button("Close", close, { "aria-label": "Close the record" })),
        el("dl", { class: "facts" },
          el("dt", {}, "Time"), el("dd", {}, formatTime(record.time_ms), " ", el("span", { class: "dim" }, formatAge(record.time_ms, record.now_ms))),
          el("dt", {}, "Stamped by"), el("dd", {}, record.time_type === "LOG_APPEND_TIME" ? "the broker" : record.time_type === "CREATE_TIME" ? "the producer" : "no one"),
          el("dt", {}, "Batch"), el("dd", {}, batchWords(record.batch)),
          record.headers.length > 0 && [el("dt", {}, "Headers"), el("dd", {}, record.headers.map((one) => el("div", { class: "mono" }, `${one.name}: ${one.value.format === "null" ? "null" : one.value.text}`)), record.headers_count > record.headers.length && `and ${record.headers_count - record.headers.length} more`)]),
        record.time_ms > record.now_ms && el("div", { class: "note warn" }, `Its time is ${formatAge(record.time_ms, record.now_ms)} of the clock.`),
        record.unit_mistake && el("div", { class: "note warn" }, record.unit_mistake),
        near(record), side("key", record), side("value", record),
        el("div", { class: "bar" },
          copyButton("Copy as command", command("consume", name, "--partition", String(partition), "--from", String(offset), "--max", "1")),
          copyButton("Copy lookup", command("offsets", name, "--at", isoTime(record.time_ms), "--explain")),
          settings.readOnly !== "1" && el("a", { href: `/topics/${part(name)}?${produce}` }, "Produce again…")));
    } catch (error) {
      if (!signal.aborted) replace(frame, failure(error, load), button("Close", close));
    }
  }

  load();
}

/** Where the batch begins and ends, and what its header says. */
function batchWords(batch) {
  const range = batch.first_offset === null ? `up to offset ${formatCount(batch.last_offset)}` : batch.first_offset === batch.last_offset ? `offset ${formatCount(batch.last_offset)} alone` : `offsets ${formatCount(batch.first_offset)} to ${formatCount(batch.last_offset)}`;
  return [range, batch.records !== null && plural(batch.records, "record"), formatSize(batch.size_bytes), batch.codec === "none" ? "not compressed" : batch.codec, `format ${batch.format}`,
    batch.producer_id !== null && `producer ${batch.producer_id} from sequence ${formatCount(batch.base_sequence)}`, batch.is_transactional && "in a transaction"].filter(Boolean).join(", ");
}

function distance(ms, other) {
  if (ms < 0 || other < 0) return "without a time";
  if (ms === other) return "same time";
  return ms > other ? `${formatDuration(ms - other)} later` : `${formatDuration(other - ms)} earlier`;
}
