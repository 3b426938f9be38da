// The picture of a series: which periods there are, and by class how long requests took, with their number, failures and
// packets. What has no summary is hatched, in all rows: it is not zero. Columns with few requests are points.

import { calendarTicks } from "../data/calendar.js";
import { duration } from "../data/time.js";
import { font, palette, textScale } from "./palette.js";

export const FEW_REQUESTS = 20; // of a column: below this, percentiles are single requests
const RULER = 26, PERIODS = 18, GAP = 8, SMALL = 54, LEAST_ROW = 40;
const TICKS_OF_TIME = [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13];

/** Where names and axes stand, left of the picture. */
export const gutter = () => Math.round(206 * textScale());

/**
 * The rows of a picture of this height: {kind, course, top, height}.
 */
export function rowsOf(part, shown, height) {
  const scale = textScale(), top = (RULER + PERIODS) * scale + GAP;
  const small = ["requests", "failed", "packets"].filter((each) => shown.has(each));
  const courses = shown.has("latency") ? part.courses.filter((each) => each.counts.length) : [];
  const room = height - top - (courses.length ? small.length * (SMALL * scale + GAP) : 0);
  const count = courses.length || small.length || 1;
  const tall = Math.max(LEAST_ROW * scale, room / count - GAP);
  const rows = [];
  let at = top;
  const add = (kind, course, size) => {
    rows.push({ kind, course, top: at, height: size });
    at += size + GAP;
  };
  courses.forEach((course) => add("latency", course, tall));
  small.forEach((kind) => add(kind, null, courses.length ? SMALL * scale : tall));
  return rows;
}

/** A pattern that fills what is of a state; each differs from the others also without colour. */
export function fillPeriod(context, state, x, y, width, height) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  if (state === "trace") {
    context.fillStyle = palette.accent;
    context.fillRect(x, y, width, height);
  } else if (state === "summary") {
    hatch(context, x, y, width, height, palette.accent, 6, 1.5);
    context.strokeStyle = palette.accent;
    context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
  } else if (state === "failed") {
    context.strokeStyle = palette.classes[4];
    context.lineWidth = 2;
    context.strokeRect(x + 1, y + 1, width - 2, height - 2);
    for (let at = x + Math.min(width / 2, height / 2); at < x + width; at += height) cross(context, at, y + height / 2, height * 0.28);
  } else {
    context.strokeStyle = palette.faint;
    context.setLineDash([3, 3]);
    context.beginPath();
    context.moveTo(x, y + height / 2);
    context.lineTo(x + width, y + height / 2);
    context.stroke();
  }
  context.restore();
}

function cross(context, x, y, size) {
  context.beginPath();
  context.moveTo(x - size, y - size);
  context.lineTo(x + size, y + size);
  context.moveTo(x + size, y - size);
  context.lineTo(x - size, y + size);
  context.stroke();
}

function hatch(context, x, y, width, height, colour, step, line) {
  context.strokeStyle = colour;
  context.lineWidth = line;
  context.beginPath();
  for (let at = Math.floor((x - height) / step) * step; at < x + width; at += step) {
    context.moveTo(at, y + height);
    context.lineTo(at + height, y);
  }
  context.stroke();
  context.lineWidth = 1;
}

/** Draw all. `scene`: {from, to, part, stretches, length, worst, cursor, hover, shown}. */
export function drawDays(context, width, height, scene) {
  const left = gutter(), plot = width - left;
  const x = (at) => left + ((at - scene.from) / (scene.to - scene.from)) * plot;
  context.clearRect(0, 0, width, height);
  drawRuler(context, scene, x, left, width, height);
  const scale = textScale(), strip = RULER * scale;
  label(context, "periods", left - 10, strip + (PERIODS * scale) / 2 + 4, "right", palette.faint, 12);
  drawPeriods(context, scene, x, left, width, strip, PERIODS * scale);
  if (!scene.part) return;
  const rows = rowsOf(scene.part, scene.shown, height);
  for (const row of rows) drawRow(context, row, scene, x, left, width);
  drawCursor(context, scene, x, left, width, height);
}

