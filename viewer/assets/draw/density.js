// Counts instead of arrows where there are too many: between lanes, how many arrows pass in a time bin; at each lane, how
// many leave (above it) and arrive (below it), by class. Drawn once into a picture, which gestures only stretch.

import { CLASS } from "../data/constants.js";
import { isProblem } from "../data/message.js";
import { rowsOfPair } from "../data/rows.js";
import { rowsInSight } from "../data/view.js";
import { palette } from "./palette.js";

const STACK = [0, 1, 2, 5, 3, 4, 6]; // classes from the lane outwards, problems last, as a cap
const LEAST_TROUBLE_PX = 1.5;
const MOST_OCTAVES = 33, PER_OCTAVE = 16; // counts are distinguished to 4 % when a scale is looked for

/** How strongly trouble is coloured, from its share of the packets: 1 from a fifth of them on. */
export const troubleStrength = (trouble, others) => Math.min(1, Math.sqrt((5 * trouble) / (trouble + others)));

/**
 * Each pair (or row of ends) and class that has counts: act(what, cls, counts of its bins, until the next call). They are
 * sent in several types; adding is quick if it always sees one.
 * @param {Counts} density
 */
export function eachCell(density, act) {
  const { bins, classes, cells, counts } = density, own = new Float64Array(bins);
  cells.forEach((cell, at) => {
    own.set(counts.subarray(at * bins, (at + 1) * bins));
    act(Math.floor(cell / classes), cell % classes, own);
  });
}

/**
 * Sums for the rows in sight: per gap between rows, and per row, direction and class; null where there are none.
 * @param {Counts} density @param {View} view @param {Set<number>} hidden
 */
function sums(density, view, hidden) {
  const made = { first: 0, last: 0, gaps: [], trouble: [], ends: [] };
  [made.first, made.last] = rowsInSight(view);
  const into = (rows, at, counts) => add((rows[at] = rows[at] || new Float64Array(density.bins)), counts);
  const atRow = (row, direction, cls, counts) => {
    if (row >= made.first && row <= made.last) into(made.ends, (2 * row + direction) * density.classes + cls, counts);
  };
  eachCell(density, (what, cls, counts) => {
    if (hidden.has(cls)) return;
    if (density.mode === "ends") return atRow(density.rows[what >> 1], what & 1, cls, counts);
    const [from, to] = rowsOfPair(what);
    atRow(from, 0, cls, counts);
    atRow(to, 1, cls, counts);
    if (from < 0 || to < 0) return;
    const until = Math.min(Math.max(from, to), made.last);
    for (let gap = Math.max(Math.min(from, to), made.first); gap < until; gap++) {
      into(isProblem(cls) ? made.trouble : made.gaps, gap, counts);
    }
  });
  return made;
}

/** @param {Float64Array} row @param {Float64Array} counts */
function add(row, counts) {
  for (let bin = 0; bin < row.length; bin++) row[bin] += counts[bin];
}

// The value below which about 99.5 % of the filled bins lie: one burst does not flatten all else.
function high(rows) {
  const steps = new Uint32Array(MOST_OCTAVES * PER_OCTAVE);
  let filled = 0;
  for (const row of rows) {
    for (let bin = 0; row && bin < row.length; bin++) {
      if (row[bin] < 1) continue;
      steps[Math.round(PER_OCTAVE * Math.log2(row[bin]))] += 1;
      filled += 1;
    }
  }
  let at = steps.length - 1;
  for (let above = 0; at > 0; at--) {
    above += steps[at];
    if (above > 0.005 * filled) break;
  }
  return Math.pow(2, at / PER_OCTAVE);
}

/**
 * A picture of a density message, one px wide for each bin, as high as the plot. Its pixels are written one by one: that
 * takes a fifth of the time that rectangles take. `plain` is the alpha of all but problems.
 * @param {Counts} density @param {View} view @param {Set<number>} hidden @param {number} [plain]
 */
export function densityPicture(density, view, hidden, plain = 1) {
  const picture = document.createElement("canvas");
  picture.width = density.bins;
  picture.height = Math.ceil(view.height);
  const context = picture.getContext("2d"), paint = blank(picture.width, picture.height);
  const found = sums(density, view, hidden);
  drawGaps(paint, view, found, plain);
  drawEnds(paint, view, found, density.classes, plain);
  context.putImageData(paint.image, 0, 0);
  return picture;
}

// Pixels to write into, the same ones each time: new ones cost more than all that is written.
let pool = null;
/** @param {number} width @param {number} height */
function blank(width, height) {
  if (pool && pool.width === width && pool.height === height) pool.pixels.fill(0);
  else {
    const image = new ImageData(width, height);
    pool = { image, pixels: new Uint32Array(image.data.buffer), width, height };
  }
  return pool;
}

/** A colour as a pixel without its alpha, little-endian: alpha, blue, green, red. @param {string} colour */
function clear(colour) {
  const value = parseInt(colour.slice(1), 16);
  return ((value & 255) << 16) | (value & 0xff00) | (value >> 16);
}

const withAlpha = (clear, alpha) => ((Math.round(255 * alpha) << 24) | clear) >>> 0;

