// What else happened: on the rows, findings of the report as diamonds with their length, injected faults as bands, and
// hatched where a host was not capturing, dotted where it captured in part; under them the steps of the load.

import { CLASS, NO_LANE } from "../data/constants.js";
import { NO_ROW, rowOfLane } from "../data/rows.js";
import { duration, exactTime } from "../data/time.js";
import { trace } from "../data/trace.js";
import { LOAD_PX, loadRoom, stripsRoom } from "./footer.js";
import { font, palette } from "./palette.js";

const SERIOUS = ["warning", "error"];
const REACH_PX = 7, HATCH_PX = 9, NEAR_ROW_PX = 16;

/** @param {View} view @param {Mark} mark */
const place = (view, mark) => {
  const row = mark.lane === NO_LANE ? NO_ROW : rowOfLane(mark.lane);
  if (mark.lane !== NO_LANE && (row === NO_ROW || !view.shows(row))) return null;
  const left = view.x(mark.from), right = view.x(mark.to);
  if (right < -REACH_PX || left > view.width + REACH_PX) return null;
  return { mark, row, left: Math.max(left, -REACH_PX), right: Math.min(right, view.width + REACH_PX) };
};
/** @param {View} view */
const inSight = (view, marks) => marks.map((mark) => place(view, mark)).filter(Boolean);

/**
 * Behind the arrows: a fault tints its host's row from its beginning to its end.
 * @param {CanvasContext} context @param {View} view
 */
export function drawFaults(context, view) {
  context.save();
  for (const { mark, row, left, right } of inSight(view, trace.meta.faults)) {
    const [top, bottom] = band(view, row);
    context.globalAlpha = 0.13;
    context.fillStyle = context.strokeStyle = palette.classes[CLASS.RETRANSMISSION];
    context.fillRect(left, top, Math.max(2, right - left), bottom - top);
    context.globalAlpha = 1;
    context.setLineDash([3, 3]);
    context.strokeRect(left, top, Math.max(2, right - left), bottom - top);
    context.setLineDash([]);
    text(context, view, `fault: ${mark.text}`, left, right, bottom - 5);
  }
  context.restore();
}

const IN_PART = "in part", DOT_PX = 5;

/**
 * Behind everything: where a host was not capturing its row is hatched, where it captured in part it is dotted.
 * @param {CanvasContext} context @param {View} view
 */
export function drawUncovered(context, view) {
  const shown = inSight(view, trace.meta.uncovered || []);
  if (!shown.length) return;
  context.save();
  context.strokeStyle = palette.faint;
  context.lineWidth = 1;
  for (const { mark, row, left, right } of shown) {
    const [top, bottom] = band(view, row), from = Math.max(0, left), to = Math.min(view.width, right);
    context.save();
    context.beginPath();
    context.rect(from, top, Math.max(1, to - from), bottom - top);
    context.clip();
    context.globalAlpha = 0.09;
    context.fillStyle = palette.faint;
    context.fillRect(from, top, to - from, bottom - top);
    context.globalAlpha = mark.kind === IN_PART ? 0.7 : 0.4;
    context.beginPath();
    (mark.kind === IN_PART ? dots : hatch)(context, { left, from, to, top, bottom });
    context.stroke();
    context.restore();
  }
  context.restore();
}

function hatch(context, { left, from, to, top, bottom }) {
  const height = bottom - top, shift = ((from - left) % HATCH_PX) + height;
  for (let x = from - shift; x < to; x += HATCH_PX) {
    context.moveTo(x, bottom);
    context.lineTo(x + height, top);
  }
}

function dots(context, { left, from, to, top, bottom }) {
  const shift = (from - left) % (2 * DOT_PX);
  context.setLineDash([1, 2 * DOT_PX - 1]);
  for (let y = top + DOT_PX / 2; y < bottom; y += DOT_PX) {
    context.moveTo(from - shift, y);
    context.lineTo(to, y);
  }
}

/**
 * What to show near the hatch's row; elsewhere the packets that pass over it are shown.
 * @param {View} view @param {number} x @param {number} y
 */
export function uncoveredAt(view, x, y) {
  const near = Math.min(NEAR_ROW_PX, 0.46 * view.gap);
  const found = inSight(view, trace.meta.uncovered || []).find(
    ({ row, left, right }) => left <= x && x <= right && Math.abs(y - view.y(row)) <= near,
  );
  if (!found) return null;
  const { text: title, from, to } = found.mark;
  const meaning = found.mark.kind === IN_PART
    ? "what is not seen here may have been there all the same"
    : "packets of others are seen at one end here; none is lost";
  return { title, lines: [`from ${exactTime(from)}, for ${duration(to - from)}`, meaning] };
}

