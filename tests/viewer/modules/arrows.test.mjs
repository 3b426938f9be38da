// Where arrows are, which one is pointed at, and how counts lie in bins.

import assert from "node:assert/strict";
import test from "node:test";
import { CLASS, CLASS_NAMES } from "../../../viewer/assets/data/constants.js";
import { withEnds } from "../../../viewer/assets/data/message.js";
import { placeArrows, resetLanes } from "../../../viewer/assets/data/rows.js";
import { makeView } from "../../../viewer/assets/data/view.js";
import { arrowEnds, drawArrows, nearestArrow } from "../../../viewer/assets/draw/arrows.js";
import { binAt, troubleStrength } from "../../../viewer/assets/draw/density.js";
import { HEADS, LINE_DASHES, LINE_WIDTHS, palette, readPalette } from "../../../viewer/assets/draw/palette.js";
import { describeTrace, META } from "./fixtures.mjs";

describeTrace();
resetLanes();

/** Arrows of [pair, sent, received, class]. */
function arrowsOf(...packets) {
  const column = (at) => packets.map((packet) => packet[at]);
  const arrows = {
    number: Uint32Array.from(packets.keys()), pair: Uint16Array.from(column(0)), sent: Float64Array.from(column(1)),
    received: Float64Array.from(column(2)), cls: Uint8Array.from(column(3)), kind: new Uint8Array(packets.length),
    attempt: new Uint8Array(packets.length).fill(1), size: new Uint32Array(packets.length),
  };
  return placeArrows(withEnds(/** @type {any} */ (arrows), META));
}

const VIEW = makeView(0, 10_000, 1000, 500, 30, 4);

test("an arrow runs from its send on one row to its receive on another", () => {
  const arrows = arrowsOf([0, 1000, 3000, CLASS.DATA]);
  assert.deepEqual(arrowEnds(VIEW, arrows, 0), [100, VIEW.y(0), 300, VIEW.y(1)]);
});

test("an end that was not seen is as far away as is usual for its pair", () => {
  const arrows = arrowsOf([0, 5000, NaN, CLASS.LOST], [2, NaN, 5000, CLASS.ONE_SIDED]);
  assert.deepEqual([...arrows.begin, ...arrows.end], [5000, 3000, 6000, 5000]);
});

test("an end on no row is a stub towards a neighbouring one", () => {
  const [, y1, , y2] = arrowEnds(VIEW, arrowsOf([5, 0, 1000, CLASS.DATA]), 0);
  assert.equal(y1, VIEW.y(2));
  assert.ok(y2 > y1 && y2 < VIEW.y(3));
});

test("what was received before it was sent is early, unless it is a problem already", () => {
  const arrows = arrowsOf([0, 3000, 1000, CLASS.DATA], [0, 3000, 1000, CLASS.RETRANSMISSION]);
  assert.deepEqual([...arrows.cls], [CLASS.EARLY, CLASS.RETRANSMISSION]);
  assert.deepEqual(arrows.byClass[CLASS.EARLY], [0]);
});

test("the nearest arrow within reach is pointed at, hidden classes are not", () => {
  const arrows = arrowsOf([0, 1000, 1000, CLASS.DATA], [0, 1100, 1100, CLASS.ACK]), y = (VIEW.y(0) + VIEW.y(1)) / 2;
  assert.equal(nearestArrow(VIEW, arrows, new Set(), 102, y, 8), 0);
  assert.equal(nearestArrow(VIEW, arrows, new Set(), 108, y, 8), 1);
  assert.equal(nearestArrow(VIEW, arrows, new Set([CLASS.DATA]), 102, y, 9), 1);
  assert.equal(nearestArrow(VIEW, arrows, new Set(), 200, y, 8), -1);
});

/** A canvas's context that only counts what is called. */
const countingContext = () => {
  const calls = {};
  return new Proxy({ calls }, {
    get: (target, name) => (name === "calls" ? calls : name === "measureText" ? () => ({ width: 50 })
      : target[name] ?? (() => (calls[name] = (calls[name] || 0) + 1))),
  });
};

test("arrows in view are drawn and counted, those outside and those hidden are not", () => {
  const arrows = arrowsOf([0, 1000, 2000, CLASS.DATA], [2, 20_000, 21_000, CLASS.DATA], [2, 3000, 4000, CLASS.ACK]);
  const draw = (hidden) => {
    const context = countingContext();
    return [drawArrows(context, VIEW, arrows, { hidden, alpha: 1, moving: true }), context.calls.lineTo];
  };
  assert.equal(draw(new Set())[0], 2);
  assert.equal(draw(new Set([CLASS.ACK]))[0], 1);
  assert.ok(draw(new Set())[1] > draw(new Set([CLASS.ACK]))[1]);
});

test("counts under the cursor are those of its bin, without hidden classes", () => {
  const density = /** @type {any} */ ({
    mode: "density", from: 0, to: 400, bin: 100, bins: 4, classes: 7, cells: Uint32Array.from([0, 4, 7]),
    counts: Uint8Array.from([1, 2, 3, 4, 0, 5, 0, 0, 10, 20, 30, 40]),
  });
  assert.deepEqual(binAt(density, 150, new Set()), { from: 100, width: 100, byClass: [22, 0, 0, 0, 5, 0, 0] });
  assert.deepEqual(binAt(density, 150, new Set([0])).byClass, [0, 0, 0, 0, 5, 0, 0]);
  assert.equal(binAt(density, -1, new Set()), null);
  assert.equal(binAt(density, 400, new Set()), null);
});

test("trouble is shown in full from a fifth of the packets on", () => {
  assert.deepEqual([troubleStrength(1, 4), troubleStrength(1, 0)], [1, 1]);
  assert.ok(troubleStrength(1, 99) < troubleStrength(1, 9));
});

test("every class has a width, a dash, a head and a colour of the style sheet", () => {
  const asked = [];
  globalThis.document = /** @type {any} */ ({ documentElement: {} });
  globalThis.getComputedStyle = /** @type {any} */ (() => ({ getPropertyValue: (name) => asked.push(name) && ` ${name} ` }));
  readPalette();
  assert.deepEqual(palette.classes, CLASS_NAMES.map((name) => `--arrow-${name}`));
  assert.ok(asked.includes("--ink-faint"));
  for (const list of [LINE_WIDTHS, LINE_DASHES, HEADS]) assert.equal(list.length, CLASS_NAMES.length);
});
