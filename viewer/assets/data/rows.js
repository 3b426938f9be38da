// Which rows the timeline has: hosts in the user's order, some hidden, grouped, merged by hand, or split into their services or their
// processes. A hop ends at a lane (a host), at the process that owns the connection there and, at a connection's server, at
// a service; here this becomes a row, or none.

import { addAddressPart } from "./address.js";
import { NO_LANE, NO_SERVICE } from "./constants.js";
import { notify } from "./events.js";
import { changeLabels, cleanName, labels, laneName, mergedName, mergedOf, undoLabels } from "./names.js";
import { trace } from "./trace.js";
import { rowsInSight } from "./view.js";

export const NO_ROW = -1; // the end is on a host that is hidden or was not captured
export const GROUPINGS = ["none", "role", "prefix", "subnet"];
const AROUND = 12; // rows beyond those in sight
const FIRST_PROCESS = 2; // of `meta.processes`: those before are all others, and what is not known
const MANY_LANES = 40; // from so many on, hosts are grouped by default
export const arrangement = { order: [], hidden: new Set(), group: "none", open: new Set(), split: new Set(), byProcess: new Set() };
/** @type {{ rows: Row[], version: number }} */
export const rowTable = { rows: [], version: 0 }; // the version grows with each arrangement
let laneRows, partRows, pairRows;

/** @param {Meta} meta */
export const defaultGroup = (meta) => (meta.lanes.length > MANY_LANES ? "prefix" : "none");
/** Packets within a lone host are seen between its services. @param {Meta} meta */
export const defaultSplit = (meta) => new Set(meta.lanes.length === 1 ? [0] : []);
/** @param {LaneNumber} lane */
const groupName = (lane) => (arrangement.group === "none" ? "" : trace.meta.laneGroups[arrangement.group][lane]);

// The lanes that can be shown, in order.
export function laneOrder() {
  const known = trace.meta.lanes.map((_, lane) => lane), given = arrangement.order.filter((lane) => lane in known);
  return [...given, ...known.filter((lane) => !given.includes(lane))];
}

/** Rebuild the rows from the arrangement. */
export function arrange() {
  const groups = new Map();
  for (const lane of laneOrder()) {
    if (arrangement.hidden.has(lane)) continue;
    const name = groupName(lane), key = mergedOf(lane) || name || `lane ${lane}`;
    groups.set(key, [...(groups.get(key) || []), lane]);
  }
  rowTable.rows = [...groups].flatMap(([key, lanes]) => groupRows(key, lanes));
  place();
  rowTable.version += 1;
}

/** @param {string | import("./names.js").MergedHosts} name @param {LaneNumber[]} lanes @returns {Row[]} */
function groupRows(name, lanes) {
  if (typeof name !== "string") return [{ kind: "merged", lanes }];
  if (lanes.length === 1) return hostRows(lanes[0], false);
  const open = arrangement.open.has(name);
  /** @type {Row} */
  const head = { kind: "group", name, open, lanes: open ? [] : lanes, size: lanes.length };
  return open ? [head, ...lanes.flatMap((lane) => hostRows(lane, true))] : [head];
}

/** @param {LaneNumber} lane @param {boolean} inGroup @returns {Row[]} */
function hostRows(lane, inGroup) {
  /** @type {Row} */
  const host = { kind: "host", lane, lanes: [lane], inGroup };
  /** @type {Row[]} */
  let parts = [];
  if (arrangement.byProcess.has(lane)) {
    parts = processesOf(lane).map((process) => ({ kind: "process", lane, process, lanes: [], inGroup }));
  } else if (arrangement.split.has(lane)) {
    parts = servicesOf(lane).map((service) => ({ kind: "service", lane, service, lanes: [], inGroup }));
  }
  return parts.length ? [{ ...host, split: true }, ...parts] : [host];
}

/** @param {Row} row */
export const rowName = (row) => ({
  group: row.name, service: trace.meta.services[row.service], process: trace.meta.processes[row.process],
  host: laneName(row.lane), merged: row.kind === "merged" ? mergedName(mergedOf(row.lanes[0])) : "",
})[row.kind];

/** The services that packets went to or came from on a lane. @param {LaneNumber} lane */
export function servicesOf(lane) {
  const found = new Set();
  trace.meta.pairs.forEach(([source, target], pair) => {
    const [from, to] = trace.meta.pairServices[pair];
    if (source === lane && from !== NO_SERVICE) found.add(from);
    if (target === lane && to !== NO_SERVICE) found.add(to);
  });
  return [...found].sort((a, b) => a - b);
}

/** The processes that sent or received packets on a lane, those that are not known last. @param {LaneNumber} lane */
export function processesOf(lane) {
  if (!trace.meta.processes.length) return [];
  const found = new Set();
  trace.meta.pairs.forEach(([source, target], pair) => {
    const [from, to] = trace.meta.pairProcesses[pair];
    if (source === lane) found.add(from);
    if (target === lane) found.add(to);
  });
  const rank = (process) => (process < FIRST_PROCESS ? trace.meta.processes.length + process : process);
  return [...found].sort((a, b) => rank(a) - rank(b));
}

