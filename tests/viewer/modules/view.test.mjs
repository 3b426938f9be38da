// Where times and rows are on the canvas.

import assert from "node:assert/strict";
import test from "node:test";
import { makeView, rowsInSight, wholeView } from "../../../viewer/assets/data/view.js";

test("a time and its place are each other's inverse, to the nanosecond at any depth", () => {
  for (const [from, to] of [[0, 1e9], [3.6e12, 3.6e12 + 40], [-15, 1015]]) {
    const view = makeView(from, to, 1000, 500, 30, 5);
    for (const share of [0, 0.25, 0.5, 1]) {
      const time = from + share * (to - from);
      assert.ok(Math.abs(view.time(view.x(time)) - time) < 1e-3);
    }
    assert.equal(view.x(from), 0);
    assert.equal(view.x(to), 1000);
  }
});

test("rows that fit are all in sight, below the ruler and at equal distances", () => {
  const view = makeView(0, 1, 1000, 500, 30, 5);
  assert.deepEqual(rowsInSight(view), [0, 4]);
  assert.equal(view.content, 500);
  for (let row = 0; row < 5; row++) assert.ok(view.y(row) > 30 && view.y(row) < 500);
  assert.ok(Math.abs(view.y(4) - view.y(3) - view.gap) < 1e-9);
});

test("rows that do not fit are scrolled to, at most to the last", () => {
  const first = makeView(0, 1, 1000, 500, 30, 200), last = makeView(0, 1, 1000, 500, 30, 200, 1e9);
  assert.ok(first.content > 500);
  assert.equal(last.scroll, first.content - 500);
  assert.equal(rowsInSight(first)[0], 0);
  assert.equal(rowsInSight(last)[1], 199);
  assert.ok(last.shows(199) && !last.shows(0));
  assert.ok(first.shows(0) && !first.shows(199));
});

test("room that is taken below the rows moves the last one up", () => {
  const plain = makeView(0, 1, 1000, 500, 30, 5), less = makeView(0, 1, 1000, 500, 30, 5, 0, 150);
  assert.ok(less.y(4) < plain.y(4));
  assert.ok(less.y(4) < 500 - 150);
});

test("a single row stands within the canvas", () => {
  const view = makeView(0, 1, 1000, 500, 30, 1);
  assert.ok(view.y(0) > 30 && view.y(0) < 500);
});

test("the whole trace has the same room on both sides", () => {
  const [from, to] = wholeView(/** @type {any} */ ({ duration: 1000 }));
  assert.equal(from, -15);
  assert.ok(Math.abs(to - 1015) < 1e-9);
});
