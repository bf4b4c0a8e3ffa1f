// Records of a window copied to another topic: counted first, then a page at a time, until Stop.
import { cursorOf, part, post } from "./api.js";
import { button, choice, copyButton, el, failure, labelled, replace } from "./dom.js";
import { chosen, command } from "./state.js";
import { formatCount, isoTime, plural } from "./time.js";

const PAGE = 1000;
const TIMES = [["keep", "the record's own"], ["renew", "the present"]];

/** @param {{name: string, question: () => any}} options */
export function copyDialog({ name, question }) {
  const target = el("input", { "aria-label": "To the topic", size: 30 });
  const limit = el("input", { "aria-label": "At most", value: "10000", size: 9, inputmode: "numeric" });
  const result = el("div", { "aria-live": "polite" });
  let times = "keep";
  let isStopped = false;
  const box = el("dialog", { "aria-label": "Copy to a topic", onclose: () => { isStopped = true; box.remove(); } });

  function shellCommand() {
    const { from, to } = question();
    const bounds = [["--from", from || "earliest"], ["--until", to]].filter(([, value]) => value)
      .flatMap(([key, value]) => [key, typeof value === "number" ? isoTime(value) : value]);
    return `${command("consume", name, ...bounds, ...chosen(), "--max", limit.value, "--json", "--exit-at-end")} | ${command("produce", target.value || "TOPIC", "--format", "json", ...(times === "keep" ? [] : ["--timestamp", "now"]))}`;
  }

  async function run(isDry) {
    const most = Number(limit.value);
    if (!target.value.trim() || !(most >= 1)) {
      replace(result, failure({ message: target.value.trim() ? `At most ${limit.value}: write a number from 1 on.` : "Name the topic that gets the copies; it has to exist." }));
      return;
    }
    let copied = 0;
    let cursor = "";
    isStopped = false;
    const progress = el("p", { role: "status" });
    replace(result, progress, button("Stop", () => { isStopped = true; }));
    const words = isDry ? "counted" : "copied";
    try {
      do {
        const page = await post(`/topics/${part(name)}/copy`, { target: target.value.trim(), keep_time: times === "keep", dry_run: isDry, limit: Math.min(PAGE, most - copied), cursor }, question());
        copied += page.copied;
        cursor = cursorOf(page.cursor);
        replace(progress, `${plural(copied, "record")} ${words}; ${plural(page.offsets_left, "offset")} left to search…`);
        if (page.partitions_left_out) throw new Error(`${plural(page.partitions_left_out, "partition")} would be left out: choose at most 64 partitions on the timeline first.`);
        if (page.error) throw new Error(`${plural(copied, "record")} ${words}, then the brokers refused ${formatCount(page.failed)}: ${page.error}`);
      } while (cursor && copied < most && !isStopped);
      const end = isStopped ? "Stopped: " : "";
      replace(result, el("div", { class: "note" }, `${end}${plural(copied, "record")} ${isDry ? "would be copied" : "copied"}${cursor && !isStopped ? "; there are more than the limit" : ""}. `,
        !isDry && el("a", { href: `/topics/${part(target.value.trim())}` }, `Show ${target.value.trim()}`)));
    } catch (error) {
      replace(result, failure(error));
    }
  }

  replace(box, el("h2", {}, `Copy records of ${name} to a topic`),
    el("p", { class: "dim" }, "All records of the window and filter that the list shows. Keys, values and headers stay as they are; the key chooses the partition."),
    el("div", { class: "bar" }, labelled("To the topic", target)),
    el("div", { class: "bar" }, labelled("Time of the copies", choice(TIMES, times, (value) => { times = value; }, "Time of the copies")), labelled("At most", limit)),
    result,
    el("div", { class: "bar" }, button("Count", () => run(true)), button("Copy", () => run(false), { class: "main" }), copyButton("Copy as command", shellCommand), el("span", { class: "grow" }), button("Close", () => box.close())));
  document.body.append(box);
  box.showModal();
  target.focus();
}
