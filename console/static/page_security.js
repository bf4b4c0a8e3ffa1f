// Users, access rules and quotas, as far as the brokers answer.
import { get } from "./api.js";
import { card, copyButton, el, empty, replace, table } from "./dom.js";
import { command } from "./state.js";

const section = (title, found, columns, none, words) => card(title, copyButton("Copy as command", command(...words)),
  found.error ? el("div", { class: "note" }, `Not available: ${found.error}`) : found.found.length ? table(columns, found.found) : empty(none));

export async function show(root, { signal }) {
  const found = await get("/security", {}, signal);
  const pairs = (object) => Object.entries(object).map(([name, value]) => `${name} ${value ?? "(default)"}`).join(", ");
  replace(root, el("div", { class: "head" }, el("h1", {}, "Users and rules")),
    section("Users", found.users, [
      { title: "User", cell: (one) => one.name }, { title: "Credentials (iterations)", cell: (one) => one.mechanisms.join(", ") },
    ], "There are no users with SCRAM passwords.", ["user", "list"]),
    section("Access rules", found.rules, [
      { title: "Who", class: "mono", cell: (one) => one.principal },
      { title: "", cell: (one) => el("span", { class: `tag ${one.permission === "deny" ? "bad" : "good"}` }, one.permission) },
      { title: "What", cell: (one) => one.operation },
      { title: "On", cell: (one) => one.resource }, { title: "Name", class: "mono", cell: (one) => one.name },
      { title: "Pattern", cell: (one) => one.pattern }, { title: "From", class: "mono", cell: (one) => one.host },
    ], "There are no access rules.", ["acl", "list"]),
    section("Quotas", found.quotas, [
      { title: "For", cell: (one) => pairs(one.entity) }, { title: "Limits", class: "mono", cell: (one) => pairs(one.limits) },
    ], "There are no quotas.", ["quota", "list"]),
    el("p", { class: "dim" }, "Users, rules and quotas are changed on the command line, where a mistake cannot lock out this page."));
}
