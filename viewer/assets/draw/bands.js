// Over the counts of packets, which are drawn faint behind them: upwards from each host's line how slow the requests were
// that it served, downwards how many of them at once. A host that served none has no band.

import { rowTable } from "../data/rows.js";
import { rowsInSight } from "../data/view.js";
import { palette } from "./palette.js";

const BEHIND_ALPHA = 0.3; // of the counts of packets but for problems
const FULL_RATIO = 32; // times as long as usual: a full bar
const LEAST_PX = 1.5; // where there is any request
const FILL_ALPHA = 0.8;

/** Whether the bands are in the picture: only where packets are counted, on the trace's timescale. @param {State} state */
export const showsBands = (state) =>
  Boolean(state.withBands && state.bands && !state.raw && !state.only && state.data && state.data.mode !== "arrows");

/** The alpha of the counts of packets that are no problems. @param {State} state */
export const countsAlpha = (state) => (showsBands(state) ? BEHIND_ALPHA : 1);

/** The rows in sight that have a band, with their places in the message. @param {Bands} bands @param {View} view */
function bandsInSight(bands, view) {
  const [first, last] = rowsInSight(view), isCurrent = bands.arranged === rowTable.version;
  return bands.rows.map((row, at) => ({ row, at }))
    .filter(({ row, at }) => isCurrent && bands.served[at] && row >= first && row <= last);
}

/** @param {CanvasContext} context @param {View} view @param {Bands} bands @param {number} alpha */
export function drawBands(context, view, bands, alpha) {
  context.save();
  context.globalAlpha = alpha * FILL_ALPHA;
  for (const { row, at } of bandsInSight(bands, view)) {
    context.fillStyle = palette.slow;
    area(context, view, bands, view.y(row), (bin) => -slowHeight(view, bands, at * bands.bins + bin));
    context.fillStyle = palette.atOnce;
    area(context, view, bands, view.y(row), (bin) => crowdHeight(view, bands, at * bands.bins + bin));
  }
  context.restore();
}

/** Between the row's line and the heights of the bins in sight. @param {CanvasContext} context @param {View} view @param {Bands} bands */
function area(context, view, bands, y, heightOf) {
  const first = Math.max(0, Math.floor((view.from - bands.from) / bands.bin));
  const end = Math.min(bands.bins, Math.ceil((view.to - bands.from) / bands.bin));
  if (end <= first) return;
  const x = (bin) => view.x(bands.from + bin * bands.bin);
  context.beginPath();
  context.moveTo(x(first), y);
  for (let bin = first; bin < end; bin++) {
    const height = heightOf(bin);
    context.lineTo(x(bin), y + height);
    context.lineTo(x(bin + 1), y + height);
  }
  context.lineTo(x(end), y);
  context.closePath();
  context.fill();
}

/** @param {View} view @param {Bands} bands @param {number} cell */
function slowHeight(view, bands, cell) {
  if (!bands.ratio[cell]) return 0;
  return Math.max(LEAST_PX, Math.min(1, Math.log(bands.ratio[cell] / 100) / Math.log(FULL_RATIO)) * view.bar);
}

/** As bars of packets: by the root, so that quiet hosts are seen beside busy ones. @param {View} view @param {Bands} bands @param {number} cell */
function crowdHeight(view, bands, cell) {
  if (!bands.atOnce[cell]) return 0;
  return Math.max(LEAST_PX, Math.sqrt(Math.min(1, bands.atOnce[cell] / bands.mostAtOnce)) * view.bar);
}

/**
 * The bin of a band at a point; null where there is none.
 * @param {View} view @param {Bands} bands @param {number} x @param {number} y @returns {BandBin | null}
 */
export function bandAt(view, bands, x, y) {
  const found = bandsInSight(bands, view).find(({ row }) => Math.abs(y - view.y(row)) <= view.bar + 2);
  const bin = Math.floor((view.time(x) - bands.from) / bands.bin);
  if (!found || bin < 0 || bin >= bands.bins) return null;
  const cell = found.at * bands.bins + bin, from = bands.from + bin * bands.bin;
  return {
    row: found.row, from, to: from + bands.bin,
    requests: bands.requests[cell], atOnce: bands.atOnce[cell], ratio: bands.ratio[cell] / 100,
  };
}

/** The legend's sign: a rise above a line, and a fall below. @param {HTMLCanvasElement} chip */
export function drawBandsChip(chip) {
  const context = chip.getContext("2d");
  context.setTransform(2, 0, 0, 2, 0, 0);
  context.clearRect(0, 0, 22, 12);
  context.fillStyle = palette.slow;
  context.fillRect(2, 4, 6, 2);
  context.fillRect(8, 1, 6, 5);
  context.fillStyle = palette.atOnce;
  context.fillRect(2, 6, 12, 2);
  context.fillRect(14, 6, 6, 5);
}
