// Requests to the server. A header names the revision of the trace that the page shows (viewer/revisions.py).

import { decodeMessage } from "./message.js";
import { state, trace } from "./trace.js";

const plainFetch = globalThis.fetch.bind(globalThis);

/** `fetch` from a revision; an empty name is the newest. */
function fetchFrom(revision, url, options = {}) {
  const headers = new Headers(options.headers);
  if (revision) headers.set("X-Twintap-Made", revision);
  return plainFetch(url, { ...options, headers }).then(showReads);
}

/** What the server has read of a trace on an object store, which each of its answers says. @param {Response} response */
function showReads(response) {
  const place = document.getElementById("reads");
  const text = response.headers.get("X-Twintap-Read");
  if (place && text) place.textContent = text;
  return response;
}

/** Let all requests of the page, Dash's included, name the revision that is shown. */
export function nameRevisionInRequests() {
  window.fetch = (url, options) => fetchFrom(shownRevision(), url, options);
}

const shownRevision = () => trace.meta && trace.meta.made;

/** The part of a path's query that names the requests whose packets alone are shown. */
export const onlyPart = () => (state.only ? `&only=${encodeURIComponent(state.only)}` : "");

/** @param {string} url @param {RequestInit} options @param {string} [revision] */
async function answerOf(url, options, revision = shownRevision()) {
  const response = await fetchFrom(revision, url, options);
  if (response.ok) return response;
  const why = response.status === 503 ? await response.text() : `the server answered ${response.status}`;
  throw Object.assign(new Error(why), { outdated: response.status === 409 });
}

/** A message, decoded. @param {string} url @param {AbortSignal} [signal] @param {string} [revision] @returns {Promise<Message>} */
export async function fetchMessage(url, signal, revision) {
  return decodeMessage(await (await answerOf(url, { signal }, revision)).arrayBuffer());
}

/** An answer in JSON. @param {string} url @param {AbortSignal} [signal] @param {string} [revision] */
export async function fetchJson(url, signal, revision) {
  return (await answerOf(url, { signal }, revision)).json();
}
