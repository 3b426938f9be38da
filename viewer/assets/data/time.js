// Times in words and ticks of the ruler. Times are ns since the trace's start, whole float64 numbers below 2^53.

/** @type {[number, string][]} */
const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
const MOST_DECIMALS = 4; // of a tick's label; with more, ticks count from a base

/** A duration in the unit that suits it: 73.2 ms. @param {Ns} ns */
export function duration(ns, digits = 3) {
  const size = Math.abs(ns);
  for (const [unitNs, unit] of UNITS) {
    if (size >= unitNs) {
      const whole = String(Math.floor(size / unitNs)).length;
      return (ns / unitNs).toFixed(unitNs > 1 ? Math.max(0, digits - whole) : 0) + " " + unit;
    }
  }
  return "0 ns";
}

/** To the nanosecond, in groups of three: 0.040 907 790 s. @param {Ns} ns */
export function exactTime(ns) {
  const size = Math.abs(Math.round(ns));
  const fraction = String(size % 1e9).padStart(9, "0");
  const groups = [fraction.slice(0, 3), fraction.slice(3, 6), fraction.slice(6)];
  return (ns < 0 ? "-" : "") + Math.floor(size / 1e9) + "." + groups.join(" ") + " s";
}

/**
 * Ticks for [from, to] on `width` pixels: {base: text, values: [ns], texts: [text]}.
 * @param {Ns} from @param {Ns} to @param {number} width
 */
export function ticks(from, to, width) {
  const step = niceStep(((to - from) * 110) / Math.max(110, width));
  const values = [];
  for (let value = Math.ceil(from / step) * step; value <= to; value += step) values.push(value);
  return { step, values, ...labels(values, step, Math.max(Math.abs(from), Math.abs(to))) };
}

function niceStep(least) {
  const decade = Math.pow(10, Math.max(0, Math.floor(Math.log10(Math.max(1, least)))));
  for (const factor of [1, 2, 5, 10]) if (factor * decade >= least) return factor * decade;
  return 10 * decade;
}

/** @param {number[]} values */
function labels(values, step, largest) {
  const [unitNs, unit] = UNITS.find(([each]) => largest >= each) || UNITS[3];
  const decimals = Math.max(0, Math.ceil(Math.log10(unitNs / step) - 1e-9));
  if (decimals <= MOST_DECIMALS) {
    return { base: "", texts: values.map((value) => (value / unitNs).toFixed(decimals) + " " + unit) };
  }
  const [smallNs, small] = UNITS.find(([each]) => step >= each) || UNITS[3];
  const base = Math.floor(values[0] / (1000 * smallNs)) * 1000 * smallNs;
  const texts = values.map((value) => "+" + (value - base) / smallNs + " " + small);
  return { base: baseText(base), texts };
}

function baseText(base) {
  return exactTime(base).replace(/( 000)+ s$/, " s");
}