function drawRuler(context, scene, x, left, width, height) {
  const scale = textScale();
  for (const tick of calendarTicks(scene.from, scene.to, width - left)) {
    const at = Math.round(x(tick.at)) + 0.5;
    if (at < left) continue;
    context.strokeStyle = tick.isDay ? palette.lane : palette.grid;
    context.beginPath();
    context.moveTo(at, RULER * scale - 5);
    context.lineTo(at, height);
    context.stroke();
    context.font = font(12, tick.isDay ? "600" : "");
    const half = context.measureText(tick.text).width / 2;
    if (at - half > left - 20 && at + half < width) label(context, tick.text, at, RULER * scale - 9, "center", tick.isDay ? palette.ink : palette.faint, 12, tick.isDay ? "600" : "");
  }
}

export function drawPeriods(context, scene, x, left, width, top, height) {
  for (const stretch of scene.stretches) {
    const from = Math.max(left, x(stretch.from)), to = Math.min(width, x(stretch.to));
    if (to <= left || from >= width) continue;
    fillPeriod(context, stretch.state, from, top, Math.max(1.5, to - from), height);
    const one = x(stretch.from + scene.length) - x(stretch.from);
    if (one < 7 || stretch.state === "nothing") continue;
    context.fillStyle = palette.paper;
    for (let at = stretch.from + scene.length; at < stretch.to; at += scene.length) {
      const edge = x(at);
      if (edge > left && edge < width) context.fillRect(Math.round(edge) - 0.5, top, 1.5, height);
    }
  }
}

function drawRow(context, row, scene, x, left, width) {
  const { part } = scene, bottom = row.top + row.height;
  context.save();
  context.beginPath();
  context.rect(left, row.top - 2, width - left, row.height + 4);
  context.clip();
  hatchUnknown(context, row, scene, x, left, width);
  const columns = visibleColumns(part, x, left, width);
  const axis = AXES[row.kind](row, part, columns);
  drawGrid(context, axis, left, width);
  DRAW[row.kind](context, row, part, columns, axis, scene.worst);
  context.restore();
  context.strokeStyle = palette.lane;
  context.beginPath();
  context.moveTo(left, Math.round(bottom) + 0.5);
  context.lineTo(width, Math.round(bottom) + 0.5);
  context.stroke();
  drawLabels(context, row, axis, left, columns);
}

// Where nothing is known, in words if there is room.
function hatchUnknown(context, row, scene, x, left, width) {
  const { part } = scene;
  let begin = -1;
  for (let at = 0; at <= part.covered.length; at++) {
    const isUnknown = at < part.covered.length && part.covered[at] === 0;
    if (isUnknown && begin < 0) begin = at;
    if (isUnknown || begin < 0) continue;
    const from = Math.max(left, x(part.from + begin * part.step)), to = Math.min(width, x(part.from + at * part.step));
    begin = -1;
    if (to <= from) continue;
    context.save();
    context.beginPath();
    context.rect(from, row.top, to - from, row.height);
    context.clip();
    hatch(context, from, row.top, to - from, row.height, palette.grid, 8, 3);
    if (to - from > 90 * textScale()) label(context, "no summary", (from + to) / 2, row.top + row.height / 2 + 4, "center", palette.faint, 12);
    context.restore();
  }
}

function visibleColumns(part, x, left, width) {
  const found = [];
  for (let at = 0; at < part.covered.length; at++) {
    const from = x(part.from + at * part.step), to = x(part.from + (at + 1) * part.step);
    if (to > left && from < width && part.covered[at] > 0) found.push({ at, from, to, middle: (from + to) / 2, time: part.from + at * part.step });
  }
  return found;
}

const isKnown = (value) => value !== null;

