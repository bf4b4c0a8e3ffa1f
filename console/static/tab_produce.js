// Write one record, new or like an existing one.
import { get, getBytes, part, post } from "./api.js";
import { button, card, choice, copyButton, el, failure, labelled, replace } from "./dom.js";
import { command, param, shell } from "./state.js";
import { formatSize, formatTime, isoTime, plural, typedTime } from "./time.js";

const ENCODINGS = [["text", "text"], ["hex", "hex"], ["base64", "base64"], ["null", "null"]];

/** A header as a line; one whose name or value is no line of text is described, and stays as it is. */
function lineOf({ name, value, exact }, index) {
  const isLine = typeof exact === "string" && !/[\r\n]/.test(exact) && exact === exact.trim() && name === name.trim() && !/[:\r\n]/.test(name);
  const what = exact === null ? "null" : formatSize(value.size);
  return isLine ? `${name}: ${exact}` : `${name.replace(/[:\r\n]/g, " ").trim()}: <header ${index + 1}, ${what}, as it is>`;
}

export async function show(root, { name, signal }) {
  const encodings = { key: "text", value: "text" };
  const key = el("textarea", { "aria-label": "Key", placeholder: "empty: no key" });
  const value = el("textarea", { "aria-label": "Value" });
  const time = el("input", { "aria-label": "Time", placeholder: "now" });
  const partition = el("input", { "aria-label": "Partition", placeholder: "by the key", size: 10 });
  const headers = el("textarea", { "aria-label": "Headers", placeholder: "name: value, one a line" });
  const result = el("div", { "aria-live": "polite" });

  /** @type {Map<string, [string, any]>} the headers of the original by their lines */
  const kept = new Map();
  const headerOf = (line) => kept.get(line) ?? [line.split(":")[0].trim(), line.slice(line.indexOf(":") + 1).trim()];

  const [from, offset] = (param("from") ?? "").split(":");
  let original = null;
  if (offset) {
    const like = await get(`/topics/${part(name)}/record`, { partition: from, offset }, signal);
    original = like;
    for (const [box, which] of [[key, "key"], [value, "value"]]) {
      const bytes = await getBytes(`/topics/${part(name)}/raw`, { partition: from, offset, part: which }, signal);
      encodings[which] = like[which].format === "null" ? (which === "key" ? "text" : "null") : encodingOf(bytes, which);
      box.value = encodings[which] === "hex" ? Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("") : decode(bytes);
    }
    partition.value = from;
    like.headers.forEach((one, index) => kept.set(lineOf(one, index), [one.name, one.exact]));
    headers.value = like.headers.map(lineOf).join("\n");
    const more = like.headers_count - like.headers.length;
    if (more > 0) replace(result, el("div", { class: "note warn" }, `The record has ${plural(more, "header")} more, which this form lacks.`));
  }

  const isNull = (box, which) => encodings[which] === "null" || (which === "key" && encodings.key === "text" && box.value === "");
  const given = (box, which) => (isNull(box, which) ? { [which]: null } : { [which]: box.value, [`${which}_encoding`]: encodings[which] });

  async function send() {
    try {
      const lines = headers.value.split("\n").filter((line) => line.trim());
      const number = partition.value.trim();
      const stored = await post(`/topics/${part(name)}/records`, {
        ...given(key, "key"), ...given(value, "value"),
        time: time.value.trim(), ...(number ? { partition: /^\d+$/.test(number) ? Number(number) : number } : {}),
        headers: lines.map(headerOf),
      });
      replace(result, el("div", { class: "note" }, `Stored at ${name}-${stored.partition} @ ${stored.offset}, ${formatTime(stored.time_ms)}. `,
        el("a", { href: `/topics/${part(name)}?open=${stored.partition}:${stored.offset}` }, "Show it")));
    } catch (error) {
      replace(result, failure(error));
    }
  }

  /** The same record as a line for `tidelog produce --format json`. */
  async function line() {
    const bytes = (text) => ({ base64: btoa((text.match(/../g) ?? []).map((pair) => String.fromCharCode(parseInt(pair, 16))).join("")) });
    const coded = (box, which) => {
      if (isNull(box, which)) return null;
      return encodings[which] === "text" ? box.value : encodings[which] === "hex" ? bytes(box.value.replaceAll(/\s/g, "")) : { base64: box.value.trim() };
    };
    const lines = headers.value.split("\n").filter((one) => one.trim());
    const record = { key: coded(key, "key"), value: coded(value, "value"), ...(lines.length ? { headers: lines.map(headerOf) } : {}) };
    const typed = time.value.trim();
    // A wrong time is named by the command too.
    const found = typed && (await get("/time", { text: typed }, signal).catch(() => null));
    const moment = found ? typedTime(typed, found.ms) : typed;
    const options = [...(moment ? ["--timestamp", moment] : []), ...(partition.value.trim() ? ["--partition", partition.value.trim()] : [])];
    return `printf '%s\\n' ${shell(JSON.stringify(record))} | ${command("produce", name, "--format", "json", ...options)}`;
  }

  const kind = (box, which) => {
    const use = (chosen) => { encodings[which] = chosen; box.disabled = chosen === "null"; };
    use(encodings[which]);
    return choice(ENCODINGS, encodings[which], use, `Encoding of the ${which}`);
  };
  replace(root, card(original ? `Produce again: ${name}-${from} @ ${offset}` : "Produce a record", copyButton("Copy as command", line),
    el("div", { class: "bar" }, "Key", kind(key, "key")), key, el("div", { class: "bar" }, "Value", kind(value, "value")), value,
    labelled("Headers", headers, true),
    el("div", { class: "bar" }, labelled("Time", time), original && button("Keep its time", () => { time.value = isoTime(original.time_ms); }),
      labelled("Partition", partition), el("span", { class: "grow" }), button("Produce", send, { class: "main" })), result));
}

const decode = (bytes) => new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);

/** How bytes go through a box and stay what they are: a box changes the ends of lines; an empty key is not null. */
function encodingOf(bytes, which) {
  try {
    return /[\0\r]/.test(decode(bytes)) || (which === "key" && !bytes.length) ? "hex" : "text";
  } catch {
    return "hex";
  }
}
