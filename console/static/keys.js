// Keys that work on every page, and the list of them.
import { button, el } from "./dom.js";
import { navigate } from "./state.js";

const KEYS = [
  ["/", "search or filter"], ["t", "type a time"], ["g o", "overview"], ["g t", "topics"], ["g g", "groups"],
  ["j k", "next, previous row"], ["Enter", "open the row"], ["Esc", "close"], ["?", "this list"],
  ["← →", "on the timeline: move the mark; with Shift: select"], ["Enter", "on the timeline: show the records of the selection"],
  ["+ −", "on the timeline: zoom"], ["1 to 5", "on an explained lookup: the steps"],
];
const PLACES = { o: "/", t: "/topics", g: "/groups" };

let went = 0;

function help() {
  const box = el("dialog", { "aria-label": "Keys", onclose: () => box.remove() }, el("h2", {}, "Keys"),
    el("dl", { class: "facts" }, KEYS.map(([keys, what]) => [el("dt", {}, keys.split(" ").map((key) => [el("kbd", {}, key), " "])), el("dd", {}, what)])),
    button("Close", () => box.close()));
  document.body.append(box);
  box.showModal();
}

/** Whether a key is meant for a field. */
export const isTyping = (event) => event.target instanceof Element && event.target.matches("input, textarea, select");

function step(direction) {
  const rows = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("tr.row")]);
  if (!rows.length) return;
  const at = rows.findIndex((row) => row === document.activeElement);
  rows[Math.max(0, Math.min(rows.length - 1, at + direction))].focus();
}

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    if (isTyping(event)) event.target.blur();
    document.dispatchEvent(new Event("escape"));
    return;
  }
  if (isTyping(event) || document.querySelector("dialog[open]")) return;
  const isGoing = Date.now() - went < 1500;
  went = 0;
  if (isGoing && PLACES[event.key]) navigate(PLACES[event.key]);
  else if (event.key === "g") went = Date.now();
  else if (event.key === "?") help();
  else if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === "/" || event.key === "t") {
    const box = /** @type {?HTMLInputElement} */ (document.querySelector(event.key === "/" ? "[data-key='/']" : "[data-key='t']"));
    if (!box) return;
    event.preventDefault();
    box.focus();
    box.select();
  }
}

export function initKeys() {
  document.addEventListener("keydown", press);
  document.addEventListener("help", help);
}