const AXES = {
  latency(row, _, columns) {
    const [middle, , high] = row.course.percentiles;
    const values = columns.flatMap(({ at }) => [middle[at], high[at]]).filter(isKnown);
    if (!values.length) return { empty: true, ticks: [] };
    let low = Math.min(...values) / 1.25, top = Math.max(...values) * 1.25;
    if (top < low * 4) [low, top] = [low / 1.5, top * 1.5];
    const range = Math.log(top / low);
    const y = (value) => row.top + row.height - (Math.log(value / low) / range) * row.height;
    let ticks = TICKS_OF_TIME.filter((each) => each >= low && each <= top);
    if (ticks.length < 2) ticks = TICKS_OF_TIME.flatMap((each) => [each, 3 * each]).filter((each) => each >= low && each <= top);
    if (ticks.length < 2) ticks = TICKS_OF_TIME.flatMap((each) => [1, 2, 3, 5].map((size) => size * each)).filter((each) => each >= low && each <= top);
    return { y, ticks: spread(ticks, y, 16).map((value) => ({ at: y(value), text: duration(value, 1) })) };
  },
  requests: (row, part, columns) => linear(row, columns.map(({ at }) => part.total.counts[at] / part.covered[at]), "/s"),
  failed: (row, part, columns) => linear(row, columns.map(({ at }) => shareFailed(part, at) || 0), "%"),
  packets: (row, part, columns) => linear(row, columns.map(({ at }) => part.hops[at] / part.covered[at]), "/s"),
};

const shareFailed = (part, at) => (part.total.counts[at] ? (100 * part.total.failed[at]) / part.total.counts[at] : null);

function spread(values, y, room) {
  const kept = [];
  for (const value of values) {
    if (!kept.length || Math.abs(y(value) - y(kept[kept.length - 1])) >= room * textScale()) kept.push(value);
  }
  return kept;
}

function linear(row, values, unit) {
  const most = Math.max(0, ...values), top = roundUp(most);
  const y = (value) => row.top + row.height - (top ? (value / top) * (row.height - 6) : 0);
  const text = (value) => `${Number(value.toPrecision(3)).toLocaleString("en", { maximumFractionDigits: 3 })}${unit === "%" ? " %" : unit}`;
  return { y, top, ticks: top ? [{ at: y(top), text: text(top) }, { at: y(0), text: "0" }] : [{ at: y(0), text: "0" }] };
}

function roundUp(value) {
  if (!value) return 0;
  const decade = Math.pow(10, Math.floor(Math.log10(value)));
  return [1, 2, 3, 5, 10].find((size) => size * decade >= value) * decade;
}

function drawGrid(context, axis, left, width) {
  context.strokeStyle = palette.grid;
  for (const tick of axis.ticks) {
    context.beginPath();
    context.moveTo(left, Math.round(tick.at) + 0.5);
    context.lineTo(width, Math.round(tick.at) + 0.5);
    context.stroke();
  }
}

const DRAW = {
  latency(context, row, part, columns, axis, worst) {
    const course = row.course, [middle, ninety, high] = course.percentiles;
    if (axis.empty) return label(context, "no request of it in view", context.canvas.clientWidth / 2, row.top + row.height / 2 + 4, "center", palette.faint, 12);
    for (const run of runsOf(columns, course)) {
      band(context, run, axis.y, high, middle, 0.18);
      band(context, run, axis.y, ninety, middle, 0.34);
      line(context, run, axis.y, high, palette.classes[0], 1);
      line(context, run, axis.y, middle, palette.classes[0], 2);
    }
    for (const { at, middle: x } of columns) {
      if (!course.counts[at] || course.counts[at] >= FEW_REQUESTS || middle[at] === null) continue;
      dot(context, x, axis.y(middle[at]), 2.4, false);
      if (high[at] !== middle[at]) dot(context, x, axis.y(high[at]), 2, true);
    }
    markSlow(context, row, part, columns, worst);
  },
  requests(context, row, part, columns, axis) {
    bars(context, row, columns, axis, (at) => part.total.counts[at] / part.covered[at], palette.classes[0]);
  },
  failed: (context, row, part, columns, axis) => {
    bars(context, row, columns, axis, (at) => shareFailed(part, at) || 0, palette.classes[4]);
    if (!axis.top) label(context, "no request failed", context.canvas.clientWidth / 2, row.top + row.height / 2 + 4, "center", palette.faint, 12);
  },
  packets(context, row, part, columns, axis) {
    bars(context, row, columns, axis, (at) => part.hops[at] / part.covered[at], palette.classes[5]);
    const most = Math.max(0, ...columns.map(({ at }) => part.lost[at]));
    for (const { at, from, to } of columns) {
      if (!part.lost[at]) continue;
      const height = Math.max(3, (part.lost[at] / most) * row.height * 0.6);
      context.fillStyle = palette.classes[4];
      context.fillRect(from, row.top, Math.max(1.5, to - from - (to - from > 4 ? 1 : 0)), height);
    }
  },
};

