// Hosts become rows: in the user's order, hidden, grouped or split into services.

import assert from "node:assert/strict";
import test, { beforeEach } from "node:test";
import { formatAddress, parseAddress } from "../../../viewer/assets/data/address.js";
import { listen } from "../../../viewer/assets/data/events.js";
import {
  arrange, groupLanes, hideLanes, lanesQuery, mergeLanes, moveLane, NO_ROW, placeArrows, resetLanes, rowName, rowOfLane, rowsCovered, rowsOfPair, rowTable, renameRow, takeApart, undoNames,
  showLanes, splitLanes, toggleGroup, toggleSplit, wantedRows, waysToSplit,
} from "../../../viewer/assets/data/rows.js";
import { cleanName, hostText, withShownNames } from "../../../viewer/assets/data/names.js";
import { makeView } from "../../../viewer/assets/data/view.js";
import { describeTrace, META } from "./fixtures.mjs";

const names = () => rowTable.rows.map(rowName);

beforeEach(() => {
  describeTrace();
  resetLanes();
});

test("at first each host is a row, and a pair of hosts a pair of rows", () => {
  assert.deepEqual(names(), META.lanes);
  assert.deepEqual(rowsOfPair(2), [1, 2]);
  assert.deepEqual(rowsOfPair(5), [2, NO_ROW], "an uncaptured host has no row");
});

test("a host is moved to the place of another", () => {
  moveLane(0, 2);
  assert.deepEqual(names(), ["proxy", "storage1", "client", "storage2"]);
  moveLane(0, 1);
  assert.deepEqual(names(), META.lanes);
});

test("a hidden host has no row, and is shown again", () => {
  hideLanes([1]);
  assert.deepEqual(names(), ["client", "storage1", "storage2"]);
  assert.equal(rowOfLane(1), NO_ROW);
  assert.deepEqual(rowsOfPair(0), [0, NO_ROW]);
  showLanes([1]);
  assert.deepEqual(names(), META.lanes);
});

test("hosts of a group are one row until it is opened", () => {
  groupLanes("prefix");
  assert.deepEqual(names(), ["client", "proxy", "storage"]);
  assert.deepEqual([rowsOfPair(2), rowsOfPair(4)], [[1, 2], [1, 2]]);
  toggleGroup("storage");
  assert.deepEqual(names(), ["client", "proxy", "storage", "storage1", "storage2"]);
  assert.deepEqual(rowsOfPair(4), [1, 4]);
});

test("a split host has a row for what it asks and one for each service", () => {
  splitLanes([2], "services");
  assert.deepEqual(names(), ["client", "proxy", "storage1", "swift-object", "swift-account", "storage2"]);
  assert.deepEqual([rowsOfPair(2), rowsOfPair(3)], [[1, 3], [1, 4]]);
});

test("a host that is split by process has a row for each, what is not known the last", () => {
  splitLanes([2], "processes");
  assert.deepEqual(names(), ["client", "proxy", "storage1", "swift (object)", "nginx", "unknown", "storage2"]);
  assert.deepEqual([rowsOfPair(2), rowsOfPair(3), rowsOfPair(5)], [[1, 3], [1, 5], [4, NO_ROW]]);
  toggleSplit(2, "services");
  assert.deepEqual(names().slice(2, 5), ["storage1", "swift-object", "swift-account"]);
  toggleSplit(2, "services");
  assert.deepEqual(names(), META.lanes);
});

test("a host is split by process only where one is known", () => {
  assert.deepEqual([0, 1, 2, 3].map(waysToSplit), [["processes"], [], ["services", "processes"], ["processes"]]);
  describeTrace({ ...META, processes: [] });
  resetLanes();
  assert.deepEqual([0, 1, 2, 3].map(waysToSplit), [[], [], ["services"], []]);
  splitLanes([2], "processes");
  assert.deepEqual(names(), META.lanes, "an address of another trace");
});

test("what is split is in the address, and read from it", () => {
  splitLanes([2, 3], "processes");
  splitLanes([1], "services");
  const state = /** @type {any} */ ({ from: 0, to: 1, selection: { request: null, hop: null }, hidden: new Set() });
  const address = formatAddress(state);
  assert.match(address, /split=1&processes=2-3/);
  const before = names();
  resetLanes();
  parseAddress(address, /** @type {any} */ (META));
  arrange();
  assert.deepEqual(names(), before);
});

