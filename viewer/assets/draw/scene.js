// One frame of the timeline: lanes, recorded command, counts or arrows, the selected request, problems.

import { PROBLEMS } from "../data/constants.js";
import { NO_ROW, rowOfLane, rowTable } from "../data/rows.js";
import { duration } from "../data/time.js";
import { trace } from "../data/trace.js";
import { makeView } from "../data/view.js";
import { drawArrows } from "./arrows.js";
import { drawAnnotations } from "./annotations.js";
import { drawBands, showsBands } from "./bands.js";
import { binCounts, drawDensity, troubleStrength } from "./density.js";
import { drawFaults, drawFindings, drawLoad, drawUncovered } from "./marks.js";
import { font, palette } from "./palette.js";
import { drawStrips } from "./strips.js";

const MANY_ARROWS = 2000; // loaded: a gesture stretches a picture of them

/**
 * Draw the state of the timeline. Returns how many arrows are in view; null where they are counted.
 * @param {CanvasContext} context @param {View} view @param {State} state
 * @param {Ticks} ruler
 */
export function drawScene(context, view, state, ruler) {
  context.clearRect(0, 0, view.width, view.height);
  drawTicks(context, view, ruler);
  drawUncovered(context, view);
  drawLanes(context, view);
  drawFaults(context, view);
  drawCommand(context, view);
  context.save();
  context.beginPath();
  context.rect(0, view.ruler, view.width, view.height - view.ruler);
  context.clip();
  const inView = drawTraffic(context, view, state);
  drawAnnotations(context, view, state);
  drawFindings(context, view);
  drawTrouble(context, view, state);
  drawLoad(context, view);
  drawStrips(context, view, state.usage);
  context.restore();
  return inView;
}

/** @param {CanvasContext} context @param {View} view @param {State} state */
function drawTraffic(context, view, state) {
  const alpha = state.selected ? 0.13 : 1, options = { hidden: state.hidden, moving: state.moving, origins: state.origins };
  const data = state.data;
  let inView = null;
  const covered = data && data.from <= Math.max(view.from, 0) && data.to >= Math.min(view.to, trace.meta.duration);
  if (!covered && state.overview) drawCounts(context, view, state.overview, state.overviewPicture, alpha);
  if (data && data.mode !== "arrows") {
    drawCounts(context, view, data, state.picture, data.number ? 0.55 * alpha : alpha);
    if (showsBands(state)) drawBands(context, view, state.bands, alpha);
    if (data.number && !state.moving) drawArrows(context, view, data, { ...options, alpha: 0.7 * alpha });
  }
  if (data && data.mode === "arrows") {
    if (!covered) clearCovered(context, view, data);
    if (state.moving) prepareStill(view, state);
    if (state.moving && state.still) drawCounts(context, view, state.still, state.still.picture, alpha);
    else inView = drawArrows(context, view, data, { ...options, alpha });
  }
  if (state.selected) drawSelected(context, view, state, options, covered);
  drawOne(context, view, state, state.selection.hop, palette.accent);
  drawOne(context, view, state, state.hover, palette.ink);
  return inView;
}

/**
 * The selected request; one of many packets is counted too, until its arrows are there.
 * @param {CanvasContext} context @param {View} view @param {State} state
 * @param {Omit<ArrowOptions, "alpha">} options @param {boolean} covered
 */
function drawSelected(context, view, state, options, covered) {
  const { selected, data, selection } = state;
  if (selected.mode === "arrows") {
    drawArrows(context, view, selected, { ...options, alpha: 1, grow: 1.35 });
  } else if (covered && data.mode === "arrows") {
    const keep = (at) => data.request[at] === selection.request;
    drawArrows(context, view, data, { ...options, alpha: 1, grow: 1.2, keep });
  } else {
    drawCounts(context, view, selected, selected.picture, 1);
  }
}

/**
 * @param {CanvasContext} context @param {View} view @param {Picture} density @param {HTMLCanvasElement} picture
 * @param {number} alpha
 */
