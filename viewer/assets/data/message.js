// Binary messages of the server as typed arrays, and what is derived from them. Format: viewer/binary.py.

import { ARRAYS, CLASS, CLASS_NAMES, PROBLEMS } from "./constants.js";
import { trace } from "./trace.js";

/** @param {number} cls */
export const isProblem = (cls) => PROBLEMS.includes(cls);

/** The columns of a message, as typed arrays without a copy, beside its header. @param {ArrayBuffer} buffer */
export function decodeMessage(buffer) {
  const size = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  const message = { ...header };
  for (const { name, dtype, offset, length } of header.columns) {
    message[name] = new ARRAYS[dtype](buffer, 4 + size + offset, length);
  }
  if (message.pair) addLanes(message);
  return message;
}

/** Add the lanes at both ends of the arrows, computed when they are first read. @param {Arrows} arrows */
function addLanes(arrows) {
  ["source", "target"].forEach((name, end) => {
    let lanes = null;
    const get = () => (lanes = lanes || Uint16Array.from(arrows.pair, (pair) => trace.meta.pairs[pair][end]));
    Object.defineProperty(arrows, name, { get, enumerable: true });
  });
}

/**
 * Add both ends as they are drawn: an end that was not seen is at the typical delay of its pair of lanes.
 * @template {Arrows} A @param {A} arrows @param {Meta} meta @returns {A}
 */
export function withEnds(arrows, meta) {
  const count = arrows.number.length;
  arrows.begin = new Float64Array(count);
  arrows.end = new Float64Array(count);
  arrows.byClass = CLASS_NAMES.map(() => []);
  for (let at = 0; at < count; at++) {
    const usual = meta.typical[arrows.pair[at]];
    const sent = arrows.sent[at], received = arrows.received[at];
    arrows.begin[at] = Number.isNaN(sent) ? received - usual : sent;
    arrows.end[at] = Number.isNaN(received) ? sent + usual : received;
    if (received < sent && !isProblem(arrows.cls[at])) arrows.cls[at] = CLASS.EARLY; // by the hosts' own clocks
    arrows.byClass[arrows.cls[at]].push(at);
  }
  return arrows;
}
