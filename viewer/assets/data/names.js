// What the user calls hosts, and which hosts the user knows to be one. Only what the page shows follows it: what is saved
// as a table, a capture or a trace has the captures' own names. Names are texts, never markup.

import { addAddressPart } from "./address.js";
import { NO_LANE } from "./constants.js";
import { trace } from "./trace.js";

const LONGEST_NAME = 40; // signs
const MOST_STEPS = 50; // that can be undone
const UNSEEN = /[\p{Cc}\p{Cs}\u202a-\u202e\u2066-\u2069\u200e\u200f\ufeff\ufffe\uffff]/gu; // and what turns the order of signs
const ADDRESS = /^[\d.]+$|:/;
const domainOf = /** @type {WeakMap<string[], string>} */ (new WeakMap()); // by the trace's hosts: rows are drawn often
const ENDS = /(\S+) → ([^\s,)]+)/g;

/** Hosts in one row. @typedef {{ lanes: LaneNumber[], name: string }} MergedHosts */

export const labels = {
  names: /** @type {Map<LaneNumber, string>} */ (new Map()),
  merged: /** @type {MergedHosts[]} */ ([]),
  past: /** @type {{ names: Map<LaneNumber, string>, merged: MergedHosts[] }[]} */ ([]),
};

/** A name as it is kept: one line, bounded; "" for none. @param {string} text */
export const cleanName = (text) => [...text.replace(UNSEEN, " ").trim()].slice(0, LONGEST_NAME).join("").trim();

/** @param {LaneNumber} lane */
export const mergedOf = (lane) => labels.merged.find((each) => each.lanes.includes(lane));

/** @param {LaneNumber} lane */
export const laneName = (lane) => labels.names.get(lane) ?? trace.meta.lanes[lane];

/** The domain of hosts that have one, with its dot, if it is the same for all and there are several; else "".
 * @param {string[]} names */
export function sharedDomain(names) {
  const domains = names.filter((name) => name.includes(".") && !ADDRESS.test(name)).map((name) => name.slice(name.indexOf(".")));
  return domains.length > 1 && domains.every((each) => each === domains[0]) ? domains[0] : "";
}

/** As a lane shows it: without the domain that all have. @param {LaneNumber} lane */
export function shortName(lane) {
  const hosts = trace.meta.lanes;
  if (!domainOf.has(hosts)) domainOf.set(hosts, sharedDomain(hosts));
  const name = laneName(lane), domain = labels.names.has(lane) ? "" : domainOf.get(hosts);
  return domain && name.length > domain.length && name.endsWith(domain) ? name.slice(0, -domain.length) : name;
}

/** @param {MergedHosts} merged */
export const mergedName = ({ lanes, name }) => name || cleanName(lanes.map(laneName).join(" + "));

/** An end of a packet: of merged hosts which of them. @param {LaneNumber} lane @param {string} unknown */
export function hostText(lane, unknown) {
  if (lane === NO_LANE) return unknown;
  const merged = mergedOf(lane);
  return merged && merged.name ? `${merged.name} (${laneName(lane)})` : laneName(lane);
}

/** A text of the server, in which two hosts that stand as `a → b` have the names that are shown. @param {string} text */
export function withShownNames(text) {
  if (!labels.names.size && !labels.merged.length) return text;
  const nameOf = (host) => hostText(trace.meta.lanes.indexOf(host), host);
  return text.replace(ENDS, (whole, from, to) =>
    (trace.meta.lanes.includes(from) && trace.meta.lanes.includes(to) ? `${nameOf(from)} → ${nameOf(to)}` : whole));
}

/** Change the names or what is merged, so that it can be undone. @param {() => void} act */
export function changeLabels(act) {
  labels.past.push({ names: new Map(labels.names), merged: [...labels.merged] });
  labels.past.splice(0, labels.past.length - MOST_STEPS);
  act();
}

/** Take back the last change; false if there is none. */
export function undoLabels() {
  const before = labels.past.pop();
  if (before) Object.assign(labels, before);
  return Boolean(before);
}

// --- in the address: a line for each, `3:name` and `3.4.7:name`

/** Lines as [lanes, name]; lanes that the trace does not have are left out. @param {string | null} text @returns {[LaneNumber[], string][]} */
const lines = (text) => (text || "").split("\n").flatMap((line) => {
  const found = /^(\d{1,5}(?:\.\d{1,5})*):(.*)$/su.exec(line);
  if (!found) return [];
  const lanes = found[1].split(".").map(Number).filter((lane) => lane < trace.meta.lanes.length);
  return [/** @type {[LaneNumber[], string]} */ ([[...new Set(lanes)], cleanName(found[2])])];
});

addAddressPart("names", {
  read: (text) => (labels.names = new Map(lines(text).filter(([lanes, name]) => lanes.length === 1 && name).map(([[lane], name]) => [lane, name]))),
  write: () => [...labels.names].map(([lane, name]) => `${lane}:${name}`).join("\n"),
});
addAddressPart("merge", {
  read: (text) => {
    labels.merged = [];
    for (const [lanes, name] of lines(text)) {
      const free = lanes.filter((lane) => !mergedOf(lane));
      if (free.length > 1) labels.merged.push({ lanes: free, name });
    }
  },
  write: () => labels.merged.map(({ lanes, name }) => `${lanes.join(".")}:${name}`).join("\n"),
});
