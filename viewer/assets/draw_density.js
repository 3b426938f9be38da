// Counts instead of arrows where there are too many: between lanes, how many arrows pass in a time bin; at each lane, how
// many leave (above it) and arrive (below it), by class. Drawn once into a picture, which gestures only stretch.
"use strict";
window.twintap = window.twintap || {};

(function (T) {
  const STACK = [0, 1, 2, 5, 3, 4, 6]; // classes from the lane outwards, problems last, as a cap
  const LANE_SHARE = 0.4; // of the gap between lanes: a full bar
  const LEAST_TROUBLE_PX = 1.5;

  // How loudly trouble is shown, from its share of the packets: 1 from a fifth of them on.
  T.troubleStrength = (trouble, others) => Math.min(1, Math.sqrt((5 * trouble) / (trouble + others)));

  // Sums of a density message: per gap between lanes, and per lane, direction and class.
  function sums(density, meta, hidden) {
    const bins = density.bins, classes = density.classes, lanes = meta.lanes.length;
    const gaps = newRows(Math.max(1, lanes - 1), bins), trouble = newRows(Math.max(1, lanes - 1), bins);
    const ends = newRows(lanes * 2 * classes, bins);
    meta.pairs.forEach(([source, target], pair) => {
      for (let cls = 0; cls < classes; cls++) {
        if (hidden.has(cls)) continue;
        const counts = density.counts.subarray((pair * classes + cls) * bins, (pair * classes + cls + 1) * bins);
        if (source !== T.NO_LANE) add(ends[(source * 2) * classes + cls], counts);
        if (target !== T.NO_LANE) add(ends[(target * 2 + 1) * classes + cls], counts);
        if (source === T.NO_LANE || target === T.NO_LANE) continue;
        for (let gap = Math.min(source, target); gap < Math.max(source, target); gap++) {
          add(T.isProblem(cls) ? trouble[gap] : gaps[gap], counts);
        }
      }
    });
    return { gaps, trouble, ends };
  }

  const newRows = (count, bins) => Array.from({ length: count }, () => new Float64Array(bins));

  function add(row, counts) {
    for (let bin = 0; bin < row.length; bin++) row[bin] += counts[bin];
  }

  // The value below which 99.5 % of the filled bins lie: one burst does not flatten all else.
  function high(rows) {
    const filled = [];
    for (const row of rows) for (const count of row) if (count > 0) filled.push(count);
    if (!filled.length) return 1;
    filled.sort((a, b) => a - b);
    return filled[Math.floor((filled.length - 1) * 0.995)];
  }

  // A picture of a density message, one px wide for each bin, as high as the plot.
  T.densityPicture = function (density, view, meta, hidden) {
    const picture = document.createElement("canvas");
    picture.width = density.bins;
    picture.height = Math.ceil(view.height);
    const context = picture.getContext("2d");
    const { gaps, trouble, ends } = sums(density, meta, hidden);
    drawGaps(context, view, gaps, trouble);
    drawEnds(context, view, ends, density, meta.lanes.length);
    return picture;
  };

  function drawGaps(context, view, gaps, trouble) {
    const most = high(gaps), colours = T.palette.classes;
    gaps.forEach((row, gap) => {
      const top = view.y(gap), height = view.y(gap + 1) - top;
      for (let bin = 0; bin < row.length; bin++) {
        if (row[bin]) {
          context.globalAlpha = 0.06 + 0.3 * Math.sqrt(Math.min(1, row[bin] / most));
          context.fillStyle = colours[T.CLASS.DATA];
          context.fillRect(bin, top, 1, height);
        }
        if (trouble[gap][bin]) {
          context.globalAlpha = 0.6 * T.troubleStrength(trouble[gap][bin], row[bin]);
          context.fillStyle = colours[T.CLASS.LOST];
          context.fillRect(bin, top, 1, height);
        }
      }
    });
  }

  function drawEnds(context, view, ends, density, lanes) {
    const classes = density.classes, full = LANE_SHARE * view.gap;
    context.globalAlpha = 1;
    const totals = [];
    for (let row = 0; row < lanes * 2; row++) totals.push(total(ends.slice(row * classes, (row + 1) * classes)));
    const most = high(totals);
    for (let lane = 0; lane < lanes; lane++) {
      for (const direction of [0, 1]) {
        const rows = ends.slice((lane * 2 + direction) * classes, (lane * 2 + direction + 1) * classes);
        drawStack(context, rows, view.y(lane), direction ? 1 : -1, full / most, full);
      }
    }
  }

  function total(rows) {
    const sum = new Float64Array(rows[0].length);
    for (const row of rows) add(sum, row);
    return sum;
  }

  function drawStack(context, rows, y, sign, scale, full) {
    const bins = rows[0].length, base = new Float64Array(bins);
    for (const cls of STACK) {
      context.fillStyle = T.palette.classes[cls];
      const least = T.isProblem(cls) ? LEAST_TROUBLE_PX : 0;
      for (let bin = 0; bin < bins; bin++) {
        const count = rows[cls][bin];
        if (!count) continue;
        const height = Math.min(full - base[bin], Math.max(least, count * scale));
        context.fillRect(bin, sign < 0 ? y - base[bin] - height : y + base[bin], 1, height);
        base[bin] += height;
      }
    }
  }

  // Stretch a picture over the view.
  T.drawPicture = function (context, view, density, picture) {
    const share = (time) => ((time - density.from) / (density.to - density.from)) * density.bins;
    const first = Math.max(0, share(view.from)), last = Math.min(density.bins, share(view.to));
    if (last <= first) return;
    const left = view.x(density.from + (first / density.bins) * (density.to - density.from));
    const right = view.x(density.from + (last / density.bins) * (density.to - density.from));
    context.imageSmoothingEnabled = last - first > view.width;
    context.drawImage(picture, first, 0, last - first, picture.height, left, 0, right - left, view.height);
  };

  // Counts of a bin by class, over all pairs.
  T.binCounts = function (density, bin) {
    const byClass = new Array(density.classes).fill(0);
    for (let row = 0; row < density.pairs * density.classes; row++) {
      byClass[row % density.classes] += density.counts[row * density.bins + bin];
    }
    return byClass;
  };

  // Counts of a bin by class, and where it lies: what to tell under the cursor.
  T.binAt = function (density, time, hidden) {
    const bin = Math.floor((time - density.from) / density.bin);
    if (bin < 0 || bin >= density.bins) return null;
    const byClass = T.binCounts(density, bin).map((count, cls) => (hidden.has(cls) ? 0 : count));
    return { from: density.from + bin * density.bin, width: density.bin, byClass };
  };
})(window.twintap);
