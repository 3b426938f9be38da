// The entry of the pages beside the timeline: what a click on a chart leads to, and the theme.

import { addAction, attachKeys } from "../page/actions.js";
import { byId } from "../page/elements.js";
import { startCompletion } from "../page/complete.js";
import { startTheme, switchTheme } from "../page/theme.js";
import { provideCallbacks } from "./callbacks.js";
import { leaveOutEmptyActions } from "./store.js";

// A cell of a grid has no link of its own: the link is computed from its place and the figure's `meta`.
function cellLink(graph, point) {
  const meta = graph && graph.layout && graph.layout.meta;
  if (!meta || !meta.link) return null;
  const middle = point.x * meta.unit, bounds = {
    from: `${Math.max(0, Math.floor(middle - meta.half))}`,
    to: `${Math.ceil(middle + meta.half)}`,
    least: `${Math.floor(point.y / meta.factor)}`,
    most: `${Math.ceil(point.y * meta.factor)}`,
  };
  return meta.link + (meta.link.includes("?") ? "&" : "?") + new URLSearchParams(bounds);
}

// What stands before all paths, of a trace that is a period of a series (viewer/mounting.py).
const base = () => (location.pathname.match(/^\/period\/\w+(?=\/)/) || [""])[0];

function graphOf(id) {
  const box = byId(JSON.stringify({ name: id.name, type: id.type }));
  return box && box.querySelector(".js-plotly-plot");
}

// Dash calls this when a chart is clicked. Links are made by the server and stay on it.
function followLink() {
  const triggered = (window.dash_clientside.callback_context.triggered || [])[0];
  if (triggered && triggered.value) {
    const point = triggered.value.points[0];
    const id = JSON.parse(triggered.prop_id.slice(0, triggered.prop_id.lastIndexOf(".")));
    const link = typeof point.customdata === "string" ? point.customdata : cellLink(graphOf(id), point);
    if (link && link.startsWith("/") && !link.startsWith("//")) location.assign(base() + link);
  }
  return window.dash_clientside.no_update;
}

startTheme();
startCompletion(() => `${base()}/`);
document.addEventListener("click", (event) => {
  if (event.target instanceof Element && event.target.closest("[data-pages-action='theme']")) switchTheme();
});
document.addEventListener("keydown", (event) => { // asks, as in other editors of SQL
  const box = event.target;
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && box instanceof HTMLTextAreaElement && box.form) {
    event.preventDefault();
    box.form.requestSubmit();
  }
});
addAction("theme", switchTheme, "t");
attachKeys();
leaveOutEmptyActions();
provideCallbacks({ followLink });
