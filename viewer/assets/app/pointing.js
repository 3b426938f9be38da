// What the pointer points at: the tip beside it, the cursor's time, and the arrow that a click selects.

import { listen } from "../data/events.js";
import { state } from "../data/trace.js";
import { annotationAt, annotationTip } from "../draw/annotations.js";
import { nearestArrow } from "../draw/arrows.js";
import { bandAt, showsBands } from "../draw/bands.js";
import { binAt } from "../draw/density.js";
import { faultAt, markAt, uncoveredAt } from "../draw/marks.js";
import { stripAt } from "../draw/strips.js";
import { byId } from "../page/elements.js";
import { attachPointer } from "../page/gestures.js";
import { showCursor } from "../page/notices.js";
import { Tip } from "../page/tip.js";
import { selectAnnotation } from "./annotations.js";
import { redraw } from "./drawing.js";
import { glideAround, pan, zoom } from "./movement.js";
import { select } from "./selection.js";

const REACH_PX = 8;
let canvas, tip;

/** Follow the pointer over the canvas. @param {HTMLCanvasElement} over */
export function startPointing(over) {
  canvas = over;
  tip = new Tip(byId("tip"));
  listen("moved", () => tip.hide());
  attachPointer(canvas, {
    zoom: (factor, x) => zoom(factor, state.view.time(x)),
    pan: (px) => pan((px / state.view.width) * (state.to - state.from)),
    zoomIn: (x) => glideAround(state.view.time(x), 0.25),
    point: onPoint,
    leave: onLeave,
    click: onClick,
  });
}

function onPoint(x, y) {
  showCursor(x, state.view);
  if (state.moving) return;
  const [arrows, at] = arrowAt(x, y);
  canvas.classList.toggle("on-arrow", at >= 0);
  showTip(arrows, at, x, y);
  hover(at < 0 ? null : arrows.number[at]);
}

function showTip(arrows, at, x, y) {
  const { left, top } = canvas.getBoundingClientRect(), { view } = state;
  const annotation = annotationAt(view, state, x, y);
  const marked = stripAt(view, state.usage, x, y) || markAt(view, x, y) || (annotation && annotationTip(annotation)) || (at < 0 && (faultAt(view, x, y) || uncoveredAt(view, x, y)));
  const counts = !marked && at < 0 && countsAt(x, y);
  if (marked) tip.showLines(marked, left + x, top + y);
  else if (at >= 0) tip.showArrow(arrows, at, left + x, top + y);
  else if (counts) tip.showBin(counts, showsBands(state) ? bandAt(view, state.bands, x, y) : null, left + x, top + y);
  else tip.hide();
}

function countsAt(x, y) {
  const { data, view } = state;
  return data && data.mode !== "arrows" && y > view.ruler && binAt(data, view.time(x), state.hidden);
}

/** The nearest arrow, among those of a message, and its place there; -1 if none is near. @returns {[any, number]} */
function arrowAt(x, y) {
  for (const arrows of [state.selected, state.data]) {
    if (!arrows || !arrows.number) continue; // counts without a sample
    const at = nearestArrow(state.view, arrows, state.hidden, x, y, REACH_PX);
    if (at >= 0) return [arrows, at];
  }
  return [null, -1];
}

function onLeave() {
  showCursor(null, state.view);
  tip.hide();
  hover(null);
}

function hover(number) {
  if (number === state.hover) return;
  state.hover = number;
  redraw();
}

function onClick(x, y) {
  canvas.focus();
  const annotation = annotationAt(state.view, state, x, y);
  if (annotation) {
    selectAnnotation(annotation.number);
    return;
  }
  const [arrows, at] = arrowAt(x, y);
  if (at < 0) select(null, null);
  else select(arrows.request[at] < 0 ? null : arrows.request[at], arrows.number[at]);
}