function drawCounts(context, view, density, picture, alpha) {
  if (!picture) return;
  context.globalAlpha = alpha;
  drawDensity(context, view, density, picture);
  context.globalAlpha = 1;
}

/**
 * A canvas is painted when it is first read, which else is in a gesture's first frame.
 * @param {HTMLCanvasElement} picture
 */
function paintNow(picture) {
  picture.getContext("2d").getImageData(0, 0, 1, 1);
}

/**
 * Many arrows as a picture of twice the view, for a gesture to stretch: drawing them takes longer than a frame.
 * @param {View} view @param {Pick<State, "hidden" | "origins">} state
 */
function stillPicture(view, data, state) {
  const margin = (view.to - view.from) / 2, picture = document.createElement("canvas");
  const wide = makeView(view.from - margin, view.to + margin, 2 * view.width, view.height, view.ruler, view.rows, view.scroll, view.strips);
  picture.width = wide.width;
  picture.height = Math.ceil(view.height);
  const context = picture.getContext("2d");
  drawArrows(context, wide, data, { hidden: state.hidden, origins: state.origins, alpha: 1, moving: true });
  paintNow(picture);
  return { from: wide.from, to: wide.to, bins: wide.width, picture };
}

/** Make that picture, if a gesture would need it. @param {View} view @param {State} state */
export function prepareStill(view, state) {
  const { data, still } = state;
  if (!still && data && data.mode === "arrows" && data.number.length >= MANY_ARROWS) state.still = stillPicture(view, data, state);
}

/**
 * Where arrows are known, counts of the overview behind them are taken away.
 * @param {CanvasContext} context @param {View} view
 */
function clearCovered(context, view, data) {
  const left = Math.max(0, view.x(data.from)), right = Math.min(view.width, view.x(data.to));
  if (right > left) {
    context.save();
    context.beginPath();
    context.rect(left, view.ruler, right - left, view.height);
    context.clip();
    context.clearRect(left, view.ruler, right - left, view.height);
    drawUncovered(context, view);
    drawLanes(context, view);
    context.restore();
  }
}

/**
 * One arrow, again, so that it stands out.
 * @param {CanvasContext} context @param {View} view @param {State} state @param {number | null} number
 * @param {string} colour
 */
function drawOne(context, view, state, number, colour) {
  if (number === null) return;
  for (const arrows of [state.selected, state.data]) {
    if (!arrows || !arrows.number) continue;
    const at = arrows.number.indexOf(number);
    if (at < 0) continue;
    const cls = arrows.cls[at], own = palette.classes[cls];
    palette.classes[cls] = colour;
    const only = { ...arrows, byClass: arrows.byClass.map((_, each) => (each === cls ? [at] : [])) };
    drawArrows(context, view, only, { hidden: new Set(), alpha: 0.5, grow: 2.4, moving: false });
    palette.classes[cls] = own;
    drawArrows(context, view, only, { hidden: new Set(), alpha: 0.5, grow: 1.5, moving: false });
    return;
  }
}

/** @param {CanvasContext} context @param {View} view */
function drawLanes(context, view) {
  context.save();
  context.strokeStyle = palette.lane;
  context.lineWidth = 1;
  context.beginPath();
  for (let row = 0; row < view.rows; row++) {
    if (!view.shows(row) || (rowTable.rows[row].kind === "group" && rowTable.rows[row].open)) continue;
    const y = Math.round(view.y(row)) + 0.5;
    context.moveTo(0, y);
    context.lineTo(view.width, y);
  }
  context.stroke();
  context.restore();
}

/** The ruler. @param {CanvasContext} context @param {View} view @param {Ticks} ruler */
function drawTicks(context, view, { values, texts }) {
  context.save();
  context.font = font(12);
  context.textAlign = "center";
  context.fillStyle = palette.faint;
  context.strokeStyle = palette.grid;
  context.beginPath();
  values.forEach((value, at) => {
    const x = view.x(value);
    context.moveTo(x, view.ruler);
    context.lineTo(x, view.height);
    context.fillText(texts[at], x, view.ruler - 6);
  });
  context.stroke();
  context.restore();
}

