// The page's address: what is written is read back, and what nobody wrote is refused.

import assert from "node:assert/strict";
import test from "node:test";
import { addAddressPart, formatAddress, furtherParts, parseAddress } from "../../../viewer/assets/data/address.js";
import { arrangement } from "../../../viewer/assets/data/rows.js";
import { describeTrace, META } from "./fixtures.mjs";

describeTrace();
const kept = { text: "" };
addAddressPart("note", { read: (text) => (kept.text = text || ""), write: () => kept.text });

for (const [name, state] of [
  ["a view", { from: -15, to: 2e9, selection: { request: null, hop: null }, hidden: new Set() }],
  ["a request", { from: 1, to: 2, selection: { request: 3, hop: null }, hidden: new Set([1, 2]) }],
  ["a packet", { from: 0, to: 9, selection: { request: 0, hop: 99 }, hidden: new Set([6]) }],
]) {
  test(`${name} is read back`, () => {
    const read = parseAddress(formatAddress(state), META);
    assert.deepEqual(read, { view: [state.from, state.to], ...state.selection, hidden: state.hidden });
  });
}

test("a request is numbered from 1 where people see it", () => {
  const state = { from: 0.4, to: 9.6, selection: { request: 0, hop: null }, hidden: new Set() };
  assert.ok(formatAddress(state).startsWith("#from=0&to=10&request=1"));
});

test("what is outside the trace, or no number, is nothing", () => {
  const read = parseAddress("#from=9&to=3&request=6&hop=100&hide=7,x,2", META);
  assert.deepEqual(read, { view: null, request: null, hop: null, hidden: new Set([2]) });
  assert.deepEqual(parseAddress("#from=1e3&to=2e3", META).view, null);
  assert.deepEqual(parseAddress("", META), { view: null, request: null, hop: null, hidden: new Set() });
});

test("a further part is encoded, read back, and part of the text of all", () => {
  kept.text = "a&b=#ü";
  const written = formatAddress({ from: 0, to: 1, selection: { request: null, hop: null }, hidden: new Set() });
  kept.text = "";
  parseAddress(written, META);
  assert.equal(kept.text, "a&b=#ü");
  assert.ok(furtherParts().includes("a&b=#ü"));
});

test("the arrangement of hosts is a part: order, hidden, split, group", () => {
  parseAddress("#lanes=2,0-1&off=3,9&split=2&group=role&open=object", META);
  assert.deepEqual(arrangement.order, [2, 0, 1]);
  assert.deepEqual([...arrangement.hidden], [3]);
  assert.deepEqual([...arrangement.split], [2]);
  assert.deepEqual([arrangement.group, [...arrangement.open]], ["role", ["object"]]);
  const written = formatAddress({ from: 0, to: 1, selection: { request: null, hop: null }, hidden: new Set() });
  for (const part of ["lanes=2%2C0-1", "off=3", "split=2", "group=role", "open=object"]) assert.ok(written.includes(part), part);
  parseAddress("#", META);
  assert.deepEqual([arrangement.order, arrangement.group, arrangement.hidden.size], [[], "none", 0]);
});
