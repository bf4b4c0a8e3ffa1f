// One topic: its numbers, and the tabs.
import { get, part } from "./api.js";
import { el, replace, skeleton } from "./dom.js";
import { param, settings } from "./state.js";
import { formatAge, formatSize, formatTime, plural } from "./time.js";

/** @type {[string, string, () => Promise<{show: Function}>][]} */
const TABS = [
  ["", "Timeline", () => import("./tab_timeline.js")],
  ["tail", "Live tail", () => import("./tab_tail.js")],
  ["segments", "Segments and retention", () => import("./tab_segments.js")],
  ["skew", "Skew", () => import("./tab_skew.js")],
  ["partitions", "Partitions", () => import("./tab_partitions.js")],
  ["settings", "Settings", () => import("./tab_settings.js")],
  ["produce", "Produce", () => import("./tab_produce.js")],
];

export async function show(root, { words: [name], signal, refresh }) {
  const topic = await get(`/topics/${part(name)}`, {}, signal);
  const tab = param("tab") ?? "";
  // A window has no segments, no producers and no settings of its own.
  const hidden = topic.window ? ["segments", "skew", "produce"] : settings.readOnly === "1" ? ["produce"] : [];
  const shown = TABS.filter(([key]) => !hidden.includes(key));
  const chosen = shown.find(([key]) => key === tab) ?? TABS[0];
  const newest = Math.max(-1, ...topic.partitions.map((one) => one.newest_ms ?? -1));
  const offsets = topic.partitions.reduce((sum, one) => sum + one.end - one.start, 0);
  const body = el("div", {}, skeleton(260));
  const zone = param("zone");
  const link = (key) => {
    const query = new URLSearchParams({ ...(key ? { tab: key } : {}), ...(zone ? { zone } : {}) }).toString();
    return `/topics/${part(name)}${query ? `?${query}` : ""}`;
  };
  replace(root,
    el("div", { class: "head" }, el("h1", {}, name), topic.is_internal && el("span", { class: "tag" }, "internal"), topic.window && windowOf(topic.window), el("span", { class: "grow" }),
      el("span", { class: "dim" }, [plural(topic.count, "partition"), plural(offsets, "offset"), topic.bytes !== null && formatSize(topic.bytes),
        newest >= 0 && `newest ${formatAge(newest, topic.now_ms)}`].filter(Boolean).join(" · "))),
    el("nav", { class: "tabs", "aria-label": "About the topic" }, shown.map(([key, text]) =>
      el("a", { href: link(key), "aria-current": key === chosen[0] ? "page" : null, title: key === "" ? `newest record ${formatTime(newest)}` : null }, text))),
    body);
  const module = await chosen[2]();
  await module.show(body, { topic, name, signal, refresh });
}

/** Which records of which topic a window shows. */
function windowOf({ topic, start_ms: start, end_ms: end }) {
  return el("span", { class: "dim" }, "the records of ", el("a", { href: `/topics/${part(topic)}` }, topic), ` from ${formatTime(start)} ${end === null ? "on" : `to ${formatTime(end)}`}, to read only`);
}
