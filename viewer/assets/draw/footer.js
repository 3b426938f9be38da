// The room below the rows: a band for the steps of the load, then a strip for each resource that the hosts used.

import { trace } from "../data/trace.js";

export const LOAD_PX = 22;
export const STRIP_PX = 36;
const BADGE_PX = 26;

/** Height of the band of the load. */
export const loadRoom = () => (trace.meta.load.length ? LOAD_PX : 0);

/** Height of all that stands below the rows. */
export function stripsRoom() {
  const room = loadRoom() + trace.meta.strips.length * STRIP_PX;
  return room ? room + BADGE_PX : 0;
}