function drawGaps(paint, view, { gaps, trouble, first, last }, alpha) {
  const most = high(gaps), [data, lost] = [CLASS.DATA, CLASS.LOST].map((cls) => clear(palette.classes[cls]));
  for (let gap = first; gap < last; gap++) {
    const row = gaps[gap], bad = trouble[gap], line = new Uint32Array(paint.width);
    if (!row && !bad) continue;
    for (let bin = 0; bin < paint.width; bin++) {
      const plain = row ? row[bin] : 0, wrong = bad ? bad[bin] : 0;
      const blue = plain ? alpha * (0.06 + 0.3 * Math.sqrt(Math.min(1, plain / most))) : 0;
      const red = wrong ? 0.6 * troubleStrength(wrong, plain) : 0;
      if (blue > red) line[bin] = withAlpha(data, blue);
      else if (red) line[bin] = withAlpha(lost, red);
    }
    const end = Math.min(paint.height, Math.round(view.y(gap + 1)));
    for (let y = Math.max(0, Math.round(view.y(gap))); y < end; y++) paint.pixels.set(line, y * paint.width);
  }
}

function drawEnds(paint, view, { ends, first, last }, classes, plain) {
  const full = view.bar, stacks = [];
  for (let row = first; row <= last; row++) {
    for (const direction of [0, 1]) {
      const from = (2 * row + direction) * classes, own = STACK.map((cls) => [cls, ends[from + cls]]).filter(([, each]) => each);
      if (own.length) stacks.push({ y: view.y(row), sign: direction ? 1 : -1, own, total: total(own, paint.width) });
    }
  }
  const most = high(stacks.map((each) => each.total));
  for (const stack of stacks) drawStack(paint, stack, most, full, plain);
}

function total(own, bins) {
  const sum = new Float64Array(bins);
  for (const [, row] of own) add(sum, row);
  return sum;
}

// A bar is as high as the root of its count, so that quiet rows are seen beside busy ones.
function drawStack(paint, { y, sign, own, total: all }, most, full, plain) {
  const base = new Float64Array(paint.width), scale = all.map((count) => (count ? (full * Math.sqrt(Math.min(1, count / most))) / count : 0));
  for (const [cls, row] of own) {
    const value = withAlpha(clear(palette.classes[cls]), isProblem(cls) ? 1 : plain), least = isProblem(cls) ? LEAST_TROUBLE_PX : 0;
    drawBars(paint.pixels, paint.width, paint.height, y, sign, row, scale, base, full, least, value);
  }
}

/**
 * Of one class, on what is there. With arguments of one type each it is compiled well, which the picture's time hangs on.
 * @param {number} width @param {number} height @param {number} y @param {Float64Array} row
 */
function drawBars(pixels, width, height, y, sign, row, scale, base, full, least, value) {
  for (let bin = 0; bin < width; bin++) {
    if (row[bin] === 0) continue;
    const from = y + sign * base[bin];
    base[bin] = Math.min(full, base[bin] + Math.max(least, row[bin] * scale[bin]));
    const to = y + sign * base[bin];
    const top = Math.max(0, Math.floor(Math.min(from, to) + 0.5)), bottom = Math.min(height, Math.floor(Math.max(from, to) + 0.5));
    for (let at = top * width + bin, end = bottom * width; at < end; at += width) pixels[at] = value;
  }
}

/**
 * Stretch a picture over the view.
 * @param {CanvasContext} context @param {View} view @param {Picture} density
 * @param {HTMLCanvasElement} picture
 */
export function drawDensity(context, view, density, picture) {
  const share = (time) => ((time - density.from) / (density.to - density.from)) * density.bins;
  const first = Math.max(0, share(view.from)), last = Math.min(density.bins, share(view.to));
  if (last <= first) return;
  const left = view.x(density.from + (first / density.bins) * (density.to - density.from));
  const right = view.x(density.from + (last / density.bins) * (density.to - density.from));
  context.imageSmoothingEnabled = last - first > view.width;
  context.drawImage(picture, first, 0, last - first, picture.height, left, 0, right - left, view.height);
}

/**
 * Counts of a bin by class, over all pairs; of ends, over what these rows have sent.
 * @param {Counts} density @param {number} bin
 */
export function binCounts(density, bin) {
  if (!density.byClass) {
    density.byClass = Array.from({ length: density.classes }, () => new Float64Array(density.bins));
    eachCell(density, (what, cls, counts) => {
      if (density.mode !== "ends" || !(what & 1)) add(density.byClass[cls], counts);
    });
  }
  return density.byClass.map((counts) => counts[bin]);
}

/**
 * Counts of a bin by class, and where it lies: what to show under the cursor.
 * @param {Counts} density @param {Ns} time @param {Set<number>} hidden
 */
export function binAt(density, time, hidden) {
  const bin = Math.floor((time - density.from) / density.bin);
  if (bin < 0 || bin >= density.bins) return null;
  const byClass = binCounts(density, bin).map((count, cls) => (hidden.has(cls) ? 0 : count));
  return { from: density.from + bin * density.bin, width: density.bin, byClass };
}
