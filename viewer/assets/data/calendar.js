// Days and times of day, UTC. Times are whole seconds since the epoch.

const MINUTE = 60, HOUR = 3600, DAY = 86400;
const STEPS = [MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY, 91 * DAY, 364 * DAY];
const TICK_PX = 84;
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const WEEKDAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

const dateOf = (/** @type {number} */ at) => new Date(at * 1000);
const two = (/** @type {number} */ number) => String(number).padStart(2, "0");

/** `14:03`. @param {number} at */
export const timeOfDay = (at) => `${two(dateOf(at).getUTCHours())}:${two(dateOf(at).getUTCMinutes())}`;

/** `27 Nov`. @param {number} at */
export const dayText = (at) => `${dateOf(at).getUTCDate()} ${MONTHS[dateOf(at).getUTCMonth()]}`;

/** `Fri 27 Nov 14:03`. @param {number} at */
export const momentText = (at) => `${WEEKDAYS[dateOf(at).getUTCDay()]} ${dayText(at)} ${timeOfDay(at)}`;

/** A stretch: the day is said again only if it is another; its year, if it is not this one's. @param {number} from @param {number} to */
export function stretchText(from, to) {
  const year = dateOf(from).getUTCFullYear(), same = dayText(from) === dayText(to);
  return `${momentText(from)} to ${same ? timeOfDay(to) : momentText(to)} UTC, ${year}`;
}

/** How long: `1 h`, `5 min`, `30 days`. @param {number} seconds */
export function lengthText(seconds) {
  const [size, unit] = seconds >= 2 * DAY ? [seconds / DAY, "days"] : seconds >= HOUR ? [seconds / HOUR, "h"] : [seconds / MINUTE, "min"];
  return `${Number(size.toFixed(1))} ${unit}`;
}

/**
 * Ticks of [from, to] on `width` pixels: where, what it says, and whether a day begins there.
 * @param {number} from @param {number} to @param {number} width
 */
export function calendarTicks(from, to, width) {
  const least = ((to - from) * TICK_PX) / Math.max(TICK_PX, width);
  const step = STEPS.find((each) => each >= least) || STEPS[STEPS.length - 1], ticks = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    const isDay = at % DAY === 0;
    ticks.push({ at, text: isDay ? dayText(at) : timeOfDay(at), isDay: isDay && step < DAY });
  }
  return ticks;
}

/** As in the address: `2026-11-27T14:03`. @param {number} at */
export const addressTime = (at) => new Date(Math.round(at / MINUTE) * MINUTE * 1000).toISOString().slice(0, 16);

/** The time of an address; null for what is none. @param {string | null} text */
export function timeOfAddress(text) {
  const found = /^\d{4}-\d\d-\d\dT\d\d:\d\d$/.test(text || "") ? Date.parse(`${text}:00Z`) / 1000 : NaN;
  return Number.isFinite(found) ? found : null;
}

/** The name of a period, by its beginning. @param {number} from */
export const periodName = (from) => new Date(from * 1000).toISOString().replace(/[-:]|\.\d+/g, "");
