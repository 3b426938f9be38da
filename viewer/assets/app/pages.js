// The pages beside the timeline: what a click on a chart leads to, and the theme.
"use strict";
window.twintap = window.twintap || {};

(function (T) {
  // A cell of a grid has no link of its own: the figure says where its place leads.
  function cellLink(graph, point) {
    const meta = graph && graph.layout && graph.layout.meta;
    if (!meta || !meta.link) return null;
    const middle = point.x * meta.unit, bounds = {
      from: Math.max(0, Math.floor(middle - meta.half)),
      to: Math.ceil(middle + meta.half),
      least: Math.floor(point.y / meta.factor),
      most: Math.ceil(point.y * meta.factor),
    };
    return meta.link + (meta.link.includes("?") ? "&" : "?") + new URLSearchParams(bounds);
  }

  function graphOf(id) {
    const box = document.getElementById(JSON.stringify({ name: id.name, type: id.type }));
    return box && box.querySelector(".js-plotly-plot");
  }

  // Dash calls this when a chart is clicked. Links are made by the server and stay on it.
  T.followLink = function () {
    const triggered = (window.dash_clientside.callback_context.triggered || [])[0];
    if (triggered && triggered.value) {
      const point = triggered.value.points[0];
      const id = JSON.parse(triggered.prop_id.slice(0, triggered.prop_id.lastIndexOf(".")));
      const link = typeof point.customdata === "string" ? point.customdata : cellLink(graphOf(id), point);
      if (link && link.startsWith("/") && !link.startsWith("//")) location.assign(link);
    }
    return window.dash_clientside.no_update;
  };

  if (typeof document === "undefined") return;
  const other = () => T.setTheme(T.theme() === "dark" ? "light" : "dark", true);
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-pages-action='theme']")) other();
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select");
    if (!document.getElementById("pages") || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "t") other();
  });
})(window.twintap);
