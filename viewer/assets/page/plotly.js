// Loads Plotly, which only the waterfall needs: parsing it takes half of what the rest of the first load does.

const PLOTLY = "assets/plotly-cartesian.min.js";
let loading = null;

/** Once Plotly is there. @returns {Promise<unknown>} */
export function loadPlotly() {
  loading = loading || new Promise((done, fail) => {
    const script = document.createElement("script");
    script.addEventListener("load", done);
    script.addEventListener("error", () => {
      loading = null;
      fail(new Error("Plotly did not come"));
    });
    script.src = PLOTLY;
    document.head.append(script);
  });
  return loading;
}
