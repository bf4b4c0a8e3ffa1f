// What the page shows is in its address; what a person prefers is in the browser's storage.

/** So many partitions an address may choose: console/web/questions.py. */
const PARTITIONS_MAX = 1000;

export const settings = document.documentElement.dataset;

export function params() {
  return new URLSearchParams(location.search);
}

export function param(name) {
  return params().get(name);
}

/** Change parameters of the address; empty ones leave it. Without `isPush` no entry of the history. */
export function setParams(changes, isPush = false) {
  const query = params();
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  const url = text ? `${location.pathname}?${text}` : location.pathname;
  if (isPush) history.pushState(null, "", url);
  else history.replaceState(null, "", url);
}

export function navigate(url) {
  history.pushState(null, "", url);
  document.dispatchEvent(new Event("navigate"));
}

export function preference(name) {
  try {
    return localStorage.getItem(`tidelog.${name}`);
  } catch {
    return null;
  }
}

export function prefer(name, value) {
  try {
    localStorage.setItem(`tidelog.${name}`, value);
  } catch {
    // A browser that keeps nothing still shows the page.
  }
}

/** A word for a shell. */
export function shell(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${String(word).replaceAll("'", "'\\''")}'`;
}

/** The options of `tidelog consume` for the filter and the partitions of the address. */
export function chosen() {
  const numbers = (param("p") ?? "").split(",").flatMap((part) => {
    const [, low, high] = /^(\d+)(?:-(\d+))?$/.exec(part.trim()) ?? [];
    const count = low === undefined ? 0 : Number(high ?? low) - Number(low) + 1;
    return Array.from({ length: Math.max(0, Math.min(PARTITIONS_MAX, count)) }, (_, at) => Number(low) + at);
  });
  const filter = (param("f") ?? "").trim();
  return [...numbers.flatMap((number) => ["--partition", String(number)]), ...(filter ? ["--where", filter] : [])];
}

/** A command line that does what the page does. */
export function command(...words) {
  return ["tidelog", ...words, "-b", settings.bootstrap].map(shell).join(" ");
}

/** The sentence for an empty list, of which the console's user sees those with DESCRIBE alone. */
export function noneToSee(what) {
  return `There are no ${what} yet${settings.secured === "1" ? ", or none that the console's user may see (DESCRIBE)" : ""}`;
}
