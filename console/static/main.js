// The frame of every page: navigation, zone, theme, keys, and which module draws an address.
import { groupName } from "./api.js";
import { button, choice, el, failure, notice, replace, skeleton } from "./dom.js";
import { initKeys } from "./keys.js";
import { navigate, param, prefer, preference, setParams, settings } from "./state.js";

/** @type {[RegExp, string, () => Promise<{show: Function}>][]} */
const ROUTES = [
  [/^\/$/, "overview", () => import("./page_overview.js")],
  [/^\/topics$/, "topics", () => import("./page_topics.js")],
  [/^\/topics\/([^/]+)$/, "topics", () => import("./page_topic.js")],
  [/^\/groups$/, "groups", () => import("./page_groups.js")],
  [/^\/groups\/(.+)$/, "groups", () => import("./page_group.js")],
  [/^\/security$/, "security", () => import("./page_security.js")],
  [/^\/clock$/, "clock", () => import("./page_clock.js")],
];
const NAVIGATION = [["/", "overview", "Overview"], ["/topics", "topics", "Topics"], ["/groups", "groups", "Groups"], ["/security", "security", "Users and rules"], ["/clock", "clock", "Clock"]];

let leaving = new AbortController();

function theme() {
  const chosen = preference("theme");
  if (chosen === "dark" || chosen === "light") return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

function applyTheme() {
  document.documentElement.dataset.theme = theme();
  document.dispatchEvent(new Event("repaint"));
}

function drawTop(current) {
  const zone = param("zone") || preference("zone") || "utc";
  const local = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const zones = [["utc", "UTC"], ["local", `Local (${local})`]];
  if (!["utc", "local"].includes(zone)) zones.push([zone, zone]);
  zones.push(["?", "Other zone…"]);
  const pick = (value) => {
    const name = value === "?" ? prompt("A zone, such as Asia/Tokyo:", local) : value;
    try {
      if (!["utc", "local"].includes(name)) Intl.DateTimeFormat("en", { timeZone: name || "?" });
      prefer("zone", name);
      setParams({ zone: name });
    } catch {
      if (name) notice(`This browser knows no zone ${name}: write one such as Asia/Tokyo.`);
    }
    show();
  };
  replace(document.getElementById("top"),
    el("a", { class: "brand", href: "/" }, el("img", { src: "/static/icon.svg", alt: "" }), "Tidelog"),
    el("nav", { "aria-label": "Pages" }, NAVIGATION.map(([href, name, text]) =>
      el("a", { href, "aria-current": name === current ? "page" : null }, text))),
    settings.readOnly === "1" && el("span", { class: "tag" }, "read only"),
    el("span", { class: "dim mono" }, settings.bootstrap),
    choice(zones, zone, pick, "Time zone"),
    button(theme() === "dark" ? "Light" : "Dark", () => {
      prefer("theme", theme() === "dark" ? "light" : "dark");
      applyTheme();
      drawTop(current);
    }, { "aria-label": "Switch between light and dark" }),
    button("?", () => document.dispatchEvent(new Event("help")), { "aria-label": "Keys" }));
}

async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const root = document.getElementById("page");
  const found = ROUTES.find(([pattern]) => pattern.test(location.pathname));
  drawTop(found?.[1]);
  replace(root, skeleton(300));
  if (!found) {
    document.title = "No such page · Tidelog console";
    replace(root, el("h1", {}, "There is no such page"), el("p", {}, el("a", { href: "/" }, "Go to the overview")));
    return;
  }
  try {
    const decode = found[1] === "groups" ? (text) => groupName(decodeURIComponent(text)) : decodeURIComponent;
    const words = found[0].exec(location.pathname).slice(1).map(decode);
    document.title = `${words[0] ?? found[1]} · Tidelog console`;
    const page = await found[2]();
    await page.show(root, { words, signal, refresh: show });
  } catch (error) {
    if (signal.aborted || error.name === "AbortError") return;
    const near = (error.near ?? []).map((name) => el("a", { href: `/topics/${encodeURIComponent(name)}` }, ` ${name} `));
    replace(root, failure(error, show), near.length ? el("p", {}, "Did you mean:", near) : null);
  }
}

document.addEventListener("click", (event) => {
  const link = event.target instanceof Element ? /** @type {?HTMLAnchorElement} */ (event.target.closest("a[href]")) : null;
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || link.hasAttribute("download") || link.target || link.classList.contains("skip")) return;
  event.preventDefault();
  navigate(url.pathname + url.search);
});
document.addEventListener("navigate", () => {
  show();
  document.getElementById("page").focus({ preventScroll: true });
  scrollTo(0, 0);
});
addEventListener("popstate", show);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
applyTheme();
initKeys();
show();