/** @param {CanvasContext} context @param {View} view @param {number} left @param {number} right @param {number} y */
function text(context, view, words, left, right, y) {
  const begin = Math.max(left, 0) + 5;
  context.font = font(11.5, "600");
  if (context.measureText(words).width > Math.min(right, view.width) - begin && right - left > 4) return;
  context.fillStyle = palette.ink;
  context.fillText(words, begin, y);
}

/** Under the rows: a band for each step of the load, whose bounds go up through all of them. @param {View} view */
const loadTop = (view) => view.height - stripsRoom();

/** @param {CanvasContext} context @param {View} view */
export function drawLoad(context, view) {
  if (!loadRoom()) return;
  const top = loadTop(view), bottom = top + LOAD_PX - 4;
  context.save();
  context.fillStyle = palette.paper;
  context.fillRect(0, top - 2, view.width, LOAD_PX);
  context.strokeStyle = context.fillStyle = palette.accent;
  for (const { mark, left, right } of inSight(view, trace.meta.load)) {
    context.globalAlpha = 0.16;
    context.fillRect(left, top, Math.max(2, right - left), bottom - top);
    context.globalAlpha = 0.7;
    context.beginPath();
    for (const x of [left, right]) {
      context.moveTo(x, view.ruler);
      context.lineTo(x, bottom);
    }
    context.setLineDash([1, 4]);
    context.stroke();
    context.globalAlpha = 1;
    text(context, view, `load: ${mark.text}`, left, right, bottom - 5);
    context.fillStyle = palette.accent;
  }
  context.restore();
}

/** In front: where a finding begins, and how long it lasts. @param {CanvasContext} context @param {View} view */
export function drawFindings(context, view) {
  context.save();
  for (const { mark, row, left, right } of inSight(view, trace.meta.findings)) {
    const y = findingY(view, row), serious = SERIOUS.includes(mark.kind);
    context.fillStyle = context.strokeStyle = serious ? palette.classes[CLASS.LOST] : palette.faint;
    context.globalAlpha = 0.8;
    context.fillRect(left, y - 1, Math.max(1, right - left), 2);
    context.globalAlpha = 1;
    if (view.x(mark.from) < -REACH_PX) continue;
    context.beginPath();
    for (const [dx, dy] of [[0, -5], [5, 0], [0, 5], [-5, 0]]) context.lineTo(left + dx, y + dy);
    context.closePath();
    if (serious) context.fill();
    else context.stroke();
  }
  context.restore();
}

/** @param {View} view @param {RowNumber} row */
const findingY = (view, row) => (row < 0 ? view.ruler + 14 : view.y(row) - Math.min(16, 0.3 * view.gap));

/** @param {Mark} mark */
const tipOf = (mark) => ({ title: `${mark.kind}: ${mark.text}`, lines: [`${exactTime(mark.from)}, for ${duration(mark.to - mark.from)}`] });

/** What to show at a point; null where nothing is marked. @param {View} view @param {number} x @param {number} y */
export function markAt(view, x, y) {
  const found = inSight(view, trace.meta.findings).find(
    ({ row, left }) => Math.abs(x - left) <= REACH_PX && Math.abs(y - findingY(view, row)) <= REACH_PX,
  );
  return found ? tipOf(found.mark) : loadAt(view, x, y);
}

/** @param {View} view @param {number} x @param {number} y */
function loadAt(view, x, y) {
  if (y < loadTop(view) || y > loadTop(view) + loadRoom()) return null;
  const found = inSight(view, trace.meta.load).find(({ left, right }) => left <= x && x <= right);
  return found ? tipOf(found.mark) : null;
}

/**
 * A fault, at the lower edge of its band: elsewhere what is in front of it is shown.
 * @param {View} view @param {number} x @param {number} y
 */
export function faultAt(view, x, y) {
  const found = inSight(view, trace.meta.faults).find(({ row, left, right }) =>
    left - REACH_PX <= x && x <= right + REACH_PX && Math.abs(y - band(view, row)[1] + 8) < 10);
  return found ? tipOf(found.mark) : null;
}

/** @param {View} view @param {RowNumber} row */
function band(view, row) {
  const half = 0.46 * view.gap;
  return row < 0 ? [view.ruler, loadTop(view)] : [Math.max(view.ruler, view.y(row) - half), view.y(row) + half];
}
