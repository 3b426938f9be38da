// Arrows, one path for each few dozen lines of a class and for each few heads: one giant path is superlinear in Chromium,
// and changing the style for each arrow is slow.

import { CLASS, PROBLEMS, UNCERTAINTY_UNKNOWN } from "../data/constants.js";
import { isProblem } from "../data/message.js";
import { NO_ROW, placeArrows } from "../data/rows.js";
import { trace } from "../data/trace.js";
import { rowsInSight } from "../data/view.js";
import { byOrigin } from "./origins.js";
import { font, HEADS, LINE_DASHES, LINE_WIDTHS, palette, textScale } from "./palette.js";

const CHUNK = 48; // lines of a path
const CHUNK_HEADS = 8; // a path of these is filled, which takes longer the more there are
const MOST_WIDE = 1000; // in view: beyond, lines are at most a pixel wide, which takes a quarter of the time
const MOST_MOVING_HEADS = 1500;
const MOST_LABELS = 150;
const MOST_LONG_LABELS = 40; // with sequence numbers
const LOST_AT = 0.58; // how far along its way a lost arrow ends
const STUB = 0.36; // of the distance between lanes: an arrow whose other end is not on any lane
const LEAST_WHISKER = 2.5; // px
const UNSURE_DASH = [7, 4];
const EDGE = 60; // px beyond the canvas to which lines are cut

/**
 * Geometry of one arrow in px: [x1, y1, x2, y2]; a partner that is on no row gives a short stub.
 * @param {View} view @param {Arrows} arrows @param {number} at @returns {[number, number, number, number]}
 */
export function arrowEnds(view, arrows, at) {
  const from = arrows.fromRow[at], to = arrows.toRow[at];
  const x1 = view.x(arrows.begin[at]), x2 = view.x(arrows.end[at]);
  const away = ((from === NO_ROW ? to : from) + 1 < view.rows ? 1 : -1) * STUB * view.gap;
  const y1 = from === NO_ROW ? view.y(to) + away : view.y(from);
  const y2 = to === NO_ROW ? view.y(from) + away : view.y(to);
  return [x1, y1, x2, y2];
}
/** @param {Arrows} arrows @param {number} at */
const within = (arrows, at) => arrows.fromRow[at] === arrows.toRow[at];

/**
 * Draw `arrows`. Returns how many were in view.
 * @param {CanvasContext} context @param {View} view @param {Arrows} arrows @param {ArrowOptions} options
 */
export function drawArrows(context, view, arrows, options) {
  let inView = 0;
  placeArrows(arrows);
  const order = [CLASS.ACK, CLASS.HANDSHAKE, CLASS.DATA, CLASS.ONE_SIDED, ...PROBLEMS];
  /** @type {[number, number[]][]} */
  const shown = order.filter((cls) => !options.hidden.has(cls)).map((cls) => [cls, visible(view, arrows, cls, options)]);
  for (const [, list] of shown) inView += list.length;
  const heads = !options.moving || inView <= MOST_MOVING_HEADS;
  context.save();
  for (const [cls, list] of shown) {
    const parts = options.origins && !isProblem(cls) ? byOrigin(arrows, list, options.origins) : [{ list, colour: palette.classes[cls], grow: 1 }];
    for (const part of parts) drawClass(context, view, arrows, cls, part, options, heads, inView);
  }
  context.restore();
  if (inView <= MOST_LABELS && arrows.uncertainty && options.alpha > 0.5) drawWhiskers(context, view, arrows, shown);
  if (inView <= MOST_LABELS && !options.moving && options.alpha > 0.5) labelArrows(context, view, arrows, shown);
  return inView;
}

/** @param {View} view @param {Arrows} arrows @param {number} cls @param {ArrowOptions} options */
function visible(view, arrows, cls, options) {
  const found = [], [first, last] = rowsInSight(view);
  for (const at of arrows.byClass[cls]) {
    const begin = arrows.begin[at], end = arrows.end[at];
    if (Math.max(begin, end) < view.from || Math.min(begin, end) > view.to) continue;
    const from = arrows.fromRow[at], to = arrows.toRow[at]; // one of them may be on no row
    if (to < 0 ? from < 0 || from < first || from > last : (from < first && to < first) || (from > last && to > last)) continue;
    if (options.keep && !options.keep(at)) continue;
    found.push(at);
  }
  return found;
}

/**
 * @param {CanvasContext} context @param {View} view @param {Arrows} arrows @param {number} cls
 * @param {import("./origins.js").Drawn} drawn @param {ArrowOptions} options @param {boolean} heads @param {number} inView
 */
