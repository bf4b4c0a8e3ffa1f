// What the page shows is in its address; what a person prefers is in the browser's storage.

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

/** A command line that does what the page does. */
export function command(...words) {
  return ["tidelog", ...words, "-b", settings.bootstrap].map(shell).join(" ");
}
