// Records as they are appended: server-sent events, a buffer of 1,000, pause.
import { address, cursorOf, part } from "./api.js";
import { button, card, copyButton, el, empty, replace, table } from "./dom.js";
import { inspector } from "./inspector.js";
import { chosen, command, param, setParams } from "./state.js";
import { formatCount, formatTime, plural } from "./time.js";

const BUFFER = 1000;
const SHOWN = 200;
const AGAIN = 2000;

export async function show(root, { name, signal }) {
  let rows = [];
  let skipped = 0;
  let received = 0;
  let isPaused = false;
  let source = null;
  let again = 0;
  /** @type {?string} the cursor of what is shown, null before the stream has begun */
  let place = null;
  const status = el("span", { class: "dim", role: "status" }, "Connecting…");
  const body = el("div", {}, empty("Waiting for records."));
  const side = el("div");
  const layout = el("div");
  const filter = el("input", { class: "grow-1", type: "search", "aria-label": "Filter", "data-key": "/", value: param("f") ?? "", placeholder: "Filter", onchange: () => { setParams({ f: filter.value }); connect(place); } });
  const pause = button("Pause", () => {
    isPaused = !isPaused;
    pause.textContent = isPaused ? "Continue" : "Pause";
    pause.setAttribute("aria-pressed", String(isPaused));
    draw();
  }, { "aria-pressed": "false" });

  function draw() {
    replace(status, `${isPaused ? "Paused. " : ""}${plural(received, "record")} since the start${skipped ? `, ${formatCount(skipped)} of them too fast to show` : ""}.`);
    if (isPaused || !rows.length) return;
    replace(body, table([
      { title: "Time", class: "nowrap", cell: (row) => formatTime(row.time_ms) },
      { title: "Partition", right: true, cell: (row) => row.partition },
      { title: "Offset", right: true, cell: (row) => formatCount(row.offset) },
      { title: "Key", class: "cut key", cell: (row) => row.key ?? "null" },
      { title: "Value", class: "cut", cell: (row) => row.value ?? "null" },
    ], rows.slice(0, SHOWN), { open, label: "Records" }));
  }

  function open(row) {
    if (!isPaused) pause.click();
    layout.className = "split";
    inspector(side, { name, partition: row.partition, offset: row.offset, signal, close: () => { layout.className = ""; replace(side); } });
  }

  /** Follow from the ends, or from where the stream was interrupted. */
  function connect(cursor = null) {
    clearTimeout(again);
    source?.close();
    source = new EventSource(address(`/topics/${part(name)}/tail`, { f: param("f"), p: param("p"), cursor }));
    const connectAgain = () => {
      source.close();
      again = setTimeout(() => connect(place), AGAIN);
    };
    source.addEventListener("start", (event) => {
      const { partitions, left_out: left, cursor: begin } = JSON.parse(event.data);
      place = cursorOf(begin);
      replace(status, `Following ${plural(partitions, "partition")}${left ? `; ${left} more are left out` : ""}.`);
    });
    source.addEventListener("records", (event) => {
      const found = JSON.parse(event.data);
      place = cursorOf(found.cursor);
      received += found.rows.length + found.skipped;
      skipped += found.skipped;
      if (!found.rows.length) return;
      rows = [...found.rows.reverse(), ...rows].slice(0, BUFFER);
      draw();
    });
    source.addEventListener("failed", (event) => {
      const { error, again: isPassing } = JSON.parse(event.data);
      replace(status, el("span", { class: "bad", role: "alert" }, error, isPassing && " Connecting again…"));
      if (isPassing) connectAgain();
      else source.close();
    });
    source.addEventListener("gap", (event) => {
      const { passed, cursor: moved } = JSON.parse(event.data);
      place = cursorOf(moved);
      replace(status, el("span", { class: "warn" }, passed ? `${plural(passed, "offset")} were deleted before the tail had read them; it continues after them.` : "The log is shorter than before; the tail continues at its end."));
    });
    source.onerror = () => {
      replace(status, el("span", { class: "warn" }, "The stream was interrupted; connecting again…"));
      connectAgain();
    };
  }

  function rest() {
    clearTimeout(again);
    source?.close();
  }

  signal.addEventListener("abort", rest);
  // A browser has six connections to a server: a tab that is not seen leaves its own to the others.
  document.addEventListener("visibilitychange", () => (document.hidden ? rest() : connect(place)), { signal });
  replace(layout, card("Live tail", copyButton("Copy as command", () => command("consume", name, "--from", "latest", ...chosen())),
    el("div", { class: "bar" }, filter, pause, button("Clear", () => { rows = []; received = 0; skipped = 0; replace(body, empty("Waiting for records.")); draw(); }), status), body), side);
  replace(root, layout);
  if (!document.hidden) connect();
}
