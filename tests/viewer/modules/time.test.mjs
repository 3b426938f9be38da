// Durations, times to the nanosecond, and the ruler's ticks.

import assert from "node:assert/strict";
import test from "node:test";
import { duration, exactTime, ticks } from "../../../viewer/assets/data/time.js";

const HOUR = 3_600_000_000_000;

for (const [ns, text] of [
  [0, "0 ns"], [999, "999 ns"], [1_000, "1.00 µs"], [73_200_000, "73.2 ms"], [-1_500_000, "-1.50 ms"],
  [60e9, "60.0 s"], [123_456e9, "123456 s"],
]) {
  test(`${ns} ns is written as ${text}`, () => assert.equal(duration(ns), text));
}

for (const [ns, text] of [
  [0, "0.000 000 000 s"], [40_907_790, "0.040 907 790 s"], [-1, "-0.000 000 001 s"], [HOUR + 7, "3600.000 000 007 s"],
  [2 ** 52 + 1, "4503599.627 370 497 s"],
]) {
  test(`${ns} ns is the time ${text}`, () => assert.equal(exactTime(ns), text));
}

for (const [from, to, base, first] of [
  [0, 60e9, "", "0 s"], [0, 1e6, "", "0.0 ms"], [40e6, 45e6, "", "40 ms"], [40e6, 40_010_000, "", "40.000 ms"],
  [40e6, 40e6 + 40, "0.040 s", "+0 ns"], [HOUR, HOUR + 5000, "3600.000 s", "+0 µs"],
  [HOUR + 123, HOUR + 163, "3600.000 s", "+125 ns"],
]) {
  test(`ticks from ${from} to ${to} begin with ${base} ${first}`, () => {
    const { base: text, texts, values, step } = ticks(from, to, 900);
    assert.deepEqual([text, texts[0]], [base, first]);
    assert.ok(values.length >= 4 && values.length <= 10, `${values.length} ticks`);
    assert.equal(new Set(texts).size, texts.length);
    assert.ok(values.every((value) => value % step === 0 && value >= from && value <= to));
  });
}

test("a narrow ruler has fewer ticks than a wide one", () => {
  assert.ok(ticks(0, 1e9, 300).values.length < ticks(0, 1e9, 1500).values.length);
});
