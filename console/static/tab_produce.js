// Write one record, new or like an existing one.
import { get, part, post } from "./api.js";
import { button, card, choice, copyButton, el, failure, labelled, replace } from "./dom.js";
import { command, param, shell } from "./state.js";
import { formatTime, isoTime } from "./time.js";

const headerOf = (line) => [line.split(":")[0].trim(), line.slice(line.indexOf(":") + 1).trim()];
const ENCODINGS = [["text", "text"], ["hex", "hex"], ["base64", "base64"]];

export async function show(root, { name, signal }) {
  const encodings = { key: "text", value: "text" };
  const key = el("textarea", { "aria-label": "Key", placeholder: "empty: no key" });
  const value = el("textarea", { "aria-label": "Value" });
  const time = el("input", { "aria-label": "Time", placeholder: "now" });
  const partition = el("input", { "aria-label": "Partition", placeholder: "by the key", size: 10 });
  const headers = el("textarea", { "aria-label": "Headers", placeholder: "name: value, one a line" });
  const result = el("div", { "aria-live": "polite" });

  const [from, offset] = (param("from") ?? "").split(":");
  let original = null;
  if (offset) {
    const like = await get(`/topics/${part(name)}/record`, { partition: from, offset }, signal);
    original = like;
    for (const [box, which] of [[key, "key"], [value, "value"]]) {
      const raw = await fetch(`/api/topics/${part(name)}/raw?${new URLSearchParams({ partition: from, offset, part: which })}`);
      const bytes = new Uint8Array(await raw.arrayBuffer());
      try {
        box.value = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
      } catch {
        encodings[which] = "hex";
        box.value = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
      }
    }
    partition.value = from;
    headers.value = like.headers.map((one) => `${one.name}: ${one.value.text}`).join("\n");
  }

  async function send() {
    try {
      const lines = headers.value.split("\n").filter((line) => line.trim());
      const stored = await post(`/topics/${part(name)}/records`, {
        key: key.value === "" ? null : key.value, key_encoding: encodings.key,
        value: value.value, value_encoding: encodings.value,
        time: time.value.trim(), ...(partition.value.trim() ? { partition: Number(partition.value) } : {}),
        headers: lines.map(headerOf),
      });
      replace(result, el("div", { class: "note" }, `Stored at ${name}-${stored.partition} @ ${stored.offset}, ${formatTime(stored.time_ms)}. `,
        el("a", { href: `/topics/${part(name)}?open=${stored.partition}:${stored.offset}` }, "Show it")));
    } catch (error) {
      replace(result, failure(error));
    }
  }

  /** The same record as a line for `tidelog produce --format json`. */
  function line() {
    const bytes = (text) => ({ base64: btoa((text.match(/../g) ?? []).map((pair) => String.fromCharCode(parseInt(pair, 16))).join("")) });
    const coded = (box, which) => ({ text: box.value, base64: { base64: box.value.trim() }, hex: null })[encodings[which]] ?? bytes(box.value.replaceAll(/\s/g, ""));
    const lines = headers.value.split("\n").filter((one) => one.trim());
    const record = { key: key.value === "" ? null : coded(key, "key"), value: coded(value, "value"), ...(lines.length ? { headers: lines.map(headerOf) } : {}) };
    const options = [...(time.value.trim() ? ["--timestamp", time.value.trim()] : []), ...(partition.value.trim() ? ["--partition", partition.value.trim()] : [])];
    return `echo ${shell(JSON.stringify(record))} | ${command("produce", name, "--format", "json", ...options)}`;
  }

  const kind = (which) => choice(ENCODINGS, encodings[which], (chosen) => { encodings[which] = chosen; }, `Encoding of the ${which}`);
  replace(root, card(original ? `Produce again: ${name}-${from} @ ${offset}` : "Produce a record", copyButton("Copy as command", line),
    el("div", { class: "bar" }, "Key", kind("key")), key, el("div", { class: "bar" }, "Value", kind("value")), value,
    labelled("Headers", headers, true),
    el("div", { class: "bar" }, labelled("Time", time), original && button("Keep its time", () => { time.value = isoTime(original.time_ms); }),
      labelled("Partition", partition), el("span", { class: "grow" }), button("Produce", send, { class: "main" })), result));
}
