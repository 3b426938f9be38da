// The timeline's life: the view, what is loaded for it, what is selected, and when to draw. Plotly's axis follows when a
// gesture has ended; until then the canvas draws the ticks, since a relayout takes longer than a frame.
"use strict";
window.twintap = window.twintap || {};

(function (T) {
  const SETTLE_MS = 60; // without an event, a gesture has ended
  const LEAST_NS = 20;
  const GLIDE_MS = 220;
  const LATEST_RULER_MS = 500;
  const SOON_MS = 40; // the answer to a jump mostly comes within, and the old picture stays until then
  const state = {
    from: 0, to: 1, data: null, picture: null, still: null, overview: null, overviewPicture: null, selected: null,
    hidden: new Set(), raw: false, hover: null, selection: { request: null, hop: null }, moving: false,
  };
  T.state = state; // read by tests and benchmarks
  T.settledCount = 0;
  T.parts = T.parts || []; // what other files begin when the timeline has begun
  let canvas, context, minimap, tip, view, requestTimes;
  let drawing = false, drawTimer = 0, settleTimer = 0, fetching = null, scroll = 0, finishing = 0;
  let awaited = null; // the request to zoom to once its times are known

  // Called by Dash with what `viewer.layout` put into the page.
  T.start = function (meta) {
    T.meta = meta;
    T.fillParts(meta.parts);
    canvas = document.getElementById("arrows");
    context = canvas.getContext("2d");
    tip = new T.Tip(document.getElementById("tip"));
    requestTimes = new Map(meta.requestTimes.map(([number, from, to]) => [number, [from, to]]));
    minimap = new T.Minimap(document.getElementById("minimap"), (time) => centre(time));
    T.readPalette();
    T.themeChanged = onTheme;
    const given = T.readAddress(meta);
    [state.from, state.to] = given.view || T.wholeView(meta);
    state.hidden = given.hidden;
    T.markClasses(state.hidden);
    T.markClocks(state.raw);
    T.arrange();
    T.hear("arranged", onArranged);
    attach();
    new ResizeObserver(onResize).observe(document.getElementById("plot"));
    onResize();
    drawChips();
    loadOverview();
    if (given.request !== null || given.hop !== null) select(given.request, given.hop);
    if (given.request !== null && !given.view) fitRequest();
    T.parts.forEach((begin) => begin(meta));
    return true;
  };

  function attach() {
    T.attachPointer(canvas, {
      zoom: (factor, x) => zoom(factor, view.time(x)),
      pan: (px) => pan((px / view.width) * (state.to - state.from)),
      zoomIn: (x) => glideAround(view.time(x), 0.25),
      point: onPoint,
      leave: onLeave,
      click: onClick,
    });
    T.attachKeys(T.actions);
    document.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      if (button.dataset.action) T.actions[button.dataset.action]();
      if (button.dataset.class) toggleClass(Number(button.dataset.class));
      if (button.dataset.connection) goToConnection(button.dataset.connection);
      if (button.dataset.request) {
        select(Number(button.dataset.request), null);
        fitRequest();
        if (event.detail) canvas.focus(); // by a pointer: the next key is for the timeline
      }
    });
    window.addEventListener("hashchange", onAddress);
  }

  // What keys and buttons do; other files add theirs.
  const actions = (T.actions = {
    left: () => glide(...moved(-T.KEY_STEP)),
    right: () => glide(...moved(T.KEY_STEP)),
    in: () => glideAround(middle(), 0.6),
    out: () => glideAround(middle(), 1 / 0.6),
    fit: () => glide(...T.wholeView(T.meta)),
    "fit-request": () => fitRequest(),
    "next-problem": () => goToProblem("next"),
    "previous-problem": () => goToProblem("previous"),
    theme: () => {
      T.setTheme(T.theme() === "dark" ? "light" : "dark", true);
      onTheme();
    },
    help: () => open("help"),
    pairing: () => open("pairing"),
    clocks: () => T.meta.clocksApart && setClocks(!state.raw),
    close: () => document.querySelector("dialog[open]")?.close(), // Escape may have been faster than an answer
    deselect: () => (document.querySelector("dialog[open]") ? actions.close() : select(null, null)),
  });

  // For the page's other parts: to move the view, to select, and to hear of both.
  T.glide = (from, to) => glide(from, to);
  T.select = (request, hop) => select(request, hop);
  T.currentView = () => view;
  T.redraw = () => redraw();
  T.notify = (what) => document.dispatchEvent(new CustomEvent(`twintap:${what}`));
  T.hear = (what, act) => document.addEventListener(`twintap:${what}`, act);

  // Go on with a newer make of the trace, if that is still `wanted` when it is here; whether it was. What it shows is
  // fetched first, so that nothing blinks.
  T.renew = async function (meta, from, to, wanted) {
    const window = `api/window?from=${Math.floor(from)}&to=${Math.ceil(to)}${state.raw ? "&clocks=raw" : ""}`;
    const [data, overview] = await Promise.all(
      [window, "api/overview"].map((path) => T.fetchMessage(path, undefined, meta.made)),
    );
    if (!wanted()) return false;
    if (fetching) fetching.abort(); // an answer of the make before
    fetching = null;
    select(null, null);
    T.meta = meta;
    T.fillParts(meta.parts);
    requestTimes = new Map(meta.requestTimes.map(([number, first, last]) => [number, [first, last]]));
    T.arrange();
    Object.assign(state, { from, to, overview, hover: null, still: null });
    take(data, to - from, { numbers: [] });
    minimap.setOverview(overview);
    T.forgetHops();
    draw();
    repaint();
    settle();
    return true;
  };

  const open = (id) => document.querySelector("dialog[open]") || document.getElementById(id).showModal();

  // --- the view

  const middle = () => (state.from + state.to) / 2;
  const moved = (share) => [state.from + share * (state.to - state.from), state.to + share * (state.to - state.from)];

  // `jump`: this is where the view stays, not a moment of a gesture.
  function setView(from, to, jump = false) {
    const whole = T.wholeView(T.meta), most = whole[1] - whole[0];
    const width = Math.min(Math.max(to - from, LEAST_NS), most);
    const centreAt = Math.min(Math.max((from + to) / 2, whole[0] + width / 2), whole[1] - width / 2);
    state.from = centreAt - width / 2;
    state.to = centreAt + width / 2;
    state.moving = true;
    state.hover = null;
    tip.hide();
    clearTimeout(settleTimer);
    settleTimer = jump ? 0 : setTimeout(settle, SETTLE_MS);
    if (!fetching || jump) load(); // not only when the gesture has ended
    if (!jump) return redraw();
    settle();
    clearTimeout(drawTimer);
    if (fetching) drawTimer = setTimeout(redraw, SOON_MS);
  }

  function zoom(factor, time) {
    stopGlide();
    setView(time - (time - state.from) * factor, time + (state.to - time) * factor);
  }

  function pan(by) {
    stopGlide();
    setView(state.from + by, state.to + by);
  }

  function centre(time) {
    const half = (state.to - state.from) / 2;
    stopGlide();
    setView(time - half, time + half);
  }

  let gliding = 0;
  const stopGlide = () => (gliding += 1);
  const glideAround = (time, factor) => glide(time - (time - state.from) * factor, time + (state.to - time) * factor);

  // Move smoothly: the width changes by the same factor in each moment.
  function glide(from, to) {
    const mine = ++gliding, begin = performance.now();
    const before = [state.from, state.to], ratio = (to - from) / (before[1] - before[0]);
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return setView(from, to, true);
    const step = (now) => {
      if (mine !== gliding) return;
      const share = Math.min(1, Math.max(0, (now - begin) / GLIDE_MS)), eased = 1 - Math.pow(1 - share, 3);
      if (share === 1) return setView(from, to, true);
      const grown = Math.abs(ratio - 1) < 1e-6 ? eased : (Math.pow(ratio, eased) - 1) / (ratio - 1);
      setView(before[0] + (from - before[0]) * grown, before[1] + (to - before[1]) * grown);
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  // Zoom to the selected request; its times come with its arrows, so that may be a moment later.
  function fitRequest() {
    const times = requestTimes.get(state.selection.request);
    if (!times) return (awaited = state.selection.request);
    awaited = null;
    const room = Math.max(0.06 * (times[1] - times[0]), 10);
    glide(times[0] - room, times[1] + room);
  }

  T.zoomToBar = function (clicked) {
    const span = clicked && clicked.points && clicked.points[0].customdata;
    if (span) glide(span[0] - 0.06 * (span[1] - span[0]), span[1] + 0.06 * (span[1] - span[0]));
    return null;
  };

  // --- loading

  function settle() {
    settleTimer = 0;
    if (!fetching && !load()) finish();
  }

  // The picture is whole: painted in the next frame, with the ticks. Plotly's axis takes their place after it.
  function finish() {
    const mine = ++finishing;
    state.moving = false;
    state.withTicks = true;
    redraw();
    requestAnimationFrame(() => requestAnimationFrame(() => {
      if (state.moving || mine !== finishing) return;
      T.settledCount += 1;
      T.settledAt = performance.now();
      T.writeAddress(state, state.selection, state.hidden);
      state.still = null;
      T.notify("settled");
      requestIdleCallback(() => mine === finishing && syncRuler(), { timeout: LATEST_RULER_MS });
      T.prepareStill(state);
    }));
  }

  // Ask for the window if what is loaded does not cover it, or is too coarse. False if there is nothing to ask for.
  function load() {
    if (!needed()) return false;
    if (fetching) fetching.abort();
    const mine = (fetching = new AbortController());
    const from = Math.floor(state.from), to = Math.ceil(state.to), rows = T.wantedRows(view);
    T.fetchMessage(`api/window?from=${from}&to=${to}${state.raw ? "&clocks=raw" : ""}${rows.query}`, mine.signal)
      .then((message) => {
        if (mine !== fetching) return;
        fetching = null;
        T.banner("");
        take(message, to - from, rows);
        if (settleTimer) load(); // the gesture goes on
        else settle();
      })
      .catch((error) => error.name === "AbortError" || onLost(mine, error));
    return true;
  }

  function take(message, askedWidth, rows) {
    Object.assign(message, { askedWidth, raw: state.raw, rows: rows.numbers, arranged: T.arranged });
    if (message.number) T.withEnds(message, T.meta);
    state.still = null;
    state.data = message;
    state.picture = message.mode === "arrows" ? null : T.densityPicture(message, view, state.hidden);
    redraw();
  }

  function needed() {
    const data = state.data, width = state.to - state.from;
    if (!data) return true;
    const from = Math.max(state.from, 0), to = Math.min(state.to, T.meta.duration);
    if (data.raw !== state.raw || !T.rowsCovered(data, view)) return true;
    if (to <= from) return false;
    if (data.from > from || data.to < to) return true;
    return data.mode !== "arrows" && (width < 0.7 * data.askedWidth || width > 1.5 * data.askedWidth);
  }

  function onLost(mine, error) {
    if (mine === fetching) fetching = null;
    if (error && error.outdated) return T.banner("This trace was made anew meanwhile; press “follow” (Space) to see the newest.");
    T.banner("The viewer's server does not answer. Start it again with `tracer view`, then reload; what you see is the last it sent.");
  }

  function loadOverview() {
    T.fetchMessage("api/overview")
      .then((density) => {
        state.overview = density;
        state.overviewPicture = paint(density);
        minimap.setOverview(density);
        redraw();
      })
      .catch(() => onLost(null));
  }

  // --- drawing

  function redraw() {
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => {
      drawing = false;
      draw();
    });
  }

  function draw() {
    clearTimeout(drawTimer);
    makeView();
    T.showMoving(state.moving || state.withTicks);
    const inView = T.drawScene(context, view, state);
    minimap.draw(state);
    if (state.moving) return;
    T.showBadge(state, inView);
  }

  function makeView() {
    const { clientWidth, clientHeight } = canvas.parentElement;
    view = T.makeView(state.from, state.to, clientWidth, clientHeight, T.meta.rulerHeight, T.rows.length, scroll, T.stripsRoom());
  }

  function onResize() {
    if (!canvas.isConnected) return; // the page is going away
    const box = document.getElementById("plot"), height = box.clientHeight;
    const scale = devicePixelRatio || 1;
    canvas.width = Math.round(box.clientWidth * scale);
    canvas.height = Math.round(height * scale);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    makeView();
    T.placeLanes(view);
    repaint();
    setView(state.from, state.to, true);
  }

  function onArranged() {
    makeView();
    T.scrollLanes(scroll);
    setView(state.from, state.to, true);
  }

  // Rows that do not fit are scrolled to.
  T.scrollLanes = function (px) {
    scroll = px;
    makeView();
    scroll = view.scroll;
    T.placeLanes(view);
    repaint();
    if (!fetching && !T.rowsCovered(state.data, view)) load();
  };

  T.scrollToRow = function (row) {
    if (!view.shows(row) || view.y(row) > view.height - 20 || view.y(row) < view.ruler + 20) {
      T.scrollLanes(view.scroll + view.y(row) - (view.height + view.ruler) / 2);
    }
  };

  const paint = (density) => (density && ["density", "ends"].includes(density.mode) ? T.densityPicture(density, view, state.hidden) : null);

  function repaint() {
    state.picture = paint(state.data);
    state.overviewPicture = paint(state.overview);
    if (state.selected) state.selected.picture = paint(state.selected);
    state.still = null;
    redraw();
  }

  function onTheme() {
    drawChips();
    repaint();
  }

  const drawChips = () => document.querySelectorAll("[data-class] .chip").forEach((chip) => T.drawChip(chip, Number(chip.parentElement.dataset.class)));

  function syncRuler() {
    if (state.moving) return;
    const plot = document.querySelector("#ruler .js-plotly-plot");
    if (!plot || !window.Plotly) return setTimeout(syncRuler, 50);
    const { values, texts, base } = T.ticks(state.from, state.to, view.width);
    T.showBase(base);
    const wanted = { "xaxis.range": [state.from, state.to], "xaxis.tickvals": values, "xaxis.ticktext": texts };
    window.Plotly.relayout(plot, wanted).then(() => {
      if (state.moving) return;
      state.withTicks = false;
      redraw();
    });
  }

  // --- pointing and selecting

  function onPoint(x, y) {
    T.showCursor(x, view);
    if (state.moving) return;
    const [arrows, at] = arrowAt(x, y);
    const number = at < 0 ? null : arrows.number[at];
    canvas.classList.toggle("on-arrow", at >= 0);
    const { left, top } = canvas.getBoundingClientRect();
    const marked = T.stripAt(view, x, y) || T.markAt(view, x, y) || (at < 0 && (T.faultAt(view, x, y) || T.uncoveredAt(view, x, y)));
    if (marked) tip.showLines(marked, left + x, top + y);
    else if (at >= 0) tip.showArrow(arrows, at, left + x, top + y);
    else showBin(x, y, left, top);
    if (number !== state.hover) {
      state.hover = number;
      redraw();
    }
  }

  function showBin(x, y, left, top) {
    const counts = state.data && state.data.mode !== "arrows" && y > view.ruler && T.binAt(state.data, view.time(x), state.hidden);
    if (counts) tip.showBin(counts, left + x, top + y);
    else tip.hide();
  }

  function arrowAt(x, y) {
    for (const arrows of [state.selected, state.data]) {
      if (!arrows || !arrows.number) continue; // counts without a sample
      const at = T.nearest(view, arrows, state.hidden, x, y, 8);
      if (at >= 0) return [arrows, at];
    }
    return [null, -1];
  }

  function onLeave() {
    T.showCursor(null, view);
    tip.hide();
    if (state.hover !== null) {
      state.hover = null;
      redraw();
    }
  }

  function onClick(x, y) {
    canvas.focus();
    const [arrows, at] = arrowAt(x, y);
    if (at < 0) return select(null, null);
    select(arrows.request[at] < 0 ? null : arrows.request[at], arrows.number[at]);
  }

  function select(request, hop) {
    const before = state.selection;
    state.selection = { request, hop };
    T.showPacket(document.getElementById("packet-details"), hop);
    T.markRequest(request);
    if (request !== before.request) {
      state.selected = awaited = null;
      if (request !== null) loadRequest(request);
      loadDetails(request);
    }
    T.writeAddress(state, state.selection, state.hidden);
    T.notify("selected");
    redraw();
  }

  // The hosts' own clocks, or the trace's one timescale.
  function setClocks(raw) {
    state.raw = raw;
    T.markClocks(raw);
    if (state.selection.request !== null) loadRequest(state.selection.request);
    setView(state.from, state.to, true);
  }
  T.addressParts.clocks = {
    read: (text) => (state.raw = text === "raw" && T.meta.clocksApart > 0),
    write: () => (state.raw ? "raw" : ""),
  };

  function loadRequest(number) {
    T.fetchMessage(`api/requests/${number}/arrows${state.raw ? "?clocks=raw" : ""}`)
      .then((message) => {
        if (state.selection.request !== number) return;
        requestTimes.set(number, requestTimes.get(number) || [message.from, message.to]);
        state.selected = message.number ? T.withEnds(message, T.meta) : message;
        state.selected.picture = paint(state.selected);
        redraw();
        if (awaited === number) fitRequest();
      })
      .catch(() => onLost(null));
  }

  // The ledger first; when it is seen the waterfall, which takes longer to draw.
  async function loadDetails(number) {
    const trees = number === null ? [] : await T.fetchJson(`api/requests/${number}/details`).catch(() => onLost(null));
    if (!trees || state.selection.request !== number) return;
    T.fillParts({ "request-details": trees });
    if (number !== null) await new Promise((painted) => requestAnimationFrame(() => requestAnimationFrame(painted)));
    if (state.selection.request === number) window.dash_clientside.set_props("selection", { data: { request: number } });
  }

  async function goToProblem(which) {
    const at = Math.round(T.problemAt === undefined || T.problemAt < state.from || T.problemAt > state.to ? middle() : T.problemAt);
    const problem = await T.fetchJson(`api/problems/${which}?at=${at}`).catch(() => onLost(null));
    if (problem === undefined) return;
    if (problem === null) return T.note(which === "next" ? "No problem after this" : "No problem before this");
    await showProblem(problem);
  }

  async function goToConnection(id) {
    const problem = await T.fetchJson(`api/connections/${id}/trouble`).catch(() => onLost(null));
    if (problem === undefined) return;
    actions.close();
    if (problem === null) return T.note("No packet of this connection is in trouble");
    await showProblem(problem);
  }

  async function showProblem(problem) {
    T.problemAt = problem.from_ns;
    const place = problem.rank ? ` (${problem.rank.toLocaleString("en")} of ${problem.count.toLocaleString("en")})` : "";
    T.note(problem.text + place);
    const half = Math.min(state.to - state.from, Math.max(1e6, 4 * (problem.to_ns - problem.from_ns))) / 2;
    glide(problem.from_ns - half, problem.from_ns + half);
    if (problem.hop !== null) {
      const hop = await T.hop(problem.hop);
      select(hop && hop.request !== undefined ? hop.request : null, problem.hop);
    }
  }

  function toggleClass(cls) {
    if (state.hidden.has(cls)) state.hidden.delete(cls);
    else state.hidden.add(cls);
    T.markClasses(state.hidden);
    T.writeAddress(state, state.selection, state.hidden);
    repaint();
  }

  // What the picture depends on beside the view and the selection, as the address states it.
  const shape = () => [...state.hidden, ...Object.values(T.addressParts).map((part) => part.write())].join("&");

  function onAddress() {
    const before = shape(), given = T.readAddress(T.meta);
    state.hidden = given.hidden;
    T.markClasses(state.hidden);
    if (given.request !== state.selection.request || given.hop !== state.selection.hop) select(given.request, given.hop);
    if (before !== shape()) {
      T.arrange();
      onArranged();
    }
    if (!given.view && given.request !== null) fitRequest();
    else setView(...(given.view || [state.from, state.to]), true);
  }
})(window.twintap);

// Where Dash looks for client-side callbacks.
window.dash_clientside = Object.assign({}, window.dash_clientside, { twintap: window.twintap });
