// Pictures: who owns which task, bars of tasks, curves over time, rounds. They draw what they are given.

import {color, css} from "/static/colors.js";
import {s} from "/static/dom.js";

/** Prepare a canvas for its size on this screen. */
function ready(canvas) {
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  const w = Math.round(width * scale), hh = Math.round(height * scale);
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== hh) canvas.height = hh;
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  return {pen, width, height};
}

/** Draw runs [[node, lb, ub], …] of all tasks; `coming`: spans of tasks whose state is on its way. */
export function ribbon(canvas, tasks, runs, coming = [], at = null, names = true) {
  const {pen, width, height} = ready(canvas);
  const x = (task) => (width * task) / tasks;
  for (const [node, lb, ub] of runs) {
    pen.fillStyle = color(node);
    pen.fillRect(x(lb), 0, x(ub) - x(lb) + 0.3, height);
  }
  if (runs.length <= width / 6) {
    pen.fillStyle = css("--card");
    for (const [, lb] of runs) if (lb) pen.fillRect(x(lb) - 0.5, 0, 1, height);
  }
  if (names) {
    pen.font = "600 12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    for (const [node, lb, ub] of runs) {
      const room = x(ub) - x(lb), need = pen.measureText(node).width;
      if (room < need + 10) continue;
      pen.fillStyle = "#ffffffe6";
      pen.beginPath();
      pen.roundRect(x(lb) + 5, height / 2 - 9, need + 8, 18, 4);
      pen.fill();
      pen.fillStyle = "#1b1f24";
      pen.fillText(node, x(lb) + 9, height / 2 + 0.5);
    }
  }
  for (const [lb, ub] of coming) hatch(pen, x(lb), Math.max(2, x(ub) - x(lb)), height);
  if (at !== null) {
    pen.strokeStyle = css("--ink");
    pen.lineWidth = 2;
    pen.strokeRect(x(at[0]) + 1, 1, Math.max(2, x(at[1]) - x(at[0]) - 2), height - 2);
  }
}

function hatch(pen, left, width, height) {
  pen.save();
  pen.beginPath();
  pen.rect(left, 0, width, height);
  pen.clip();
  pen.fillStyle = "#ffffff80";
  pen.fillRect(left, 0, width, height);
  pen.strokeStyle = "#1b1f24";
  pen.lineWidth = 1.5;
  pen.beginPath();
  for (let at = left - height; at < left + width; at += 7) {
    pen.moveTo(at, height);
    pen.lineTo(at + height, 0);
  }
  pen.stroke();
  pen.restore();
}

/** Draw bars of tasks in their nodes' colours; `width`: tasks that share a bar. */
export function bars(canvas, values, share, tasks, runs, label) {
  const {pen, width, height} = ready(canvas);
  const most = Math.max(1, ...values), floor = height - 2, x = (task) => (width * task) / tasks;
  let run = 0;
  const wide = Math.max(1, x(share) - (x(share) > 3 ? 1 : 0));
  values.forEach((value, i) => {
    const task = i * share;
    while (run < runs.length - 1 && runs[run][2] <= task) run++;
    pen.fillStyle = runs.length ? color(runs[run][0]) : css("--main");
    const tall = (value / most) * (floor - 14);
    pen.fillRect(x(task), floor - tall, wide, tall);
  });
  pen.fillStyle = css("--line");
  pen.fillRect(0, floor, width, 1);
  pen.fillStyle = css("--faint");
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "top";
  pen.fillText(`most: ${label(most)}`, 2, 0);
}

const LEFT = 50, TOP = 8;