/** The ways in which a host can be split. @param {LaneNumber} lane @returns {SplitWay[]} */
export function waysToSplit(lane) {
  /** @type {SplitWay[]} */
  const ways = [];
  if (servicesOf(lane).length > 1 || arrangement.split.has(lane)) ways.push("services");
  if (processesOf(lane).some((process) => process >= FIRST_PROCESS)) ways.push("processes");
  return ways;
}
/** By what a host is split now. @param {LaneNumber} lane @returns {SplitWay | ""} */
export const splitOf = (lane) => (arrangement.byProcess.has(lane) ? "processes" : arrangement.split.has(lane) ? "services" : "");

function place() {
  laneRows = new Int16Array(trace.meta.lanes.length).fill(NO_ROW);
  partRows = new Map();
  rowTable.rows.forEach((row, at) => {
    for (const lane of row.lanes) laneRows[lane] = at;
    if (row.kind === "service" || row.kind === "process") partRows.set(row.lane * 256 + (row.service ?? row.process), at);
  });
  pairRows = new Int16Array(2 * trace.meta.pairs.length);
  trace.meta.pairs.forEach(([source, target], pair) => {
    const [from, to] = trace.meta.pairServices[pair], [fromProcess, toProcess] = trace.meta.pairProcesses[pair];
    pairRows[2 * pair] = rowOfEnd(source, from, fromProcess);
    pairRows[2 * pair + 1] = rowOfEnd(target, to, toProcess);
  });
}

/** @param {LaneNumber} lane @param {number} service @param {number} process */
export function rowOfEnd(lane, service, process) {
  if (lane === NO_LANE) return NO_ROW;
  const own = partRows.get(lane * 256 + (arrangement.byProcess.has(lane) ? process : service));
  return own === undefined ? laneRows[lane] : own;
}
/** @param {LaneNumber} lane */
export const rowOfLane = (lane) => (lane === NO_LANE ? NO_ROW : laneRows[lane]);
/** @param {number} pair */
export const rowsOfPair = (pair) => [pairRows[2 * pair], pairRows[2 * pair + 1]];

/** The rows at both ends of each arrow, kept until the rows change. @param {Arrows} arrows */
export function placeArrows(arrows) {
  if (!arrows || !arrows.pair || arrows.placed === rowTable.version) return arrows;
  const count = arrows.pair.length;
  [arrows.fromRow, arrows.toRow] = [new Int16Array(count), new Int16Array(count)];
  for (let at = 0; at < count; at++) {
    arrows.fromRow[at] = pairRows[2 * arrows.pair[at]];
    arrows.toRow[at] = pairRows[2 * arrows.pair[at] + 1];
  }
  arrows.placed = rowTable.version;
  return arrows;
}

/**
 * The query for the counts of the rows in sight, where counts are kept by end: places in `meta.ends`, row by row.
 * @param {View} view
 */
export function wantedRows(view) {
  if (!trace.meta.ends) return { query: "", numbers: [] };
  const [first, last] = rowsInSight(view), members = new Map();
  trace.meta.ends.forEach(([lane, service, process], end) => {
    const row = rowOfEnd(lane, service, process);
    if (row >= first - AROUND && row <= last + AROUND) members.set(row, [...(members.get(row) || []), end]);
  });
  members.delete(NO_ROW);
  const numbers = [...members.keys()];
  return { query: `&rows=${numbers.map((row) => ranges(members.get(row), ".")).join(",")}`, numbers };
}

/** Whether counts that came are of the rows in sight, as they are now. @param {View} view */
export function rowsCovered(data, view) {
  if (!data || data.mode !== "ends") return true;
  const [first, last] = rowsInSight(view), known = new Set(data.rows);
  if (data.arranged !== rowTable.version) return false;
  return trace.meta.ends.every(([lane, service, process]) => {
    const row = rowOfEnd(lane, service, process);
    return row === NO_ROW || row < first || row > last || known.has(row);
  });
}

/** The lanes of some rows as a query: row by row. @param {RowNumber[]} numbers */
export const lanesQuery = (numbers) => numbers.map((row) => ranges(ascending(rowTable.rows[row].lanes), ".")).join(",");

/** The rows in sight and around them that hold hosts. @param {View} view @returns {RowNumber[]} */
export function hostRowsAround(view) {
  const [first, last] = rowsInSight(view);
  return rowTable.rows.map((_, row) => row)
    .filter((row) => row >= first - AROUND && row <= last + AROUND && rowTable.rows[row].lanes.length);
}

// --- changes by the user

function change(act) {
  act();
  arrange();
  notify("arranged");
}

/**
 * Move a lane to the place of another: before it, or after it if it came from above.
 * @param {LaneNumber} lane @param {Ns} to
 */
