// Lines at times across a chart, each with its word; words that would overlap stand one below the other.
import { colour } from "./dom.js";

const ROW = 13;
const GAP = 4;

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Array<[number, string, string]>} rules where each line is, its word, the name of its colour
 * @param {{right: number, top: number, floor: number, taken?: Array<{row: number, start: number, end: number}>}} place
 *   the right end of the chart, the top and the end of the lines, and where words stand already
 */
export function drawRules(context, rules, { right, top, floor, taken = [] }) {
  for (const [x, text, kind] of rules) {
    context.strokeStyle = context.fillStyle = colour(kind);
    context.setLineDash([4, 3]);
    context.beginPath();
    context.moveTo(x, top - 6);
    context.lineTo(x, floor);
    context.stroke();
    context.setLineDash([]);
    const { width } = context.measureText(text);
    const start = x + GAP + width > right ? x - GAP - width : x + GAP;
    const end = start + width;
    let row = 0;
    while (taken.some((one) => one.row === row && start < one.end + GAP && one.start < end + GAP)) row++;
    taken.push({ row, start, end });
    context.textAlign = "left";
    context.fillText(text, start, top - 8 + row * ROW);
  }
}
