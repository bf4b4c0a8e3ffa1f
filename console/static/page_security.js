// Users, access rules and quotas, as far as the brokers answer, and changing them.
import { get, post } from "./api.js";
import { button, card, copyButton, el, empty, replace, table } from "./dom.js";
import { formDialog } from "./form.js";
import { command, settings } from "./state.js";

const MECHANISMS = ["SCRAM-SHA-512", "SCRAM-SHA-256"];
const OPERATIONS = ["read", "write", "create", "delete", "alter", "describe", "describe_configs", "alter_configs", "idempotent_write", "cluster_action", "create_tokens", "describe_tokens", "two_phase_commit", "all"];
const RESOURCES = ["topic", "group", "cluster", "transactional_id", "delegation_token", "user"];
const LIMITS = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"];
const same = (names) => names.map((name) => [name, name.replaceAll("_", " ")]);
const dashes = (name) => name.replaceAll("_", "-");
const LATER = 1000;
const canChange = settings.readOnly !== "1";

const section = (title, found, columns, none, words, tools) => card(title, el("span", { class: "bar" }, canChange && !found.error && tools, copyButton("Copy as command", command(...words))),
  found.error ? el("div", { class: "note" }, `Not available: ${found.error}`) : found.found.length ? table(columns, found.found, { label: title }) : empty(none));

const entityWords = (entity) => Object.entries(entity).flatMap(([kind, name]) => (name === null ? [`--default-${kind}`] : [`--${kind}`, name]));
const confirmed = (body, isConfirmed) => (isConfirmed ? { ...body, confirm: true } : body);

/** The options of `tidelog acl`, or null where it has none for such a rule. */
function ruleWords(rule) {
  const place = { topic: ["--topic", rule.name], group: ["--group", rule.name], cluster: ["--cluster"], transactional_id: ["--transactional-id", rule.name] }[rule.resource];
  if (!place || !rule.principal.startsWith("User:")) return null;
  const named = rule.pattern === "prefixed" && place.length > 1 ? [place[0], `${rule.name}*`] : place;
  return ["--user", rule.principal.slice(5), ...(rule.host === "*" ? [] : ["--host", rule.host]), ...named, "--op", dashes(rule.operation), ...(rule.permission === "deny" ? ["--deny"] : [])];
}

