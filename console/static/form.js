// A dialog with fields, for one change.
import { button, choice, copyButton, el, failure, labelled, notice, replace } from "./dom.js";

/**
 * @param {{title: string, text?: string, done: string, danger?: boolean, act: string,
 *   fields: Array<{name: string, label: string, value?: string, kind?: string, options?: Array<[string, string]>, placeholder?: string}>,
 *   send: (values: any, isConfirmed: boolean) => Promise<any>, command?: (values: any) => string, reload: () => any}} form
 */
export function formDialog({ title, text, fields, act, done, danger, send, command, reload }) {
  const values = Object.fromEntries(fields.map((one) => [one.name, one.value ?? one.options?.[0][0] ?? ""]));
  const result = el("div", { "aria-live": "polite" });
  const box = el("dialog", { "aria-label": title, onclose: () => box.remove() });
  const control = (one) => (one.options
    ? choice(one.options, values[one.name], (value) => { values[one.name] = value; }, one.label)
    : el("input", { "aria-label": one.label, type: one.kind ?? "text", value: values[one.name], placeholder: one.placeholder, size: 34, autocomplete: one.kind === "password" ? "new-password" : "off", oninput: (event) => { values[one.name] = event.target.value; } }));
  let isConfirmed = false;

  async function go() {
    try {
      await send(values, isConfirmed);
      box.close();
      notice(done);
      await reload();
    } catch (error) {
      isConfirmed = / Confirm to do it$/.test(error.message);
      replace(result, failure(error));
      if (isConfirmed) main.textContent = "Do it all the same";
    }
  }

  const main = button(act, go, { class: danger ? "danger" : "main" });
  replace(box, el("h2", {}, title), text && el("p", {}, text), fields.map((one) => labelled(one.label, control(one), true)), result,
    el("div", { class: "bar" }, main, command && copyButton("Copy as command", () => command(values)), el("span", { class: "grow" }), button("Cancel", () => box.close())));
  document.body.append(box);
  box.showModal();
  box.querySelector("input, select")?.focus();
}