test("arrows follow the rows, and keep their places until these change", () => {
  const arrows = /** @type {any} */ ({ pair: Uint16Array.from([0, 4]) });
  placeArrows(arrows);
  assert.deepEqual([[...arrows.fromRow], [...arrows.toRow]], [[0, 1], [1, 3]]);
  const before = arrows.fromRow;
  assert.equal(placeArrows(arrows).fromRow, before);
  hideLanes([0]);
  placeArrows(arrows);
  assert.deepEqual([[...arrows.fromRow], [...arrows.toRow]], [[NO_ROW, 0], [0, 2]]);
});

test("each change of the rows is announced once", () => {
  let heard = 0;
  listen("arranged", () => (heard += 1));
  hideLanes([1, 2]);
  assert.equal(heard, 1);
});

test("where counts are kept by end, the rows in sight are asked for, as ranges", () => {
  describeTrace({ ...META, ends: [[0, 255, 2], [1, 0, 1], [1, 255, 1], [2, 1, 3], [2, 2, 1], [3, 1, 3]] });
  resetLanes();
  const view = makeView(0, 1, 1000, 500, 30, 4), wanted = wantedRows(view);
  assert.deepEqual(wanted, { query: "&rows=0,1-2,3-4,5", numbers: [0, 1, 2, 3] });
  const data = /** @type {any} */ ({ mode: "ends", rows: wanted.numbers, arranged: rowTable.version });
  assert.ok(rowsCovered(data, view));
  assert.ok(!rowsCovered({ ...data, rows: [0, 1] }, view));
  hideLanes([3]);
  assert.ok(!rowsCovered(data, view), "counts of rows as they were before");
});

const reread = () => {
  const address = formatAddress({ from: 0, to: 1, selection: { request: null, hop: null }, hidden: new Set() });
  resetLanes();
  parseAddress(address, META);
  arrange();
};

test("a host has the name that the user gives it, also after a reload, until it is taken back", () => {
  renameRow(rowTable.rows[1], "  frönt 🦊\u202e\n3:x & <b> ");
  assert.deepEqual(names(), ["client", "frönt 🦊  3:x & <b>", "storage1", "storage2"]);
  reread();
  assert.deepEqual(names(), ["client", "frönt 🦊  3:x & <b>", "storage1", "storage2"]);
  assert.equal(withShownNames("data: client → proxy (proxy)"), "data: client → frönt 🦊  3:x & <b> (proxy)");
  assert.equal(withShownNames("GET /proxy → 200"), "GET /proxy → 200");
  renameRow(rowTable.rows[1], "");
  assert.deepEqual(names(), META.lanes);
  undoNames();
  assert.equal(names()[1], "frönt 🦊  3:x & <b>");
});

test("a name is bounded in signs, not halves of them", () => {
  assert.equal(cleanName("🦊".repeat(50)), "🦊".repeat(40));
  assert.equal(cleanName(" \u0000\u200f "), "");
});

test("merged hosts are one row, whose own packets are within it", () => {
  mergeLanes([3, 2]);
  assert.deepEqual(names(), ["client", "proxy", "storage1 + storage2"]);
  assert.deepEqual([rowOfLane(2), rowOfLane(3), rowsOfPair(4)], [2, 2, [1, 2]]);
  assert.equal(lanesQuery([1, 2]), "1,2-3");
  renameRow(rowTable.rows[2], "pool");
  mergeLanes([1, 3]);
  assert.deepEqual(names(), ["client", "pool"], "what is merged with one of them is merged with all");
  assert.equal(hostText(3, "?"), "pool (storage2)");
  assert.deepEqual(rowsOfPair(4), [1, 1]);
  reread();
  assert.deepEqual(names(), ["client", "pool"]);
  hideLanes([1]);
  assert.deepEqual(names(), ["client", "pool"]);
  takeApart(2);
  assert.deepEqual(names(), ["client", "storage1", "storage2"]);
});

test("an address that makes no sense merges and renames nothing", () => {
  for (const text of ["names=9:x%0A1%0Ax:y%0A1:", "merge=2:x%0A9.8:y%0A2.2:z%0A1.99:w"]) parseAddress(`#${text}`, META);
  arrange();
  assert.deepEqual(names(), META.lanes);
  parseAddress("#merge=1.2:a%0A2.3:b", META);
  arrange();
  assert.deepEqual(names(), ["client", "a", "storage2"], "a host is merged once");
});
