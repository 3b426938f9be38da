// What the tests of the page's modules share: a description of a trace, and how a module finds it.

import { trace } from "../../../viewer/assets/data/trace.js";

export const SECOND = 1e9;

/** Four hosts, of which storage1 runs two services; pairs of lanes with their services and processes. */
export const META = {
  duration: 10 * SECOND, hops: 100, roots: 5, clocksApart: 0,
  lanes: ["client", "proxy", "storage1", "storage2"], services: ["swift-proxy", "swift-object", "swift-account"],
  pairs: [[0, 1], [1, 0], [1, 2], [1, 2], [1, 3], [2, 65535]],
  pairServices: [[255, 0], [0, 255], [255, 1], [255, 2], [255, 1], [1, 255]],
  pairProcesses: [[2, 1], [1, 2], [1, 3], [1, 1], [1, 3], [4, 1]],
  processes: ["others", "unknown", "curl", "swift (object)", "nginx"],
  typical: [1000, 1000, 2000, 2000, 2000, 3000], ends: null,
  laneGroups: { role: ["clients", "swift-proxy", "object", "object"], prefix: ["client", "proxy", "storage", "storage"] },
  load: [], strips: [], kinds: ["data"], states: ["matched"],
};

/** Let modules see a description of a trace. */
export function describeTrace(meta = META) {
  trace.meta = /** @type {any} */ ({ ...meta });
}
