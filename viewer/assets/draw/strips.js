// Strips under the rows, on the same time axis: what the hosts used. The line is the busiest host, the area their mean.

import { laneName } from "../data/names.js";
import { exactTime } from "../data/time.js";
import { trace } from "../data/trace.js";
import { loadRoom, STRIP_PX, stripsRoom } from "./footer.js";
import { font, palette } from "./palette.js";

const GAP_PX = 6;
const COLOURS = { CPU: "--part-3", disk: "--part-2", network: "--part-1" };
/** @type {[number, string][]} */
const RATES = [[1e6, "MB/s"], [1e3, "kB/s"], [1, "B/s"]];
/** @param {View} view */
const firstTop = (view) => view.height - stripsRoom() + loadRoom();

const inUnits = (value, unit) => {
  if (unit === "%") return `${Math.round(value)} %`;
  const [size, name] = RATES.find(([least]) => value >= least) || RATES[RATES.length - 1];
  return `${(value / size).toFixed(value >= 10 * size ? 0 : 1)} ${name}`;
};

/**
 * The bins in sight as [left, right, bin]; a bin without a measurement belongs to the next one that has some.
 * @param {View} view @param {any} usage
 */
function bars(view, usage, peak) {
  const found = [], width = (usage.to - usage.from) / peak.length, most = 3e9;
  let begin = null;
  for (let bin = 0; bin < peak.length; bin++) {
    const from = usage.from + bin * width;
    if (begin === null || from - begin > most) begin = from;
    if (Number.isNaN(peak[bin])) continue;
    const left = view.x(begin), right = view.x(from + width);
    begin = from + width;
    if (right >= 0 && left <= view.width) found.push([left, right, bin]);
  }
  return found;
}

/** @param {CanvasContext} context @param {View} view @param {any} usage */
export function drawStrips(context, view, usage) {
  if (!trace.meta.strips.length) return;
  const style = getComputedStyle(document.documentElement);
  context.save();
  trace.meta.strips.forEach((name, at) => {
    const top = firstTop(view) + at * STRIP_PX, bottom = top + STRIP_PX - GAP_PX;
    context.fillStyle = palette.paper;
    context.globalAlpha = 1;
    context.fillRect(0, top - GAP_PX / 2, view.width, STRIP_PX);
    context.fillStyle = context.strokeStyle = style.getPropertyValue(COLOURS[name]).trim();
    if (usage) drawStrip(context, view, usage, name, top, bottom);
    context.globalAlpha = 1;
    context.fillStyle = palette.grid;
    context.fillRect(0, bottom, view.width, 1);
  });
  context.restore();
}

/**
 * @param {CanvasContext} context @param {View} view @param {any} usage @param {string} name @param {number} top
 * @param {number} bottom
 */
function drawStrip(context, view, usage, name, top, bottom) {
  const number = indexOf(usage, name);
  if (number < 0) return;
  const most = usage[`highest${number}`][0] || 1, peak = usage[`peak${number}`], mean = usage[`mean${number}`];
  const y = (value) => bottom - (value / most) * (bottom - top);
  const shown = bars(view, usage, peak);
  context.globalAlpha = 0.35;
  for (const [left, right, bin] of shown) context.fillRect(left, y(mean[bin]), right - left, bottom - y(mean[bin]));
  context.globalAlpha = 1;
  context.lineWidth = 1.3;
  context.beginPath();
  for (const [left, right, bin] of shown) {
    context.moveTo(left, y(peak[bin]));
    context.lineTo(right, y(peak[bin]));
  }
  context.stroke();
  context.font = font(11.5, "600");
  context.fillStyle = context.strokeStyle = palette.ink;
  context.lineWidth = 3;
  context.strokeStyle = palette.paper;
  const text = `${name} up to ${inUnits(most, usage[`unit${number}`])}`;
  context.strokeText(text, 6, top + 10);
  context.fillText(text, 6, top + 10);
}

/** @param {any} usage @param {string} name */
const indexOf = (usage, name) => Array.from({ length: usage.strips }, (_, at) => usage[`name${at}`]).indexOf(name);

/**
 * What to show under the cursor: the busiest host then, and the mean; null elsewhere.
 * @param {View} view @param {any} usage @param {number} x @param {number} y
 */
export function stripAt(view, usage, x, y) {
  const at = Math.floor((y - firstTop(view)) / STRIP_PX);
  if (!usage || at < 0 || at >= trace.meta.strips.length) return null;
  const name = trace.meta.strips[at], number = indexOf(usage, name), unit = usage[`unit${number}`];
  const found = bars(view, usage, usage[`peak${number}`]).find(([left, right]) => left <= x && x <= right);
  if (!found) return { title: name, lines: ["not measured here"] };
  const bin = found[2], host = laneName(usage[`busiest${number}`][bin]);
  return {
    title: `${name}: ${host} ${inUnits(usage[`peak${number}`][bin], unit)}`,
    lines: [`mean of the hosts ${inUnits(usage[`mean${number}`][bin], unit)}`, `until ${exactTime(view.time(found[1]))}`],
  };
}