// Successive columns with enough requests for a band.
function runsOf(columns, course) {
  const runs = [];
  let run = [];
  for (const column of columns) {
    const fits = course.counts[column.at] >= FEW_REQUESTS && course.percentiles[0][column.at] !== null;
    if (run.length && (!fits || column.at !== run[run.length - 1].at + 1)) {
      runs.push(run);
      run = [];
    }
    if (fits) run.push(column);
  }
  return run.length ? [...runs, run] : runs;
}

function band(context, run, y, upper, lower, strength) {
  context.globalAlpha = strength;
  context.fillStyle = palette.classes[0];
  context.beginPath();
  for (const { at, from, to } of run) {
    context.lineTo(from, y(upper[at]));
    context.lineTo(to, y(upper[at]));
  }
  for (const { at, from, to } of [...run].reverse()) {
    context.lineTo(to, y(lower[at]));
    context.lineTo(from, y(lower[at]));
  }
  context.fill();
  context.globalAlpha = 1;
}

function line(context, run, y, values, colour, width) {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.beginPath();
  for (const { at, from, to } of run) {
    context.lineTo(from, y(values[at]));
    context.lineTo(to, y(values[at]));
  }
  context.stroke();
  context.lineWidth = 1;
}

function dot(context, x, y, size, hollow) {
  context.beginPath();
  context.arc(x, y, size, 0, 2 * Math.PI);
  context.strokeStyle = context.fillStyle = palette.classes[0];
  if (hollow) context.stroke();
  else context.fill();
}

function bars(context, row, columns, axis, value, colour) {
  context.fillStyle = colour;
  for (const { at, from, to } of columns) {
    const top = axis.y(value(at)), height = row.top + row.height - top;
    if (height > 0) context.fillRect(from, top, Math.max(0.8, to - from - (to - from > 4 ? 1 : 0)), height);
  }
}

function markSlow(context, row, part, columns, worst) {
  const slow = new Set(worst.filter((each) => each.class === row.course.number).map((each) => Math.floor((each.at - part.from) / part.step)));
  let last = -Infinity;
  for (const { at, middle } of columns) {
    if (!slow.has(at) || middle - last < 7) continue;
    last = middle;
    triangle(context, middle, row.top + 1);
  }
}

/** Marks a slow minute: its point is at the bottom. */
export function triangle(context, x, y) {
  const size = 5 * textScale();
  context.fillStyle = palette.classes[4];
  context.beginPath();
  context.moveTo(x - size, y);
  context.lineTo(x + size, y);
  context.lineTo(x, y + 1.6 * size);
  context.fill();
}

const NAMES = {
  requests: ["requests/s", "chosen classes"],
  failed: ["failed", "share, chosen classes"],
  packets: ["packets/s", "red, from above: lost"],
};