export const moveLane = (lane, to) => change(() => {
  const order = laneOrder(), place = order.indexOf(to);
  order.splice(order.indexOf(lane), 1);
  order.splice(place, 0, lane);
  arrangement.order = order;
});
/** @param {LaneNumber[]} lanes */
export const hideLanes = (lanes) => change(() => lanes.forEach((lane) => arrangement.hidden.add(lane)));
/** @param {LaneNumber[]} lanes */
export const showLanes = (lanes) => change(() => lanes.forEach((lane) => arrangement.hidden.delete(lane)));
export const groupLanes = (group) => change(() => Object.assign(arrangement, { group, open: new Set() }));
/** @param {string} name */
export const toggleGroup = (name) => change(() => toggle(arrangement.open, name));
/** Split hosts in a way, or join their rows. @param {LaneNumber[]} lanes @param {SplitWay | ""} way */
export const splitLanes = (lanes, way) => change(() => lanes.forEach((lane) => {
  arrangement.split.delete(lane);
  arrangement.byProcess.delete(lane);
  if (way) (way === "processes" ? arrangement.byProcess : arrangement.split).add(lane);
}));
/** As `splitLanes`, or the reverse where it is split so. @param {LaneNumber} lane @param {SplitWay} way */
export const toggleSplit = (lane, way) => splitLanes([lane], splitOf(lane) === way ? "" : way);
export const resetLanes = () => changeNames(() => Object.assign(arrangement, {
  order: [], hidden: new Set(), group: defaultGroup(trace.meta), open: new Set(), split: defaultSplit(trace.meta),
  byProcess: new Set(),
}) && Object.assign(labels, { names: new Map(), merged: [] }));

/** Call a row's host, or its merged hosts, by a name; by their own again if it is empty. @param {Row} row @param {string} text */
export function renameRow(row, text) {
  const name = cleanName(text), merged = row.kind === "merged" ? mergedOf(row.lanes[0]) : null, [lane] = row.lanes;
  if (name === (merged ? mergedName(merged) : laneName(lane))) return;
  changeNames(() => {
    if (merged) labels.merged = labels.merged.map((each) => (each === merged ? { ...each, name } : each));
    else if (name && name !== trace.meta.lanes[lane]) labels.names.set(lane, name);
    else labels.names.delete(lane);
  });
}
/** Show hosts, and those that they are merged with, as one row. @param {LaneNumber[]} lanes */
export const mergeLanes = (lanes) => changeNames(() => {
  const parts = new Set(lanes.map(mergedOf).filter(Boolean)), all = new Set(lanes);
  for (const part of parts) part.lanes.forEach((lane) => all.add(lane));
  const name = [...parts].map((part) => part.name).find(Boolean) || "";
  labels.merged = [...labels.merged.filter((each) => !parts.has(each)), { lanes: ascending(all), name }];
});
/** Show merged hosts by themselves again. @param {LaneNumber} lane  one of them */
export const takeApart = (lane) => changeNames(() => (labels.merged = labels.merged.filter((each) => !each.lanes.includes(lane))));
/** Take back the last change of names or merging. */
export const undoNames = () => change(undoLabels);
const changeNames = (act) => change(() => changeLabels(act));

function toggle(set, value) {
  if (!set.delete(value)) set.add(value);
}

// --- in the address: numbers of lanes, with ranges

/** @param {string} text */
const numbers = (text) => (text || "").split(",").flatMap((part) => {
  const found = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(part);
  if (!found) return [];
  const first = Number(found[1]), last = Number(found[2] || first);
  return Array.from({ length: Math.min(Math.max(0, last - first + 1), trace.meta.lanes.length) }, (_, at) => first + at);
});

/** @param {number[]} values */
function ranges(values, between = ",") {
  const parts = [];
  for (const value of values) {
    const last = parts[parts.length - 1];
    if (last && last[1] === value - 1) last[1] = value;
    else parts.push([value, value]);
  }
  return parts.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(between);
}
const ascending = (set) => [...set].sort((a, b) => a - b);
const asGiven = (order) => ranges(order.every((lane, at) => lane === at) ? [] : order);
/** @param {string} text */
const existingLanes = (text) => numbers(text).filter((lane) => lane < trace.meta.lanes.length);

addAddressPart("lanes", {
  read: (text) => (arrangement.order = [...new Set(existingLanes(text))]),
  write: () => asGiven(arrangement.order),
});
addAddressPart("off", {
  read: (text) => (arrangement.hidden = new Set(existingLanes(text))),
  write: () => ranges(ascending(arrangement.hidden)),
});
addAddressPart("split", {
  read: (text) => (arrangement.split = text ? new Set(existingLanes(text)) : defaultSplit(trace.meta)),
  write: () => {
    const split = ranges(ascending(arrangement.split));
    return split === ranges(ascending(defaultSplit(trace.meta))) ? "" : split || "none";
  },
});
addAddressPart("processes", {
  read: (text) => (arrangement.byProcess = new Set(existingLanes(text))),
  write: () => ranges(ascending(arrangement.byProcess)),
});
addAddressPart("group", {
  read: (text) => (arrangement.group = GROUPINGS.includes(text) ? text : defaultGroup(trace.meta)),
  write: () => (arrangement.group === defaultGroup(trace.meta) ? "" : arrangement.group),
});
addAddressPart("open", {
  read: (text) => (arrangement.open = new Set((text || "").split("\n").filter(Boolean))),
  write: () => [...arrangement.open].join("\n"),
});
