// A topic's settings: value, source, meaning; a change is shown before it is made.
import { get, part, post } from "./api.js";
import { button, card, copyButton, el, failure, notice, replace, table } from "./dom.js";
import { command, settings } from "./state.js";
import { formatDuration, formatSize } from "./time.js";

function meaning(one) {
  const number = Number(one.value);
  if (one.value === null || one.value === "" || Number.isNaN(number) || number < 0 || number > 1e15) return "";
  if (one.name.endsWith(".ms") && number >= 1000) return formatDuration(number);
  return one.name.endsWith(".bytes") && number >= 1024 ? formatSize(number) : "";
}

export async function show(root, { topic, name, signal, refresh }) {
  const found = await get(`/topics/${part(name)}/settings`, {}, signal);
  const search = el("input", { type: "search", "data-key": "/", placeholder: "Part of a name", "aria-label": "Search settings", oninput: () => draw() });
  const list = el("div");

  function edit(one) {
    const input = el("input", { value: one.value ?? "", "aria-label": one.name, size: 40 });
    const result = el("div");
    const box = el("dialog", { onclose: () => box.remove(), "aria-label": `Change ${one.name}` }, el("h2", {}, one.name), el("p", { class: "dim" }, one.documentation),
      input, result, el("div", { class: "bar" },
        button("Preview", () => preview({ [one.name]: input.value })),
        one.is_set_here && button("Back to the default…", () => preview({ [one.name]: null })),
        button("Cancel", () => box.close())));
    async function preview(changes) {
      try {
        const answer = await post(`/topics/${part(name)}/settings-preview`, { changes });
        const words = Object.entries(changes).flatMap(([key, value]) => (value === null ? ["--unset", key] : ["--set", `${key}=${value}`]));
        replace(result, table([{ title: "Setting", cell: (row) => row.name }, { title: "Now", class: "mono name", cell: (row) => row.now ?? "-" }, { title: "Then", class: "mono name", cell: (row) => row.then ?? "its default" }], answer.changes),
          el("div", { class: "bar" }, button("Change it", () => apply(changes), { class: "main" }), copyButton("Copy as command", command("topic", "alter", name, ...words))));
      } catch (error) {
        replace(result, failure(error));
      }
    }
    async function apply(changes) {
      try {
        await post(`/topics/${part(name)}/settings`, { changes });
        box.close();
        notice(`Changed ${Object.keys(changes).join(", ")} of ${name}.`);
        refresh();
      } catch (error) {
        replace(result, failure(error));
      }
    }
    document.body.append(box);
    box.showModal();
    input.focus();
  }

  function draw() {
    const text = search.value.toLowerCase();
    const rows = found.settings.filter((one) => one.name.includes(text));
    rows.sort((a, b) => b.is_set_here - a.is_set_here || a.name.localeCompare(b.name));
    replace(list, table([
      { title: "Setting", class: "mono", cell: (one) => one.name },
      { title: "Value", class: "mono name", cell: (one) => (one.is_sensitive ? el("span", { class: "dim" }, "secret") : one.value || el("span", { class: "dim" }, "empty")) },
      { title: "", class: "nowrap dim", cell: meaning },
      { title: "Source", class: "nowrap", cell: (one) => el("span", { class: one.is_set_here ? "tag good" : "tag" }, one.source) },
      { title: "Meaning", class: "dim", cell: (one) => one.documentation },
      { title: "", class: "act", cell: (one) => settings.readOnly !== "1" && !topic.window && !one.is_read_only && button("Change…", () => edit(one), { "aria-label": `Change ${one.name}` }) },
    ], rows));
  }

  const ofTopic = topic.window && el("div", { class: "note" }, "These are the settings of ", el("a", { href: `/topics/${part(topic.window.topic)}?tab=settings` }, topic.window.topic), ".");
  replace(root, card("Settings", el("span", { class: "bar" }, search, copyButton("Copy as command", command("topic", "describe", topic.window?.topic ?? name))), ofTopic, list));
  draw();
}
