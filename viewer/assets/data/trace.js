// What all parts of the page read: the description of the trace, and the state of the view. One object each, whose
// properties change; `app/` changes them, all else reads.

/** `meta` is what viewer/layout.py describes the trace by, and is there once the page has begun. */
export const trace = { meta: /** @type {Meta} */ (/** @type {unknown} */ (null)) };

/** @type {State} */
export const state = {
  from: 0, to: 1, view: null, data: null, picture: null, still: null, overview: null, overviewPicture: null, selected: null,
  hidden: new Set(), raw: false, only: "", hover: null, selection: { request: null, hop: null }, moving: false,
  usage: null, withBands: true, bands: null, origins: null, withAnnotations: true, annotations: null, annotation: -1,
  settledCount: 0, settledAt: 0,
};