function drawLabels(context, row, axis, left, columns) {
  const scale = textScale();
  context.font = font(11);
  const room = Math.max(0, ...axis.ticks.map((tick) => context.measureText(tick.text).width)) + 18;
  for (const tick of axis.ticks) {
    const y = Math.min(Math.max(tick.at + 4, row.top + 9 * scale), row.top + row.height);
    label(context, tick.text, left - 6, y, "right", palette.faint, 11);
  }
  const [name, about] = row.kind === "latency" ? splitWords(row.course.words) : NAMES[row.kind];
  const total = row.kind === "latency" ? columns.reduce((sum, { at }) => sum + row.course.counts[at], 0) : null;
  label(context, fit(context, name, left - room, 13, "600"), 10, row.top + 13 * scale, "left", palette.ink, 13, "600");
  if (row.height > 30 * scale) label(context, fit(context, about, left - room, 11), 10, row.top + 27 * scale, "left", palette.faint, 11);
  if (total !== null && row.height > 44 * scale) label(context, `${total.toLocaleString("en")} here`, 10, row.top + 41 * scale, "left", palette.faint, 11);
}

// `PUT at swift-proxy on proxy1` in two lines.
function splitWords(words) {
  const at = words.indexOf(" at ");
  return at < 0 ? [words, ""] : [words.slice(0, at), words.slice(at + 4)];
}

function fit(context, text, width, size, weight = "") {
  context.font = font(size, weight);
  if (context.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > width) end -= 1;
  return `${text.slice(0, end)}…`;
}

function drawCursor(context, scene, x, left, width, height) {
  for (const [at, size] of [[scene.cursor, 2], [scene.hover, 1]]) {
    if (at === null) continue;
    const place = x(at);
    if (place < left || place > width) continue;
    context.strokeStyle = palette.accent;
    context.lineWidth = size;
    context.beginPath();
    context.moveTo(place, RULER * textScale() - 4);
    context.lineTo(place, height);
    context.stroke();
    context.lineWidth = 1;
  }
}

function label(context, text, x, y, align, colour, size, weight = "") {
  context.font = font(size, weight);
  context.textAlign = align;
  context.fillStyle = colour;
  context.fillText(text, x, y);
}

/** All of the series in a strip: requests, slow minutes, periods, and the window in view. */
export function drawStrip(context, width, height, scene) {
  const { part, span } = scene, x = (at) => ((at - span[0]) / (span[1] - span[0])) * width;
  context.clearRect(0, 0, width, height);
  const band = 9 * textScale(), ruler = 15 * textScale(), bottom = height - band - 3 - ruler;
  if (part) {
    const rate = (at) => part.total.counts[at] / part.covered[at];
    const most = Math.max(0, ...part.covered.map((covered, at) => (covered ? rate(at) : 0)));
    context.fillStyle = palette.classes[5];
    part.covered.forEach((covered, at) => {
      if (!covered || !most) return;
      const from = x(part.from + at * part.step), to = x(part.from + (at + 1) * part.step);
      const size = (rate(at) / most) * (bottom - 10);
      context.fillRect(from, bottom - size, Math.max(0.8, to - from - (to - from > 4 ? 1 : 0)), size);
    });
  }
  const places = new Set(scene.worst.map((each) => Math.round(x(each.at) / 5) * 5));
  for (const place of places) triangle(context, place, 1);
  drawPeriods(context, { ...scene, length: Infinity }, x, 0, width, bottom + 2, band);
  for (const tick of calendarTicks(span[0], span[1], width)) {
    context.font = font(11);
    const half = context.measureText(tick.text).width / 2, at = x(tick.at);
    if (at - half > 0 && at + half < width) label(context, tick.text, at, height - 3, "center", palette.faint, 11);
  }
  const from = x(scene.from), to = x(scene.to);
  context.fillStyle = palette.band;
  context.fillRect(from, 0, Math.max(2, to - from), height - ruler);
  context.strokeStyle = palette.accent;
  context.strokeRect(from + 0.5, 0.5, Math.max(2, to - from) - 1, height - ruler - 1);
}
