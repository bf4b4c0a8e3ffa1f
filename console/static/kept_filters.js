// Filters that a person keeps under a name, in the browser's storage: those of the topic first.
import { button, choice, el, notice, replace } from "./dom.js";
import { formDialog } from "./form.js";
import { prefer, preference } from "./state.js";

const KEPT_MAX = 100;

/** @returns {Array<{name: string, filter: string, topic: string}>} */
function kept() {
  try {
    const found = JSON.parse(preference("filters") ?? "[]");
    return Array.isArray(found) ? found.filter((one) => [one?.name, one?.filter, one?.topic].every((text) => typeof text === "string")) : [];
  } catch {
    return [];
  }
}

const store = (filters) => prefer("filters", JSON.stringify(filters));

/** @param {{topic: string, current: () => string, use: (filter: string) => void}} options */
export function keptFilters({ topic, current, use }) {
  const root = el("span", { class: "bar" });

  function keep() {
    formDialog({
      title: "Keep this filter", text: `${current()} is kept in this browser. The address of the page holds the filter too, for others.`,
      fields: [{ name: "name", label: "Name", value: current().slice(0, 60) }], act: "Keep", done: "Kept the filter.", reload: draw,
      send: async ({ name }) => {
        if (!name.trim()) throw new Error("The filter needs a name");
        const others = kept().filter((one) => one.topic !== topic || one.name !== name.trim());
        if (others.length >= KEPT_MAX) throw new Error(`This browser keeps ${KEPT_MAX} filters: forget one first`);
        store([...others, { name: name.trim(), filter: current(), topic }]);
      },
    });
  }

  function forget(one) {
    store(kept().filter((other) => other.topic !== one.topic || other.name !== one.name));
    notice(`Forgot the filter ${one.name}.`);
    draw();
  }

  function draw() {
    const filters = kept();
    const own = filters.filter((one) => one.topic === topic);
    const listed = [...own, ...filters.filter((one) => one.topic !== topic)];
    const at = listed.findIndex((one) => one.filter === current());
    const options = [["", "Kept filters"], ...listed.map((one, index) => [String(index), one.topic === topic ? one.name : `${one.name} (${one.topic})`])];
    replace(root,
      listed.length > 0 && choice(options, at < 0 ? "" : String(at), (value) => use(value === "" ? "" : listed[Number(value)].filter), "Kept filters"),
      at < 0 && current() && button("Keep…", keep, { title: "Keep this filter under a name" }),
      at >= 0 && button("Forget", () => forget(listed[at]), { title: `Forget the kept filter ${listed[at].name}` }));
  }

  root.draw = draw;
  draw();
  return root;
}