/**
 * The recorded command: a band along its host's lane, with the time before the first packet named.
 * @param {CanvasContext} context @param {View} view
 */
function drawCommand(context, view) {
  const command = trace.meta.command;
  const row = command ? rowOfLane(command.lane) : NO_ROW;
  if (row === NO_ROW || !view.shows(row)) return;
  const y = view.y(row);
  const left = Math.max(-10, view.x(command.from)), right = Math.min(view.width + 10, view.x(command.to));
  if (right < 0 || left > view.width) return;
  context.save();
  context.fillStyle = palette.band;
  context.fillRect(left, y - 7, right - left, 14);
  context.strokeStyle = palette.ink;
  context.lineWidth = 2;
  context.beginPath();
  for (const x of [left, right]) {
    context.moveTo(x, y - 11);
    context.lineTo(x, y + 11);
  }
  context.stroke();
  context.fillStyle = palette.ink;
  bandText(context, view, left, Math.min(right, view.x(trace.meta.firstHop)), y, command);
  context.restore();
}

/** @param {CanvasContext} context @param {View} view @param {number} left @param {number} y */
function bandText(context, view, left, firstPacket, y, command) {
  const begin = Math.max(left, 0) + 6, room = Math.min(firstPacket, view.width) - begin - 6;
  context.font = font(12, "600");
  const before = `${duration(trace.meta.firstHop - command.from)} before the first packet`;
  const texts = [`${command.text}: ${before}`, before];
  const text = texts.find((each) => context.measureText(each).width <= room);
  if (text && view.x(command.from) > -view.width) context.fillText(text, begin, y - 12);
}

/**
 * Marks under the ruler where something went wrong, at every zoom; faint where it is little of much.
 * @param {CanvasContext} context @param {View} view @param {State} state
 */
function drawTrouble(context, view, state) {
  const marks = new Map();
  const mark = (x, cls, strength) => {
    const at = Math.round(x / 3), before = marks.get(at) || [0, 0];
    if (x >= -3 && x <= view.width + 3) marks.set(at, [Math.max(cls, before[0]), Math.max(strength, before[1])]);
  };
  const classes = PROBLEMS.filter((cls) => !state.hidden.has(cls));
  if (state.data && state.data.mode === "arrows") {
    for (const cls of classes) for (const at of state.data.byClass[cls]) mark(view.x(state.data.begin[at]), cls, 1);
  } else if (state.data) {
    troubleOfBins(view, state.data, classes, mark);
  }
  for (const [at, [cls, strength]] of marks) {
    context.globalAlpha = 0.3 + 0.7 * strength;
    triangle(context, at * 3, view.ruler + 2, palette.classes[cls]);
  }
  context.globalAlpha = 1;
}

/** @param {View} view @param {Counts} density @param {(x: number, cls: number, strength: number) => void} mark */
function troubleOfBins(view, density, classes, mark) {
  const width = (density.to - density.from) / density.bins;
  for (let bin = 0; bin < density.bins; bin++) {
    const x = view.x(density.from + (bin + 0.5) * width);
    if (x < -3 || x > view.width + 3) continue;
    const byClass = binCounts(density, bin);
    const trouble = classes.reduce((sum, cls) => sum + byClass[cls], 0);
    if (!trouble) continue;
    const total = byClass.reduce((sum, count) => sum + count, 0);
    for (const cls of classes) if (byClass[cls]) mark(x, cls, troubleStrength(trouble, total - trouble));
  }
}

/** @param {CanvasContext} context @param {number} x @param {number} y @param {string} colour */
function triangle(context, x, y, colour) {
  context.fillStyle = colour;
  context.beginPath();
  context.moveTo(x - 4, y);
  context.lineTo(x + 4, y);
  context.lineTo(x, y + 7);
  context.fill();
}