function drawClass(context, view, arrows, cls, { list, colour, grow }, options, heads, inView) {
  const crowded = Math.max(0.18, Math.min(1, (2.2 * view.width) / inView));
  context.globalAlpha = options.alpha * (isProblem(cls) ? 1 : crowded);
  context.strokeStyle = context.fillStyle = colour;
  const width = LINE_WIDTHS[cls] * grow * (options.grow || 1);
  context.lineWidth = inView > MOST_WIDE && !isProblem(cls) ? Math.min(grow, width) : width;
  const unsure = arrows.uncertain ? list.filter((at) => arrows.uncertain[at]) : []; // of an exchange whose parent is
  const sure = unsure.length ? list.filter((at) => !arrows.uncertain[at]) : list;
  for (const [some, dash] of [[sure, LINE_DASHES[cls]], [unsure, UNSURE_DASH]]) {
    context.setLineDash(dash);
    inChunks(some, CHUNK, (chunk) => {
      context.beginPath();
      for (const at of chunk) line(context, view, arrows, at);
      context.stroke();
    });
  }
  context.setLineDash([]);
  if (heads) inChunks(list, CHUNK_HEADS, (chunk) => drawHeads(context, view, arrows, cls, chunk));
}

/** @param {number[]} list */
function inChunks(list, size, act) {
  for (let first = 0; first < list.length; first += size) act(list.slice(first, first + size));
}

/** @param {CanvasContext} context @param {View} view @param {Arrows} arrows @param {number} at */
function line(context, view, arrows, at) {
  let [x1, y1, x2, y2] = arrowEnds(view, arrows, at);
  if (within(arrows, at)) return loop(context, x1, x2, y1, view.gap);
  if (Number.isNaN(arrows.received[at])) [x2, y2] = along(x1, y1, x2, y2, LOST_AT);
  if (Number.isNaN(arrows.sent[at])) [x1, y1] = along(x1, y1, x2, y2, 1 - LOST_AT);
  [x1, y1, x2, y2] = cut(x1, y1, x2, y2, view.width);
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
}

const along = (x1, y1, x2, y2, share) => [x1 + (x2 - x1) * share, y1 + (y2 - y1) * share];

/** Within one host (its loopback): a small arch over its lane. @param {CanvasContext} context @param {number} y */
function loop(context, x1, x2, y, gap) {
  const height = Math.min(18, gap * 0.3);
  context.moveTo(x1, y);
  context.bezierCurveTo(x1, y - height, x2, y - height, x2, y);
}

/**
 * The part of a line that is near the canvas: far beyond it, canvas coordinates (float32) are not exact.
 * @param {number} x1 @param {number} y1 @param {number} x2 @param {number} y2 @param {number} width @param {number} [edge]
 */
function cut(x1, y1, x2, y2, width, edge = EDGE) {
  const inside = (x) => Math.min(Math.max(x, -edge), width + edge);
  const slope = x2 === x1 ? 0 : (y2 - y1) / (x2 - x1);
  const a = inside(x1), b = inside(x2);
  return [a, a === x1 ? y1 : y1 + (a - x1) * slope, b, b === x2 ? y2 : y1 + (b - x1) * slope];
}

/**
 * @param {CanvasContext} context @param {View} view @param {Arrows} arrows @param {number} cls
 * @param {number[]} chunk
 */
function drawHeads(context, view, arrows, cls, chunk) {
  const marks = [];
  context.beginPath();
  for (const at of chunk) {
    const [x1, y1, x2, y2] = arrowEnds(view, arrows, at);
    const oneEnd = Number.isNaN(arrows.received[at]) || Number.isNaN(arrows.sent[at]);
    if (oneEnd) marks.push([at, x1, y1, x2, y2]);
    if (x2 < -EDGE || x2 > view.width + EDGE || Number.isNaN(arrows.received[at])) continue;
    if (within(arrows, at)) head(context, x2, y2, 0.2, 1, HEADS[cls] * 0.7);
    else head(context, x2, y2, x2 - x1, y2 - y1, HEADS[cls]);
  }
  context.fill();
  if (marks.length) drawMarks(context, arrows, cls, marks);
}

/**
 * How far the receive may be off on the sender's clock: a bar across the arrow's end, where it is long enough to see.
 * @param {CanvasContext} context @param {View} view @param {Arrows} arrows @param {[number, number[]][]} shown
 */
function drawWhiskers(context, view, arrows, shown) {
  context.save();
  context.lineWidth = 1;
  context.globalAlpha = 0.75;
  for (const [cls, list] of shown) {
    context.strokeStyle = palette.classes[cls];
    context.beginPath();
    for (const at of list) whisker(context, view, arrows, at);
    context.stroke();
  }
  context.restore();
}

/** @param {CanvasContext} context @param {View} view @param {Arrows} arrows @param {number} at */
function whisker(context, view, arrows, at) {
  const off = arrows.uncertainty[at], [, , x, y] = arrowEnds(view, arrows, at);
  const half = view.x(view.from + off);
  if (off === UNCERTAINTY_UNKNOWN || half < LEAST_WHISKER || Number.isNaN(arrows.received[at]) || within(arrows, at)) return;
  const left = Math.max(-EDGE, x - half), right = Math.min(view.width + EDGE, x + half);
  if (right < 0 || left > view.width) return;
  context.moveTo(left, y);
  context.lineTo(right, y);
  for (const end of [left, right]) {
    context.moveTo(end, y - 3);
    context.lineTo(end, y + 3);
  }
}

/**
 * @param {CanvasContext} context @param {number} x @param {number} y
 * @param {number} dx @param {number} dy @param {number} size
 */
