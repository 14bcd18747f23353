// Elements and numbers. Text only ever becomes text: nothing here, or anywhere on this page, parses markup.

export const $ = (id) => document.getElementById(id);

/** Make an element: h("td", {class: "left"}, "text", other). Properties that start with "on" are listeners. */
export function h(tag, props, ...children) {
  const made = document.createElement(tag);
  fill(made, props, children);
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

/** Make an element of a drawing. */
export function s(tag, props, ...children) {
  const made = document.createElementNS(SVG, tag);
  fill(made, props, children);
  return made;
}

function fill(made, props, children) {
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
}

export function put(id, ...children) {
  $(id).replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
}

export const say = (id, text) => {
  const it = $(id);
  if (it.textContent !== text) it.textContent = text;
};

const WHOLE = new Intl.NumberFormat("en", {maximumFractionDigits: 0});
const SHORT = new Intl.NumberFormat("en", {notation: "compact", maximumFractionDigits: 1});

export const whole = (n) => WHOLE.format(n);
export const short = (n) => (Math.abs(n) < 10000 ? WHOLE.format(n) : SHORT.format(n));

export const count = (n, noun) => `${WHOLE.format(n)} ${noun}${n === 1 ? "" : "s"}`;

export function bytes(n) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  for (; n >= 1000 && at < units.length - 1; at++) n /= 1000;
  return `${at && n < 100 ? n.toFixed(1) : WHOLE.format(n)} ${units[at]}`;
}

export function ms(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 10000) return `${(value / 1000).toFixed(1)} s`;
  return value < 10 ? `${value.toFixed(1)} ms` : `${WHOLE.format(value)} ms`;
}

/** Two durations with one unit, where that can be. */
export function both(one, other) {
  const [a, b] = [ms(one), ms(other)];
  return a.endsWith(" ms") && b.endsWith(" ms") ? `${a.slice(0, -3)} / ${b}` : `${a} / ${b}`;
}

export const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;

export function ago(atS) {
  const past = Math.max(0, Date.now() / 1000 - atS);
  if (past < 90) return `${Math.round(past)} s ago`;
  if (past < 5400) return `${Math.round(past / 60)} min ago`;
  return `${(past / 3600).toFixed(1)} h ago`;
}

export const clock = (atS) => new Date(atS * 1000).toLocaleTimeString("en-GB");
