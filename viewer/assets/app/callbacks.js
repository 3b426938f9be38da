// Where Dash looks for the functions that it calls in the browser (`ClientsideFunction("twintap", name)`).

/** @param {Record<string, (...values: any[]) => unknown>} functions */
export function provideCallbacks(functions) {
  window.dash_clientside = Object.assign({}, window.dash_clientside, { twintap: functions });
}
