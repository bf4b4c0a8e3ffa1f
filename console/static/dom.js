// Elements from data. Text always becomes text nodes: nothing that comes from a broker is markup.
import { groupPath } from "./api.js";

/**
 * @param {string} tag
 * @param {Object<string, any>} [attributes] on… are listeners, the rest are attributes
 * @param {...any} children nodes, texts, numbers; null and false are left out
 * @returns {any} an element of that tag
 */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value") /** @type {HTMLInputElement} */ (node).value = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  return add(node, ...children);
}

// Characters that show nothing, or turn the text around them: a name with one looks like another name.
const UNSEEN = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u2069\ufeff]/g;

/** The text with such characters as escapes. */
export const visible = (text) => text.replace(UNSEEN, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);

export function add(node, ...children) {
  for (const child of children.flat(9)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : visible(String(child)));
  }
  return node;
}

export function replace(node, ...children) {
  node.replaceChildren();
  return add(node, ...children);
}

const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";

/** As replace; the focus and what is open stay where they are in the same figures of another moment. */
export function redraw(node, ...children) {
  const at = document.activeElement ? [...node.querySelectorAll(FOCUSABLE)].indexOf(document.activeElement) : -1;
  const opened = [...node.querySelectorAll("details")].map((one) => one.open);
  replace(node, ...children);
  node.querySelectorAll("details").forEach((one, index) => { one.open ||= opened[index] ?? false; });
  if (at >= 0) /** @type {?HTMLElement} */ (node.querySelectorAll(FOCUSABLE)[at])?.focus();
  return node;
}

/** A card with a heading; `tools` stand at its right. */
export function card(title, tools, ...children) {
  return el("section", { class: "card", "aria-label": title },
    el("div", { class: "bar" }, el("h2", {}, title), el("span", { class: "grow" }), tools), ...children);
}

export function skeleton(height = 120, text = "Loading") {
  const node = el("p", { class: "skeleton" }, text);
  node.style.height = `${height}px`;
  return node;
}

export function empty(sentence, ...more) {
  return el("div", { class: "note" }, sentence, " ", ...more);
}

/** The sentence of a failed question, its id, and another try. */
export function failure(error, retry) {
  const id = error.requestId ? ` (request ${error.requestId})` : "";
  return el("div", { class: "note bad", role: "alert" }, `${error.message}${id} `,
    retry && el("button", { onclick: retry }, "Try again"));
}

export function button(label, onclick, attributes = {}) {
  return el("button", { type: "button", onclick, ...attributes }, label);
}

/**
 * @param {Array<{title: string, right?: boolean, class?: string, cell: (row: any) => any}>} columns
 * @param {any[]} rows
 * @param {{open?: (row: any, index: number) => void, label?: string}} [options]
 */
export function table(columns, rows, options = {}) {
  const body = el("tbody");
  rows.forEach((row, index) => {
    const open = options.open && (() => options.open(row, index));
    const line = el("tr", open ? {
      class: "row", tabindex: 0, onclick: (event) => !event.target.closest("a, button, input") && open(),
      onkeydown: (event) => event.key === "Enter" && event.target === event.currentTarget && open(),
    } : {});
    for (const column of columns) {
      line.append(el("td", { class: `${column.class ?? ""} ${column.right ? "right" : ""}` }, column.cell(row)));
    }
    body.append(line);
  });
  return el("div", { class: "scroll", tabindex: options.open ? null : 0, role: "region", "aria-label": options.label ?? "Table" }, el("table", {},
    el("thead", {}, el("tr", {}, columns.map((c) => el("th", { class: c.right ? "right" : null, scope: "col" }, c.title)))), body));
}

/** The numbers of a chart as a table that opens on request. */
export function numbers(columns, rows) {
  const box = el("details", {}, el("summary", {}, "The numbers as a table"));
  box.addEventListener("toggle", () => {
    if (box.open && box.children.length === 1) box.append(table(columns, rows(), { label: "The numbers" }));
  });
  return box;
}

export function notice(text) {
  const line = el("p", {}, text);
  document.getElementById("notices").append(line);
  setTimeout(() => line.remove(), 5000);
}

export function copyButton(label, text, title) {
  return button(label, async () => {
    const value = typeof text === "function" ? await text() : text;
    try {
      await navigator.clipboard.writeText(value);
      notice(`Copied: ${value.length > 160 ? `${value.slice(0, 160)}…` : value}`);
    } catch {
      const box = el("dialog", { onclose: () => box.remove() }, el("p", {}, "Copy this:"), el("pre", {}, value),
        button("Close", () => box.close()));
      document.body.append(box);
      box.showModal();
    }
  }, title ? { title } : {});
}

/** A name that is blank stands in quotes, so that there is something to see and to click. */
export const shownName = (name) => (name.trim() ? name : `"${name}"`);

export const groupLink = (name) => el("a", { href: groupPath(name) }, shownName(name));

export function labelled(text, control, isStack = false) {
  return el("label", { class: isStack ? "stack" : null }, text, control);
}

export function choice(options, chosen, onchange, label) {
  const node = el("select", { "aria-label": label, onchange: () => onchange(node.value) },
    options.map(([value, text]) => el("option", { value, selected: value === chosen }, text)));
  return node;
}

/** The colour of a CSS variable, for a canvas. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** A canvas of a height in pixels, sharp on every screen; `draw` gets its context and size. */
export function canvas(height, draw, attributes = {}) {
  const node = el("canvas", attributes);
  node.style.height = `${height}px`;
  const paint = () => {
    const width = node.clientWidth;
    if (!width) return;
    const scale = window.devicePixelRatio || 1;
    node.width = Math.round(width * scale);
    node.height = Math.round(height * scale);
    const context = node.getContext("2d");
    context.scale(scale, scale);
    context.clearRect(0, 0, width, height);
    context.font = "12px system-ui, sans-serif";
    draw(context, width, height);
  };
  new ResizeObserver(paint).observe(node);
  document.addEventListener("repaint", () => node.isConnected && paint());
  node.paint = paint;
  return node;
}

/** Names the workers whose part of an answer of the metrics port is missing. */
export const incomplete = (found) => (found.unanswered ?? []).length > 0 && el("div", { class: "note warn" },
  found.unanswered.map((one) => el("div", {}, `Incomplete: ${one.why}; its partitions of the topic: ${one.partitions.join(", ") || "none"}.`)));
