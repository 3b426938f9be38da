// Hops with all their fields, each fetched once.

import { fetchJson } from "./server.js";

const MOST_KEPT = 500;
const answers = new Map();

/** All fields of a hop; null if the server does not answer. */
export async function fetchHop(number) {
  if (!answers.has(number)) {
    if (answers.size > MOST_KEPT) answers.clear();
    answers.set(number, await fetchJson(`api/hops/${number}`).catch(() => null));
  }
  return answers.get(number);
}

/** Another revision of the trace numbers its hops anew. */
export const forgetHops = () => answers.clear();