/** Draw curves over time into a box: [{values, style}], with the time of migrations shaded. */
export function curves(box, times, series, moving, label, most = 0) {
  const W = Math.max(200, box.clientWidth), H = Math.max(90, box.clientHeight), FLOOR = H - 18;
  const top = Math.max(most, ...series.flatMap(({values}) => values.filter((v) => v !== null))) || 1;
  const last = times[times.length - 1], span = Math.max(30, last - times[0]), first = last - span;
  const nice = niceTop(top);
  const x = (t) => LEFT + ((W - LEFT) * (t - first)) / span;
  const y = (v) => FLOOR - ((FLOOR - TOP) * Math.min(v, nice)) / nice;
  const parts = [];
  for (const [begin, end] of stretches(times, moving)) {
    parts.push(s("rect", {class: "shade", x: x(begin), y: TOP, width: Math.max(2, x(end) - x(begin)), height: FLOOR - TOP}));
  }
  for (const share of [0, 0.5, 1]) {
    parts.push(s("line", {class: "grid", x1: LEFT, x2: W, y1: y(share * nice), y2: y(share * nice)}));
    parts.push(s("text", {x: LEFT - 5, y: y(share * nice) + 3.5, "text-anchor": "end"}, label(share * nice)));
  }
  parts.push(s("text", {x: LEFT, y: H - 4}, span < 120 ? `${Math.round(span)} s ago` : `${Math.round(span / 60)} min ago`));
  parts.push(s("text", {x: W, y: H - 4, "text-anchor": "end"}, "now"));
  for (const {values, style, area} of series) {
    for (const piece of pieces(times, values)) {
      const points = piece.map(([t, v]) => `${x(t).toFixed(1)},${y(v).toFixed(1)}`).join(" ");
      if (area) parts.push(s("polygon", {class: "area", points: `${x(piece[0][0])},${FLOOR} ${points} ${x(piece[piece.length - 1][0])},${FLOOR}`}));
      parts.push(s("polyline", {class: `line ${style}`, points}));
    }
  }
  box.replaceChildren(s("svg", {viewBox: `0 0 ${W} ${H}`, role: "img"}, parts));
}

function niceTop(top) {
  const power = 10 ** Math.floor(Math.log10(top));
  for (const step of [1, 2, 2.5, 5, 10]) if (step * power >= top) return step * power;
  return 10 * power;
}

function stretches(times, flags) {
  const found = [];
  times.forEach((t, i) => {
    if (!flags[i]) return;
    if (found.length && i && flags[i - 1]) found[found.length - 1][1] = t;
    else found.push([i ? times[i - 1] : t, t]);
  });
  return found;
}

function pieces(times, values) {
  const found = [];
  values.forEach((v, i) => {
    if (v === null) return;
    if (!found.length || values[i - 1] === null) found.push([]);
    found[found.length - 1].push([times[i], v]);
  });
  return found.filter((piece) => piece.length > 1);
}

/** Draw the pause of every round: predicted, measured, and the budget. Rounds: [predicted_s, measured_s, open]. */
export function rounds(found, budgetMs, w) {
  const shown = found.slice(-60), hgt = 144, left = 54, floor = 122;
  const top = niceTop(Math.max(1, budgetMs || 0, ...shown.flatMap(([p, m]) => [1000 * p, 1000 * m])));
  const y = (v) => floor - ((floor - 8) * v) / top, step = Math.min(60, (w - left) / Math.max(1, shown.length));
  const parts = [];
  for (const share of [0, 0.5, 1]) {
    parts.push(s("line", {class: "grid", x1: left, x2: w, y1: y(share * top), y2: y(share * top)}));
    parts.push(s("text", {x: left - 5, y: y(share * top) + 3.5, "text-anchor": "end"}, `${share * top} ms`));
  }
  shown.forEach(([predicted, measured, open], i) => {
    const x = left + i * step, number = found.length - shown.length + i + 1;
    const bar = (value, at, style, said) => s("rect", {class: style, x: x + step * at, width: step * 0.36,
      y: y(1000 * value), height: Math.max(1, floor - y(1000 * value))}, s("title", {}, said));
    parts.push(bar(predicted, 0.12, "b-pred", `round ${number}: ${(1000 * predicted).toFixed(1)} ms predicted`));
    parts.push(bar(measured, 0.5, open ? "b-open" : "b-meas", `round ${number}: ${(1000 * measured).toFixed(1)} ms measured`));
    if (step > 14 || number % 5 === 0) parts.push(s("text", {x: x + step / 2, y: hgt - 8, "text-anchor": "middle"}, String(number)));
  });
  if (budgetMs) parts.push(s("line", {class: "budget", x1: left, x2: w, y1: y(budgetMs), y2: y(budgetMs)}));
  return s("svg", {viewBox: `0 0 ${w} ${hgt}`, role: "img", "aria-label": "pause of every round"}, parts);
}
