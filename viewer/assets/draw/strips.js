// Strips under the rows, on the same time axis: what the hosts used. The line is the busiest host, the area their mean.
"use strict";
window.twintap = window.twintap || {};

(function (T) {
  const HEIGHT_PX = 36, GAP_PX = 6;
  const COLOURS = { CPU: "--part-3", disk: "--part-2", network: "--part-1" };
  let loaded = null, asking = null;

  const FOOT_PX = 26; // for the badge
  // Room that the strips and the band of the load over them need below the rows.
  T.stripsRoom = () => {
    const room = T.loadRoom() + T.meta.strips.length * HEIGHT_PX;
    return room ? room + FOOT_PX : 0;
  };
  const firstTop = (view) => view.height - T.stripsRoom() + T.loadRoom();

  const inUnits = (value, unit) => {
    if (unit === "%") return `${Math.round(value)} %`;
    const step = value >= 1e6 ? [1e6, "MB/s"] : value >= 1e3 ? [1e3, "kB/s"] : [1, "B/s"];
    return `${(value / step[0]).toFixed(value >= 10 * step[0] ? 0 : 1)} ${step[1]}`;
  };

  function load() {
    if (!T.meta.strips.length) return;
    const { from, to } = T.state, width = to - from;
    if (loaded && loaded.made === T.meta.made && loaded.from <= from && loaded.to >= to && width > loaded.wide / 4) return;
    if (asking) asking.abort();
    asking = new AbortController();
    T.fetchMessage(`api/usage?from=${Math.floor(from)}&to=${Math.ceil(to)}`, asking.signal)
      .then((message) => {
        loaded = Object.assign(message, { wide: width, made: T.meta.made });
        T.redraw();
      })
      .catch((error) => { if (error.name !== "AbortError") loaded = null; });
  }

  // The bins in sight as [left, right, bin]; a bin without a measurement belongs to the next one that has some.
  function bars(view, peak) {
    const found = [], width = (loaded.to - loaded.from) / peak.length, most = 3e9;
    let begin = null;
    for (let bin = 0; bin < peak.length; bin++) {
      const from = loaded.from + bin * width;
      if (begin === null || from - begin > most) begin = from;
      if (Number.isNaN(peak[bin])) continue;
      const left = view.x(begin), right = view.x(from + width);
      begin = from + width;
      if (right >= 0 && left <= view.width) found.push([left, right, bin]);
    }
    return found;
  }

  T.drawStrips = function (context, view) {
    if (!T.meta.strips.length) return;
    const style = getComputedStyle(document.documentElement);
    context.save();
    T.meta.strips.forEach((name, at) => {
      const top = firstTop(view) + at * HEIGHT_PX, bottom = top + HEIGHT_PX - GAP_PX;
      context.fillStyle = T.palette.paper;
      context.globalAlpha = 1;
      context.fillRect(0, top - GAP_PX / 2, view.width, HEIGHT_PX);
      context.fillStyle = context.strokeStyle = style.getPropertyValue(COLOURS[name]).trim();
      if (loaded) drawStrip(context, view, name, top, bottom);
      context.globalAlpha = 1;
      context.fillStyle = T.palette.grid;
      context.fillRect(0, bottom, view.width, 1);
    });
    context.restore();
  };

  function drawStrip(context, view, name, top, bottom) {
    const number = indexOf(name);
    if (number < 0) return;
    const most = loaded[`highest${number}`][0] || 1, peak = loaded[`peak${number}`], mean = loaded[`mean${number}`];
    const y = (value) => bottom - (value / most) * (bottom - top);
    const shown = bars(view, peak);
    context.globalAlpha = 0.35;
    for (const [left, right, bin] of shown) context.fillRect(left, y(mean[bin]), right - left, bottom - y(mean[bin]));
    context.globalAlpha = 1;
    context.lineWidth = 1.3;
    context.beginPath();
    for (const [left, right, bin] of shown) {
      context.moveTo(left, y(peak[bin]));
      context.lineTo(right, y(peak[bin]));
    }
    context.stroke();
    context.font = T.font(11.5, "600");
    context.fillStyle = context.strokeStyle = T.palette.ink;
    context.lineWidth = 3;
    context.strokeStyle = T.palette.paper;
    const text = `${name} up to ${inUnits(most, loaded[`unit${number}`])}`;
    context.strokeText(text, 6, top + 10);
    context.fillText(text, 6, top + 10);
  }

  const indexOf = (name) => Array.from({ length: loaded.strips }, (_, at) => loaded[`name${at}`]).indexOf(name);

  // What to show under the cursor: the busiest host then, and the mean; null elsewhere.
  T.stripAt = function (view, x, y) {
    const at = Math.floor((y - firstTop(view)) / HEIGHT_PX);
    if (!loaded || at < 0 || at >= T.meta.strips.length) return null;
    const name = T.meta.strips[at], number = indexOf(name), unit = loaded[`unit${number}`];
    const found = bars(view, loaded[`peak${number}`]).find(([left, right]) => left <= x && x <= right);
    if (!found) return { title: name, lines: ["not measured here"] };
    const bin = found[2], host = T.meta.lanes[loaded[`busiest${number}`][bin]];
    return {
      title: `${name}: ${host} ${inUnits(loaded[`peak${number}`][bin], unit)}`,
      lines: [`mean of the hosts ${inUnits(loaded[`mean${number}`][bin], unit)}`, `until ${T.exactTime(view.time(found[1]))}`],
    };
  };

  (T.parts = T.parts || []).push(() => {
    T.hear("settled", load);
    load();
  });
})(window.twintap);
