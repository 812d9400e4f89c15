// Formats numbers, times and names for people.

const whole = new Intl.NumberFormat("en");

export const count = (number) => whole.format(number ?? 0);

export const counted = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** A few names, and the number of the others. */
export function listed(names, most = 5) {
  const shown = names.slice(0, most).map((name) => `“${name}”`);
  if (names.length > most) shown.push(`${names.length - most} more`);
  return shown.length > 1 ? `${shown.slice(0, -1).join(", ")} and ${shown.at(-1)}` : shown.join("");
}

/** A share as a percentage, or a dash if there is none. */
export const percent = (share) => (share === null || share === undefined ? "–" : `${Math.round(share * 100)} %`);

/** Images per second, with more digits for low rates. */
export function rate(number) {
  if (!number) return "0";
  return number >= 10 ? count(Math.round(number)) : number.toFixed(1);
}

/** A score, a threshold or a similarity, with three significant digits. */
export function figure(number) {
  if (number === null || number === undefined) return "–";
  if (Number.isInteger(number)) return count(number);
  const digits = Math.abs(number) >= 100 ? 0 : Math.abs(number) >= 10 ? 1 : Math.abs(number) >= 0.001 ? 3 : 5;
  return number.toFixed(digits).replace("-", "−");
}

/** The time of day, with the date if it is another day. */
export function clock(seconds) {
  if (!seconds) return "–";
  const moment = new Date(seconds * 1000);
  const time = moment.toLocaleTimeString("en-GB");
  return moment.toDateString() === new Date().toDateString() ? time : `${moment.toLocaleDateString("en-GB")} ${time}`;
}

/** The time since a moment, in one unit. */
export function ago(seconds) {
  if (!seconds) return "never";
  const passed = Math.max(0, Date.now() / 1000 - seconds);
  if (passed < 10) return "now";
  if (passed >= 86400) return `${counted(Math.floor(passed / 86400), "day")} ago`;
  for (const [size, unit] of [[3600, "h"], [60, "min"]]) if (passed >= size) return `${Math.floor(passed / size)} ${unit} ago`;
  return `${Math.floor(passed)} s ago`;
}

export const plainKind = (kind) => String(kind).replaceAll("_", " ").replaceAll("-", " ");

/** The meaning of each guard light, in a word and in a sentence. */
export const LIGHTS = {
  off: ["no guard", "This session has no guard."],
  green: ["fine", "The guard reports no problem."],
  amber: ["warning", "The guard has warned, or skips updates."],
  red: ["acted", "The guard has undone updates, and the frozen model answers."],
};
