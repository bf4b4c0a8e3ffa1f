// Questions that are asked again and again; without an answer the page keeps what it has, with its age.
import { el, replace } from "./dom.js";
import { formatAge, formatTime } from "./time.js";

/**
 * @param {() => Promise<any>} load asks and draws
 * @param {{every: number, first?: number, note: Element, signal: AbortSignal}} options `note` gets the sentence
 *   of a failure, `first` is the wait before the first question
 */
export function poll(load, { every, first = every, note, signal }) {
  let at = Date.now();
  async function again() {
    try {
      await load();
      at = Date.now();
      replace(note);
    } catch (error) {
      if (signal.aborted) return;
      replace(note, el("div", { class: "note warn" }, `This is of ${formatTime(at, 0)}, ${formatAge(at, Date.now())}, and not current: ${error.message}`));
    }
    if (!signal.aborted) timer = setTimeout(again, every);
  }
  let timer = setTimeout(again, first);
  signal.addEventListener("abort", () => clearTimeout(timer));
}
