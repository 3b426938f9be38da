// Messages as the server encodes them: `TWINTAP_MESSAGES` is a folder of `NAME.bin` and of what is in it, `NAME.json`
// (written by tests/viewer/test_assets.py).

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";
import { decodeMessage } from "../../../viewer/assets/data/message.js";
import { describeTrace, META } from "./fixtures.mjs";

const folder = process.env.TWINTAP_MESSAGES;
const names = folder ? readdirSync(folder).filter((name) => name.endsWith(".bin")).map((name) => name.slice(0, -4)) : [];

for (const name of names) {
  test(`the message ${name} is read as it was encoded`, () => {
    const bytes = readFileSync(join(folder, `${name}.bin`)), expected = JSON.parse(readFileSync(join(folder, `${name}.json`), "utf8"));
    const message = decodeMessage(new Uint8Array(bytes).buffer);
    for (const [key, value] of Object.entries(expected.header)) assert.deepEqual(message[key], value, key);
    for (const [key, { array, values }] of Object.entries(expected.columns)) {
      assert.equal(message[key].constructor.name, array, key);
      assert.deepEqual([...message[key]].map((value) => (Number.isNaN(value) ? null : value)), values, key);
    }
    assert.deepEqual(message.columns.map((each) => each.name), Object.keys(expected.columns));
  });
}

test("an arrow's lanes are those of its pair", () => {
  describeTrace();
  const header = new TextEncoder().encode(
    JSON.stringify({ mode: "arrows", columns: [{ name: "pair", dtype: "u2", offset: 0, length: 2 }] }).padEnd(92),
  );
  const bytes = new Uint8Array(4 + 92 + 4);
  new DataView(bytes.buffer).setUint32(0, 92, true);
  bytes.set(header, 4);
  bytes.set([2, 0, 5, 0], 96);
  const message = decodeMessage(bytes.buffer);
  assert.deepEqual([...message.source], [META.pairs[2][0], META.pairs[5][0]]);
  assert.deepEqual([...message.target], [META.pairs[2][1], META.pairs[5][1]]);
});

test("there are messages to read", { skip: folder ? false : "TWINTAP_MESSAGES is not set" }, () => assert.ok(names.length >= 3));
