// Which rows the timeline has: hosts in the user's order, some hidden, grouped, or split into their services. A hop ends at
// a lane (a host) and, at a connection's server, at a service; here this becomes a row, or none.
"use strict";
window.twintap = window.twintap || {};

(function (T) {
  T.CLIENT = 0xff; // instead of a service: the end is the connection's client
  T.NO_ROW = -1; // the end is on a host that is hidden or was not captured
  const GROUPINGS = ["none", "role", "prefix", "subnet"];
  const AROUND = 12; // rows beyond those in sight
  const MANY_LANES = 40; // from so many on, hosts are grouped by default
  const arrangement = (T.arrangement = { order: [], hidden: new Set(), group: "none", open: new Set(), split: new Set() });
  T.rows = [];
  T.arranged = 0; // how often they were
  let rowOfLane, rowOfService, rowsOfPair;

  T.groupings = GROUPINGS;
  T.defaultGroup = (meta) => (meta.lanes.length > MANY_LANES ? "prefix" : "none");
  // Packets within a lone host are seen between its services.
  T.defaultSplit = (meta) => new Set(meta.lanes.length === 1 ? [0] : []);
  const groupName = (lane) => (arrangement.group === "none" ? "" : T.meta.laneGroups[arrangement.group][lane]);

  // The lanes that can be shown, in order.
  T.laneOrder = function () {
    const known = T.meta.lanes.map((_, lane) => lane), given = arrangement.order.filter((lane) => lane in known);
    return [...given, ...known.filter((lane) => !given.includes(lane))];
  };

  // Make the rows anew from the arrangement.
  T.arrange = function () {
    const groups = new Map();
    for (const lane of T.laneOrder()) {
      if (arrangement.hidden.has(lane)) continue;
      const name = groupName(lane), key = name || `lane ${lane}`;
      groups.set(key, [...(groups.get(key) || []), lane]);
    }
    T.rows = [...groups].flatMap(([key, lanes]) => groupRows(key, lanes));
    place();
    T.arranged += 1;
  };

  function groupRows(name, lanes) {
    if (lanes.length === 1) return hostRows(lanes[0], false);
    const open = arrangement.open.has(name), head = { kind: "group", name, open, lanes: open ? [] : lanes, size: lanes.length };
    return open ? [head, ...lanes.flatMap((lane) => hostRows(lane, true))] : [head];
  }

  function hostRows(lane, inGroup) {
    const host = { kind: "host", lane, lanes: [lane], inGroup };
    if (!arrangement.split.has(lane)) return [host];
    const served = T.servicesOf(lane).map((service) => ({ kind: "service", lane, service, lanes: [], inGroup }));
    return [{ ...host, split: true }, ...served];
  }

  T.rowName = (row) => ({ group: row.name, service: T.meta.services[row.service], host: T.meta.lanes[row.lane] })[row.kind];

  // The services that packets went to or came from on a lane.
  T.servicesOf = function (lane) {
    const found = new Set();
    T.meta.pairs.forEach(([source, target], pair) => {
      const [from, to] = T.meta.pairServices[pair];
      if (source === lane && from !== T.CLIENT) found.add(from);
      if (target === lane && to !== T.CLIENT) found.add(to);
    });
    return [...found].sort((a, b) => a - b);
  };

  function place() {
    rowOfLane = new Int16Array(T.meta.lanes.length).fill(T.NO_ROW);
    rowOfService = new Map();
    T.rows.forEach((row, at) => {
      for (const lane of row.lanes) rowOfLane[lane] = at;
      if (row.kind === "service") rowOfService.set(row.lane * 256 + row.service, at);
    });
    rowsOfPair = new Int16Array(2 * T.meta.pairs.length);
    T.meta.pairs.forEach(([source, target], pair) => {
      const [from, to] = T.meta.pairServices[pair];
      rowsOfPair[2 * pair] = T.rowOfEnd(source, from);
      rowsOfPair[2 * pair + 1] = T.rowOfEnd(target, to);
    });
  }

  T.rowOfEnd = function (lane, service) {
    if (lane === T.NO_LANE) return T.NO_ROW;
    const own = rowOfService.get(lane * 256 + service);
    return own === undefined ? rowOfLane[lane] : own;
  };
  T.rowOfLane = (lane) => (lane === T.NO_LANE ? T.NO_ROW : rowOfLane[lane]);
  T.rowsOfPair = (pair) => [rowsOfPair[2 * pair], rowsOfPair[2 * pair + 1]];

  // The rows at both ends of each arrow, kept until the rows change.
  T.placeArrows = function (arrows) {
    if (!arrows || !arrows.pair || arrows.placed === T.arranged) return arrows;
    const count = arrows.pair.length;
    [arrows.fromRow, arrows.toRow] = [new Int16Array(count), new Int16Array(count)];
    for (let at = 0; at < count; at++) {
      arrows.fromRow[at] = rowsOfPair[2 * arrows.pair[at]];
      arrows.toRow[at] = rowsOfPair[2 * arrows.pair[at] + 1];
    }
    arrows.placed = T.arranged;
    return arrows;
  };

  // Where counts are kept by end, those of the rows in sight are asked for: places in `meta.ends`, row by row.
  T.wantedRows = function (view) {
    if (!T.meta.ends) return { query: "", numbers: [] };
    const [first, last] = T.rowsInSight(view), members = new Map();
    T.meta.ends.forEach(([lane, service], end) => {
      const row = T.rowOfEnd(lane, service);
      if (row >= first - AROUND && row <= last + AROUND) members.set(row, [...(members.get(row) || []), end]);
    });
    members.delete(T.NO_ROW);
    const numbers = [...members.keys()];
    return { query: `&rows=${numbers.map((row) => ranges(members.get(row), ".")).join(",")}`, numbers };
  };

  // Whether counts that came are of the rows in sight, as they are now.
  T.rowsCovered = function (data, view) {
    if (!data || data.mode !== "ends") return true;
    const [first, last] = T.rowsInSight(view), known = new Set(data.rows);
    if (data.arranged !== T.arranged) return false;
    return T.meta.ends.every(([lane, service]) => {
      const row = T.rowOfEnd(lane, service);
      return row === T.NO_ROW || row < first || row > last || known.has(row);
    });
  };

  // --- changes by the user

  function change(act) {
    act();
    T.arrange();
    T.notify("arranged");
  }

  // Move a lane to the place of another: before it, or after it if it came from above.
  T.moveLane = (lane, to) => change(() => {
    const order = T.laneOrder(), place = order.indexOf(to);
    order.splice(order.indexOf(lane), 1);
    order.splice(place, 0, lane);
    arrangement.order = order;
  });
  T.hideLanes = (lanes) => change(() => lanes.forEach((lane) => arrangement.hidden.add(lane)));
  T.showLanes = (lanes) => change(() => lanes.forEach((lane) => arrangement.hidden.delete(lane)));
  T.groupLanes = (group) => change(() => Object.assign(arrangement, { group, open: new Set() }));
  T.toggleGroup = (name) => change(() => toggle(arrangement.open, name));
  T.splitLanes = (lanes) => change(() => lanes.forEach((lane) => toggle(arrangement.split, lane)));
  T.resetLanes = () => change(() => Object.assign(arrangement, {
    order: [], hidden: new Set(), group: T.defaultGroup(T.meta), open: new Set(), split: T.defaultSplit(T.meta),
  }));

  function toggle(set, value) {
    if (!set.delete(value)) set.add(value);
  }

  // --- in the address: numbers of lanes, with ranges

  const numbers = (text) => (text || "").split(",").flatMap((part) => {
    const found = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(part);
    if (!found) return [];
    const first = Number(found[1]), last = Number(found[2] || first);
    return Array.from({ length: Math.min(Math.max(0, last - first + 1), T.meta.lanes.length) }, (_, at) => first + at);
  });

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
  const known = (text) => numbers(text).filter((lane) => lane < T.meta.lanes.length);

  T.addressParts.lanes = {
    read: (text) => (arrangement.order = [...new Set(known(text))]),
    write: () => asGiven(arrangement.order),
  };
  T.addressParts.off = {
    read: (text) => (arrangement.hidden = new Set(known(text))),
    write: () => ranges(ascending(arrangement.hidden)),
  };
  T.addressParts.split = {
    read: (text) => (arrangement.split = text ? new Set(known(text)) : T.defaultSplit(T.meta)),
    write: () => {
      const split = ranges(ascending(arrangement.split));
      return split === ranges(ascending(T.defaultSplit(T.meta))) ? "" : split || "none";
    },
  };
  T.addressParts.group = {
    read: (text) => (arrangement.group = GROUPINGS.includes(text) ? text : T.defaultGroup(T.meta)),
    write: () => (arrangement.group === T.defaultGroup(T.meta) ? "" : arrangement.group),
  };
  T.addressParts.open = {
    read: (text) => (arrangement.open = new Set((text || "").split("\n").filter(Boolean))),
    write: () => [...arrangement.open].join("\n"),
  };
})(window.twintap);