function head(context, x, y, dx, dy, size) {
  const length = Math.hypot(dx, dy) || 1;
  const ux = dx / length, uy = dy / length, half = size * 0.36;
  context.moveTo(x, y);
  context.lineTo(x - ux * size - uy * half, y - uy * size + ux * half);
  context.lineTo(x - ux * size + uy * half, y - uy * size - ux * half);
  context.closePath();
}

/**
 * × where a packet was lost, a hollow circle where the other end is not known.
 * @param {CanvasContext} context @param {Arrows} arrows @param {number} cls
 */
function drawMarks(context, arrows, cls, marks) {
  context.beginPath();
  for (const [at, x1, y1, x2, y2] of marks) {
    const atEnd = Number.isNaN(arrows.received[at]);
    const [x, y] = along(x1, y1, x2, y2, atEnd ? LOST_AT : 1 - LOST_AT);
    if (x < -EDGE || x > 1e5) continue;
    if (cls === CLASS.LOST) {
      context.moveTo(x - 4.5, y - 4.5);
      context.lineTo(x + 4.5, y + 4.5);
      context.moveTo(x + 4.5, y - 4.5);
      context.lineTo(x - 4.5, y + 4.5);
    } else {
      context.moveTo(x + 3.5, y);
      context.arc(x, y, 3.5, 0, 2 * Math.PI);
    }
  }
  context.stroke();
}

/**
 * A label beside each arrow, as in a textbook, where there is room for it.
 * @param {CanvasContext} context @param {View} view @param {Arrows} arrows @param {[number, number[]][]} shown
 */
function labelArrows(context, view, arrows, shown) {
  const taken = [];
  const count = shown.reduce((sum, [, list]) => sum + list.length, 0);
  context.save();
  context.font = font(11);
  context.textBaseline = "middle";
  context.lineJoin = "round";
  context.lineWidth = 3;
  context.strokeStyle = palette.paper;
  for (const [cls, list] of [...shown].reverse()) {
    context.fillStyle = palette.classes[cls];
    for (const at of list) label(context, view, arrows, at, count <= MOST_LONG_LABELS, taken);
  }
  context.restore();
}

/**
 * @param {CanvasContext} context @param {View} view @param {Arrows} arrows @param {number} at
 * @param {number[][]} taken
 */
function label(context, view, arrows, at, long, taken) {
  const [x1, y1, x2, y2] = cut(...arrowEnds(view, arrows, at), view.width, 0); // beside the part that is in view
  const text = labelText(arrows, at, long);
  const width = context.measureText(text).width, half = 7 * textScale();
  for (const share of [0.5, 0.35, 0.65, 0.22]) {
    const [middle, y] = along(x1, y1, x2, y2, share);
    for (const x of [middle + 6, middle - width - 6]) {
      const box = [x - 2, y - half, x + width + 2, y + half];
      if (box[0] < 0 || box[2] > view.width || onLane(view, y) || taken.some((other) => overlap(box, other))) continue;
      taken.push(box);
      context.strokeText(text, x, y);
      context.fillText(text, x, y);
      return;
    }
  }
}

/** @param {Arrows} arrows @param {number} at */
function labelText(arrows, at, long) {
  const again = arrows.attempt[at] > 1 ? ` #${arrows.attempt[at]}` : "";
  const kind = trace.meta.kinds[arrows.kind[at]] + again;
  if (!arrows.size[at]) return kind;
  if (!long || !arrows.offset) return `${kind} ${arrows.size[at].toLocaleString("en")}`;
  return `${kind} seq ${arrows.offset[at]} len ${arrows.size[at]}`;
}

const overlap = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
/** @param {View} view @param {number} y */
const onLane = (view, y) => Math.abs(y - view.y(Math.round((y - view.top) / view.gap))) < 9;

/**
 * The arrow nearest to a point, within `reach` px; -1 if there is none.
 * @param {View} view @param {Arrows} arrows @param {Set<number>} hidden @param {number} x @param {number} y
 * @param {number} reach
 */
export function nearestArrow(view, arrows, hidden, x, y, reach) {
  let best = -1, bestDistance = reach;
  placeArrows(arrows);
  for (let at = 0; at < arrows.number.length; at++) {
    if (hidden.has(arrows.cls[at]) || Math.max(arrows.fromRow[at], arrows.toRow[at]) < 0) continue;
    const [x1, y1, x2, y2] = arrowEnds(view, arrows, at);
    if (Math.max(x1, x2) < x - reach || Math.min(x1, x2) > x + reach) continue;
    const same = within(arrows, at);
    const distance = same ? toSegment(x, y, x1, y1 - 7, x2, y1 - 7) : toSegment(x, y, x1, y1, x2, y2);
    if (distance < bestDistance) [best, bestDistance] = [at, distance];
  }
  return best;
}

/** @param {number} x @param {number} y */
function toSegment(x, y, x1, y1, x2, y2) {
  const dx = x2 - x1, dy = y2 - y1;
  const share = Math.min(1, Math.max(0, ((x - x1) * dx + (y - y1) * dy) / (dx * dx + dy * dy || 1)));
  return Math.hypot(x - x1 - share * dx, y - y1 - share * dy);
}
