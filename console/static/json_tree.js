// JSON as a tree: objects and lists open and close, and their sizes show while they are closed.
import { el } from "./dom.js";
import { formatCount, plural } from "./time.js";

const OPEN_DEPTH = 2;
const CHILDREN_MAX = 200;

/** A number that the browser would round, as an identifier of 64 bits, with its digits. */
class Digits {
  constructor(text) {
    this.text = text;
  }
}

/**
 * @param {string} _ the name
 * @param {any} value
 * @param {{source?: string}} [context] what older browsers do not give
 */
const exact = (_, value, context) => (typeof value === "number" && context?.source && String(value) !== context.source ? new Digits(context.source) : value);

/** The tree of a JSON text, or null where it is no object and no list. */
export function jsonTree(text, label) {
  let value;
  try {
    value = JSON.parse(text, exact);
  } catch {
    return null;
  }
  if (value === null || typeof value !== "object" || value instanceof Digits) return null;
  return el("div", { class: "tree mono", tabindex: 0, role: "region", "aria-label": label }, branch(null, value, 0));
}

function branch(name, value, depth) {
  const title = name === null ? null : el("span", { class: "dim" }, `${name}: `);
  if (value instanceof Digits) return el("div", {}, title, el("span", { class: "json-number" }, value.text));
  if (value === null || typeof value !== "object") return el("div", {}, title, el("span", { class: `json-${value === null ? "null" : typeof value}` }, JSON.stringify(value)));
  const isList = Array.isArray(value);
  const entries = Object.entries(value);
  const size = isList ? plural(entries.length, "element") : plural(entries.length, "field");
  const box = el("details", { open: depth < OPEN_DEPTH }, el("summary", {}, title, el("span", { class: "dim" }, `${isList ? "list" : "object"}, ${size}`)));
  // What is closed is drawn when it opens: a value may have many thousand parts.
  const fill = (start = 0) => {
    for (const [key, child] of entries.slice(start, start + CHILDREN_MAX)) box.append(branch(key, child, depth + 1));
    const rest = entries.length - start - CHILDREN_MAX;
    if (rest > 0) box.append(more(rest, () => fill(start + CHILDREN_MAX)));
  };
  let isFilled = false;
  const once = () => {
    if (!box.open || isFilled) return;
    isFilled = true;
    fill();
  };
  box.addEventListener("toggle", once);
  once();
  return box;
}

function more(rest, act) {
  const node = el("button", { type: "button", onclick: () => { node.remove(); act(); } }, `${formatCount(rest)} more`);
  return node;
}
