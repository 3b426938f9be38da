// Below each host's line: lines of logs and spans of other tracers. One by one as bars, as long as they say, with a thin
// line for how far they may be off; where there are many, counted in columns.

import { CLASS, NO_LANE } from "../data/constants.js";
import { NO_ROW, rowOfLane } from "../data/rows.js";
import { duration, exactTime } from "../data/time.js";
import { palette } from "./palette.js";

const DOWN_PX = 7, LINE_PX = 6, BAR_PX = 4, LEAST_PX = 2, REACH_PX = 5, MOST_COLUMN_PX = 14;
const MOST_LINES = 6; // those that overlap stand below one another; more share the last line

/** Whether annotations are in the picture: only on the trace's timescale. @param {State} state */
export const showsAnnotations = (state) => Boolean(state.withAnnotations && state.annotations && !state.raw);

/** @param {View} view @param {LaneNumber} lane */
const rowShown = (view, lane) => {
  const row = lane === NO_LANE ? NO_ROW : rowOfLane(lane);
  return row === NO_ROW || !view.shows(row) ? NO_ROW : row;
};

const colourOf = (isError) => (isError ? palette.classes[CLASS.LOST] : palette.accent);

/** The middle of an annotation's bar. @param {View} view @param {Annotation} each @param {RowNumber} row */
const heightOf = (view, each, row) => view.y(row) + Math.min(DOWN_PX + each.line * LINE_PX, 0.42 * view.gap);

/**
 * Give each annotation a line below its host's, so that none covers another while there are lines.
 * @param {Annotation[]} annotations by time @param {Ns} apart the least time between two on a line
 */
export function placeOnLines(annotations, apart) {
  const ends = new Map();
  for (const each of annotations) {
    const used = ends.get(each.lane) || [], free = used.findIndex((end) => end <= each.from);
    each.line = free >= 0 ? free : Math.min(used.length, MOST_LINES - 1);
    used[each.line] = Math.max(used[each.line] || 0, each.to + apart);
    ends.set(each.lane, used);
  }
  return annotations;
}

/** @param {CanvasContext} context @param {View} view @param {State} state */
export function drawAnnotations(context, view, state) {
  if (!showsAnnotations(state)) return;
  context.save();
  if (state.annotations.each) drawEach(context, view, state);
  else drawColumns(context, view, state.annotations);
  context.restore();
}

/** @param {CanvasContext} context @param {View} view @param {State} state */
function drawEach(context, view, state) {
  for (const each of state.annotations.each) {
    const row = rowShown(view, each.lane);
    if (row === NO_ROW) continue;
    const left = Math.max(-REACH_PX, view.x(each.from)), right = Math.min(view.width + REACH_PX, view.x(each.to));
    const y = heightOf(view, each, row), off = each.error || 0, isOne = each.number === state.annotation;
    context.fillStyle = colourOf(each.isError);
    if (off) {
      const first = Math.max(0, view.x(each.from - off)), last = Math.min(view.width, view.x(each.to + off));
      context.globalAlpha = isOne ? 0.9 : 0.3;
      if (last > first) context.fillRect(first, y - 0.5, last - first, 1);
    }
    context.globalAlpha = isOne ? 1 : each.request >= 0 ? 0.8 : 0.45;
    const high = isOne ? BAR_PX + 3 : BAR_PX;
    if (right >= left) context.fillRect(left, y - high / 2, Math.max(LEAST_PX, right - left), high);
  }
}

/** @param {CanvasContext} context @param {View} view @param {AnnotationsShown} shown */
function drawColumns(context, view, shown) {
  const most = Math.max(1, ...shown.cells.map((cell) => cell[2])), full = Math.min(MOST_COLUMN_PX, 0.4 * view.gap);
  for (const [lane, at, count, errors] of shown.cells) {
    const row = rowShown(view, lane);
    if (row === NO_ROW) continue;
    const left = view.x(shown.from + at * shown.bin), right = view.x(shown.from + (at + 1) * shown.bin), y = view.y(row) + 3;
    context.globalAlpha = 0.6;
    for (const [many, isError] of /** @type {[number, boolean][]} */ ([[count, false], [errors, true]])) {
      if (!many) continue;
      context.fillStyle = colourOf(isError);
      context.fillRect(left, y, Math.max(1, right - left), Math.max(LEAST_PX, full * Math.sqrt(many / most)));
    }
  }
}

/** The annotation at a point; null without one. @param {View} view @param {State} state @param {number} x @param {number} y */
export function annotationAt(view, state, x, y) {
  if (!showsAnnotations(state) || !state.annotations.each) return null;
  let best = null, nearest = REACH_PX + 1;
  for (const each of state.annotations.each) {
    const row = rowShown(view, each.lane);
    if (row === NO_ROW || Math.abs(y - heightOf(view, each, row)) > LINE_PX / 2) continue;
    const away = Math.max(view.x(each.from) - x, x - view.x(each.to), 0);
    if (away < nearest) [best, nearest] = [each, away];
  }
  return best;
}

/** What to show beside the pointer. @param {Annotation} each */
export function annotationTip(each) {
  const took = each.to > each.from ? `, for ${duration(each.to - each.from)}` : "";
  const off = each.error === null ? "how far it is off is not known" : `± ${duration(each.error)}`;
  const joined = each.request >= 0 ? `request #${each.request + 1}, joined by ${each.joinedBy}` : "of no request that is known";
  return { title: each.name || each.format, lines: [`${each.format}: ${exactTime(each.from)}${took} (${off})`, joined] };
}

/** The legend's sign. @param {HTMLCanvasElement} canvas */
export function drawAnnotationsChip(canvas) {
  const context = canvas.getContext("2d");
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = palette.lane;
  context.fillRect(0, 6, canvas.width, 2);
  context.fillStyle = palette.accent;
  for (const [left, width] of [[4, 14], [24, 4], [32, 8]]) context.fillRect(left, 12, width, 8);
}
