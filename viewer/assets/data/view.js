// The geometry of the timeline: which place of the canvas belongs to a time and to a row. Pure.

const PAD_TOP = 28, PAD_BOTTOM = 58, PAD_STRIPS = 30, LEAST_GAP = 26, MOST_GAP = 420;
const LANE_SHARE = 0.4, MOST_BAR = 64, VIEW_SHARE = 0.07; // of the gap between rows; px, or of the view: a full bar of counts

/**
 * Where times and rows are on the canvas. `ruler` px on top belong to the axis; of rows that do not fit, those after the
 * first `scroll` px are seen; `strips` px below the rows are taken.
 * @returns {View}
 */
export function makeView(from, to, width, height, ruler, rows, scroll = 0, strips = 0) {
  const bar = (gap) => Math.min(Math.max(MOST_BAR, VIEW_SHARE * height), LANE_SHARE * gap);
  const full = rows > 1 ? bar((height - ruler - PAD_TOP - PAD_BOTTOM) / (rows - 1)) : 0;
  const above = Math.max(PAD_TOP, full), below = Math.max(PAD_BOTTOM, full, strips + PAD_STRIPS); // so nothing is cut off
  const room = height - ruler - above - below;
  const gap = rows > 1 ? Math.min(MOST_GAP, Math.max(LEAST_GAP, room / (rows - 1))) : room;
  const content = Math.max(height, ruler + above + below + gap * (rows - 1));
  const least = Math.max(0, Math.min(scroll, content - height));
  const top = ruler + above - least + Math.max(0, (room - gap * (rows - 1)) / 2) * (rows > 1 ? 0.35 : 1);
  const scale = width / (to - from);
  const y = (row) => top + row * gap;
  return {
    from, to, width, height, ruler, rows, gap, top, bar: bar(gap), content, scroll: least, strips,
    x: (time) => (time - from) * scale,
    y,
    time: (x) => from + x / scale,
    shows: (row) => y(row) > ruler - gap && y(row) < height + gap,
  };
}

/** The first and the last row of which something may be seen. @param {View} view @returns {[RowNumber, RowNumber]} */
export const rowsInSight = (view) => [
  Math.max(0, Math.floor((view.ruler - view.top) / view.gap) - 1),
  Math.min(view.rows - 1, Math.ceil((view.height - view.top) / view.gap) + 1),
];

/** The trace with a little room on both sides. @param {Meta} meta @returns {[Ns, Ns]} */
export const wholeView = (meta) => [-0.015 * meta.duration, 1.015 * meta.duration];