export async function show(root, { signal }) {
  const load = async () => draw(await get("/security", {}, signal));
  // Apache Kafka answers a change before its brokers have it.
  const reload = async () => {
    setTimeout(() => !signal.aborted && load().catch(() => {}), LATER);
    await load();
  };

  function addUser() {
    formDialog({
      title: "Add a user", act: "Add", done: "Added the user.",
      fields: [{ name: "name", label: "Name" }, { name: "password", label: "Password", kind: "password" }, { name: "mechanism", label: "Mechanism", options: MECHANISMS.map((one) => [one, one]) }],
      send: (values) => post("/security/users", values),
      command: (values) => command("user", "add", values.name, "--mechanism", values.mechanism), reload,
    });
  }

  function changePassword(name) {
    formDialog({
      title: `Password of ${name}`, text: "For every mechanism that the user has. Connections that are open stay.", act: "Change it", done: `Changed the password of ${name}.`,
      fields: [{ name: "password", label: "Password", kind: "password" }],
      send: (values, isConfirmed) => post("/security/users/password", confirmed({ name, ...values }, isConfirmed)), command: () => command("user", "passwd", name), reload,
    });
  }

  function removeUser(name) {
    formDialog({
      title: `Remove the user ${name}`, text: "All its passwords go; connections that are open stay. Its access rules stay, too.", act: "Remove", danger: true, done: `Removed ${name}.`, fields: [],
      send: (_, isConfirmed) => post("/security/users/remove", confirmed({ name }, isConfirmed)), command: () => command("user", "remove", name), reload,
    });
  }

  function addRule() {
    formDialog({
      title: "Add an access rule", act: "Add", done: "Added the rule.",
      fields: [{ name: "principal", label: "Who", value: "User:" }, { name: "permission", label: "May", options: [["allow", "is allowed"], ["deny", "is denied"]] },
        { name: "operation", label: "What", options: same(OPERATIONS) }, { name: "resource", label: "On", options: same(RESOURCES) },
        { name: "name", label: "Name", placeholder: "flights, * for all, kafka-cluster for the cluster" }, { name: "pattern", label: "Pattern", options: [["literal", "this very name"], ["prefixed", "names that begin so"]] },
        { name: "host", label: "From the address", value: "*" }],
      send: (values, isConfirmed) => post("/security/rules", confirmed(values, isConfirmed)), reload,
    });
  }

  function removeRule(rule) {
    const words = ruleWords(rule);
    formDialog({
      title: "Remove an access rule", text: `${rule.permission} ${rule.operation} on ${rule.pattern} ${rule.resource} ${rule.name} to ${rule.principal} from ${rule.host}`, act: "Remove", danger: true, done: "Removed the rule.", fields: [],
      send: (_, isConfirmed) => post("/security/rules/remove", confirmed(rule, isConfirmed)), command: words && (() => command("acl", "remove", ...words)), reload,
    });
  }

  function setQuota() {
    formDialog({
      title: "Set a quota", act: "Set", done: "Set the quota.",
      fields: [{ name: "kind", label: "For the", options: same(["user", "client-id", "ip"]) }, { name: "who", label: "Name", placeholder: "empty: all without limits of their own" },
        { name: "limit", label: "Limit", options: same(LIMITS) }, { name: "value", label: "Value", placeholder: "bytes a second, percent, or changes a second" }],
      send: (values) => post("/security/quotas", { entity: { [values.kind]: values.who || null }, limits: { [values.limit]: Number(values.value || NaN) } }),
      command: (values) => command("quota", "set", ...entityWords({ [values.kind]: values.who || null }), `--${dashes(values.limit)}`, values.value), reload,
    });
  }

  function removeQuota(one) {
    formDialog({
      title: "Remove a quota", text: `${pairs(one.entity)}: ${pairs(one.limits)}`, act: "Remove", danger: true, done: "Removed the quota.", fields: [],
      send: () => post("/security/quotas", { entity: one.entity, limits: Object.fromEntries(Object.keys(one.limits).map((key) => [key, null])) }), command: () => command("quota", "remove", ...entityWords(one.entity)), reload,
    });
  }

  const pairs = (object) => Object.entries(object).map(([name, value]) => `${name} ${value ?? "(default)"}`).join(", ");
  const draw = (found) => replace(root, el("div", { class: "head" }, el("h1", {}, "Users and rules")),
    section("Users", found.users, [
      { title: "User", class: "name", cell: (one) => one.name }, { title: "Credentials (iterations)", cell: (one) => one.mechanisms.join(", ") },
      { title: "Change", class: "act", right: true, cell: (one) => canChange && [button("Password…", () => changePassword(one.name), { "aria-label": `Change the password of ${one.name}` }), " ", button("Remove…", () => removeUser(one.name), { "aria-label": `Remove ${one.name}` })] },
    ], "There are no users with SCRAM passwords.", ["user", "list"], button("Add a user…", addUser)),
    section("Access rules", found.rules, [
      { title: "Who", class: "mono name", cell: (one) => one.principal },
      { title: "May", cell: (one) => el("span", { class: `tag ${one.permission === "deny" ? "bad" : "good"}` }, one.permission) },
      { title: "What", cell: (one) => one.operation },
      { title: "On", cell: (one) => one.resource }, { title: "Name", class: "mono name", cell: (one) => one.name },
      { title: "Pattern", cell: (one) => one.pattern }, { title: "From", class: "mono name", cell: (one) => one.host },
      { title: "Change", class: "act", right: true, cell: (one) => canChange && button("Remove…", () => removeRule(one), { "aria-label": `Remove the rule of ${one.principal} to ${one.operation} ${one.resource} ${one.name}` }) },
    ], "There are no access rules.", ["acl", "list"], button("Add a rule…", addRule)),
    section("Quotas", found.quotas, [
      { title: "For", class: "name", cell: (one) => pairs(one.entity) }, { title: "Limits", class: "mono name", cell: (one) => pairs(one.limits) },
      { title: "Change", class: "act", right: true, cell: (one) => canChange && button("Remove…", () => removeQuota(one), { "aria-label": `Remove the quota of ${pairs(one.entity)}` }) },
    ], "There are no quotas.", ["quota", "list"], button("Set a quota…", setQuota)));
  await load();
}
