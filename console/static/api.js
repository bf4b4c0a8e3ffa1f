// Questions to the console's server, and what they refuse.
import { zoneName } from "./time.js";

export class Refused extends Error {
  constructor(message, status, document = {}) {
    super(message);
    this.status = status;
    this.requestId = document.request_id;
    this.near = document.near;
  }
}

export function address(path, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ tz: zoneName(), ...params })) {
    if (value === null || value === undefined || value === "") continue;
    for (const one of [value].flat()) query.append(name, one);
  }
  return `/api${path}?${query}`;
}

async function answerOf(request) {
  let response;
  try {
    response = await request;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The console does not answer: is its process still running?", 0);
  }
  if (response.ok) return response;
  let document = {};
  try {
    document = await response.json();
  } catch {
    // A refusal without a document has its status alone.
  }
  throw new Refused(document.error ?? `Status ${response.status}`, response.status, document);
}

async function read(request) {
  const response = await answerOf(request);
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The console's answer is not JSON.", response.status);
  }
}

export function get(path, params, signal) {
  return read(fetch(address(path, params), { signal }));
}

/** An answer that is no document. */
export async function getBytes(path, params, signal) {
  const response = await answerOf(fetch(address(path, params), { signal }));
  return new Uint8Array(await response.arrayBuffer());
}

export function post(path, body, params = {}) {
  return read(fetch(address(path, params), {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Tidelog-Console": "1" },
    body: JSON.stringify(body),
  }));
}

/** A segment of a path. */
export const part = encodeURIComponent;

/** The address of a group, for pages and questions; a strange name in hexadecimal digits: console/web/names.py. */
export function groupPath(name) {
  if (!/^=|^\.{0,2}$|[\x00-\x1f\x7f]/.test(name)) return `/groups/${part(name)}`;
  return `/groups/=${Array.from(new TextEncoder().encode(name), (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** The name that the last part of such an address stands for. */
export function groupName(text) {
  const digits = /^=((?:[0-9a-f]{2})*)$/i.exec(text);
  return digits ? new TextDecoder().decode(Uint8Array.from(digits[1].match(/../g) ?? [], (pair) => parseInt(pair, 16))) : text;
}

/** Offsets by partition as the questions take them. */
export const cursorOf = (offsets) => Object.entries(offsets ?? {}).map(([number, offset]) => `${number}:${offset}`).join(",");
