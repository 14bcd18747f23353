// One function per section: takes what was sent, and shows it.

import {assign, color, hostHue, hueColor} from "/static/colors.js";
import {$, ago, both, bytes, clock, count, h, ms, percent, put, say, short, whole} from "/static/dom.js";
import * as pen from "/static/draw.js";

const NODES_SHOWN = 50;
const sorting = {by: "work", filter: "", all: false};

// ---------------------------------------------------------------------------- the top

export function about(it, held) {
  say("operator", it.operator);
  say("about", `run ${it.run} · ${it.address}`);
  document.title = `${it.operator} · Meander`;
  say("foot", `meander ${it.version} · policy ${it.policy}, at most ${(1 + it.tau).toFixed(2)} times the mean · generation ${it.generation}.`);
  const fields = it.keys.map((key) => h("label", {}, `${key} `, h("input", {type: "text", name: key, required: true, autocomplete: "off"})));
  put("state-form", fields, h("button", {type: "submit"}, "Look up"));
  if (held.decisions) decisions(held.decisions, held);
}

const PRESSURE = (share) => (share <= 0.1 ? "OK" : share <= 0.5 ? "LOW" : "HIGH");

export function now(it) {
  const moving = it.stage !== "steady", wanted = $("whatif-nodes");
  if (!wanted.dataset.set) { wanted.dataset.set = "1"; wanted.value = it.nodes + 1; }
  say("stage", moving ? it.stage : "steady");
  $("stage").className = moving ? "pill moving" : "pill";
  const card = (label, value, more, id) => h("div", {class: "card"}, h("div", {class: "label"}, label),
    h("div", {class: "value", id}, value), h("div", {class: "more"}, more));
  put("cards",
    card("rows a second", it.rows_s === null ? "–" : short(it.rows_s), [h("span", {id: "rows-total"}, whole(it.rows)), " so far"], "rows-s"),
    card("latency p50 / p99", both(it.p50_ms, it.p99_ms), "from when rows were due", "latency"),
    card("back-pressure", PRESSURE(it.full), `${percent(it.full)} of the fullest feeder's room`, "pressure"),
    card("waiting", short(it.waiting), "chunks that are not durable yet", "waiting"),
    card("busiest node", percent(it.busy), "of its time at work", "busy"),
    card("state", bytes(it.state_bytes), "of all tasks", "state-bytes"),
    card("nodes", whole(it.nodes), `epoch ${it.epoch}`, "node-count"),
    card("on the way", it.coming ? whole(it.coming) : "nothing", `so far ${count(it.waits, "chunk")} waited for a state`, "coming"));
}

/** All points up to a while ago, or those since: together they are the curves. */
export const curves = (it, held) => drawCurves(held);
export const curve = (it, held) => drawCurves(held);

const POINTS_MAX = 600;

function drawCurves({curves: base, curve: tail}) {
  if (!base || !tail) return;
  const it = Object.fromEntries(Object.keys(base).map((name) => [name, [...base[name], ...tail[name]].slice(-POINTS_MAX)]));
  if (!it.at_s.length) return;
  const draw = (id, series, label, most) => pen.curves($(id), it.at_s, series, it.moving, label, most);
  draw("chart-rows", [{values: it.rows_s, style: "l-main", area: true}], short);
  draw("chart-latency", [{values: it.p99_ms, style: "l-other"}, {values: it.p50_ms, style: "l-main"}],
    (v) => `${short(v)} ms`);
  draw("chart-pressure", [{values: it.full, style: "l-other"}, {values: it.busy, style: "l-third"}],
    (v) => `${Math.round(100 * v)} %`, 1);
}

const HOT = 0.9;   // a node that is busier cannot take much more
const BUSY = 0.5;  // below, work that is badly split makes nobody wait

const some = (rows, word) => rows.slice(0, 3).map(word).join(", ") + (rows.length > 3 ? ", …" : "");

/** Say in a few lines whether all is well, and what is not. */
export function health(held) {
  const {now: n, nodes: found, rescales: done} = held;
  if (!n || !found) return;
  const lines = [], notes = [];
  const bad = (text) => lines.push(["bad", "✕", text]), warn = (text) => lines.push(["warn", "!", text]);
  const note = (text) => notes.push(["note", "i", text]);
  if (n.failure) bad(`The deployment cannot go on: ${n.failure}`);
  if (n.lost_tasks) bad(`The states of ${whole(n.lost_tasks)} tasks are lost: their node died and there are no checkpoints.`);
  if (n.store) bad(n.store);
  if (held.trouble) warn(`What you see is not of now: the last look failed (${held.trouble}).`);
  const rows = rowsOf(found), hot = rows.filter((row) => row.busy >= HOT).sort((a, b) => b.busy - a.busy);
  const over = rows.filter((row) => row.work > found.cap && found.cap > 0).sort((a, b) => b.work - a.work);
  const alone = over.find((row) => row.tasks === 1), busy = over.some((row) => row.busy >= BUSY);
  if (hot.length) warn(`Overloaded: ${some(hot, (row) => `${row.name} (busy ${percent(row.busy)} of its time)`)}.${hot.every((row) => row === alone) ? "" : " Rescale to more nodes."}`);
  if (over.length) {
    const names = some(over, (row) => `${row.name} (${(row.work / found.cap).toFixed(2)} ×, busy ${percent(row.busy)} of its time)`);
    const cure = alone ? `${alone.name} has a single task, which alone is too much: no number of nodes helps, only keys that are spread.`
      : "A rescale to as many nodes as there are evens it out.";
    (busy ? warn : note)(`${over.length === 1 ? "One node has" : `${whole(over.length)} nodes have`} more work than a node may have: ${names}. ${cure}`);
  }
  if (n.full > 0.5) warn(`Back-pressure: the fullest feeder has used ${percent(n.full)} of its room.`);
  const last = (done || []).find((row) => row.promise);
  if (last?.promise === "missed") warn(`The last rescale missed its promise: ${last.said}.`);
  if (!lines.length) {
    const kept = last?.promise === "kept" ? ` The last rescale kept its promise: ${last.said}.` : "";
    lines.push(["good", "✓", `Nothing is lost, and no node is overloaded.${kept}`]);
  }
  lines.push(...notes);
  $("health").className = lines[0][0];
  put("health", lines.map(([style, sign, text]) => h("p", {class: style}, h("span", {class: "sign"}, sign), h("span", {}, text))));
}

export function over(why) {
  $("health").className = "warn";
  put("health", h("p", {class: "warn"}, h("span", {class: "sign"}, "■"), h("span", {}, `The deployment has ended: ${why}. What you see is its last moment.`)));
  say("stage", "ended");
}

// ---------------------------------------------------------------------------- nodes and tasks

const rowsOf = (it) => it.rows.map((row) => Object.fromEntries(it.columns.map((name, i) => [name, row[i]])));

let at = null;  // the run that the keyboard or the pointer is at

export function owners(it, held) {
  const hosts = assign(Object.entries(it.hosts));
  pen.ribbon($("ribbon"), it.tasks, it.runs, it.coming, at && [at[1], at[2]]);
  put("hosts", hosts.length > 1 ? hosts.map((host) => {
    const swatch = h("span", {class: "swatch"});
    swatch.style.background = hueColor(hostHue(hosts, host));
    return h("span", {}, swatch, host);
  }) : []);
  if (held.tasks) tasks(held.tasks, held);
  if (held.nodes) nodes(held.nodes, held);
}

export function nodes(it, held) {
  const rows = rowsOf(it), most = Math.max(it.cap, ...rows.map((row) => row.work)) * 1.04 || 1;
  const wanted = sorting.filter.toLowerCase();
  const found = rows.filter((row) => !wanted || `${row.name} ${row.host}`.toLowerCase().includes(wanted));
  const by = sorting.by, text = by === "name" || by === "host";
  found.sort((a, b) => (text ? String(a[by]).localeCompare(String(b[by]), "en", {numeric: true}) : b[by] - a[by] || String(a.name).localeCompare(b.name, "en", {numeric: true})));
  const shown = found.slice(0, NODES_SHOWN);
  say("nodes-said", `${whole(rows.length)}; none may have more than ${short(it.cap)} rows a second of work`);
  say("nodes-shown", found.length > shown.length ? `${shown.length} of ${whole(found.length)} shown` : "");
  for (const head of document.querySelectorAll("#node-table th")) {
    if (head.firstElementChild.dataset.sort === by) head.setAttribute("aria-sort", text ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
  }
  document.querySelector("#node-table tbody").replaceChildren(...shown.map((row) => nodeRow(row, it.cap, most)));
}

function nodeRow(row, cap, most) {
  const swatch = h("span", {class: "swatch"}), fill = h("span", {class: row.work > cap && cap ? "fill over" : "fill"});
  const mark = h("span", {class: "cap", title: `at most ${whole(cap)}`});
  swatch.style.background = color(row.name);
  fill.style.width = `${(100 * row.work) / most}%`;
  mark.style.left = `${(100 * cap) / most}%`;
  const over = row.work > cap && cap > 0;
  const said = [whole(row.work), over ? h("span", {class: "over-word"}, ` ${(row.work / cap).toFixed(2)} × the limit`) : null];
  const status = row.status === "up" ? null : h("span", {class: "pill warn"}, row.status);
  return h("tr", {"data-node": row.name}, h("td", {}, swatch, row.name, " ", status), h("td", {}, row.host || "–"), h("td", {}, whole(row.tasks)),
    h("td", {class: "wide"}, h("div", {class: "load"}, h("span", {class: "track"}, fill, mark), h("span", {class: "num"}, said))),
    h("td", {}, bytes(row.bytes)), h("td", {}, short(row.rows_s)), h("td", {}, percent(row.busy)));
}

export function tasks(it, held) {
  const runs = held.owners?.runs || [];
  const [heavy, work, who] = it.heaviest, [large, size, where] = it.largest;
  say("tasks-said", `${whole(it.tasks)} tasks${it.width > 1 ? `, ${it.width} to a bar, which shows the largest` : ""}. A node may have ${short(it.cap)} rows a second: `
    + `the heaviest task is ${heavy} on ${who} with ${short(work)}${it.cap ? ` (${percent(work / it.cap)} of that)` : ""}; the largest is ${large} on ${where} with ${bytes(size)}.`);
  pen.bars($("task-work"), it.work, it.width, it.tasks, runs, (v) => `${short(v)} rows/s`);
  pen.bars($("task-bytes"), it.bytes, it.width, it.tasks, runs, bytes);
}

/** Filters, sorting, and the cursor of the ribbon. */
export function tools(held, redraw) {
  $("node-filter").addEventListener("input", (event) => { sorting.filter = event.target.value; if (held.nodes) nodes(held.nodes, held); });
  for (const button of document.querySelectorAll("#node-table th button")) {
    button.addEventListener("click", () => { sorting.by = button.dataset.sort; if (held.nodes) nodes(held.nodes, held); });
  }
  const ribbon = $("ribbon");
  const go = (run) => {
    at = run || null;
    const it = held.owners;
    say("ribbon-said", run ? `${run[0]}${it.hosts[run[0]] ? ` on ${it.hosts[run[0]]}` : ""}: tasks ${run[1]} to ${run[2] - 1}` : "");
    pen.ribbon(ribbon, it.tasks, it.runs, it.coming, run && [run[1], run[2]]);
  };
  const under = (event) => {
    const it = held.owners, box = ribbon.getBoundingClientRect();
    const task = Math.floor((it.tasks * (event.clientX - box.left)) / box.width);
    return it.runs.find(([, lb, ub]) => lb <= task && task < ub);
  };
  ribbon.addEventListener("pointermove", (event) => held.owners && go(under(event)));
  ribbon.addEventListener("pointerleave", () => held.owners && go(null));
  ribbon.addEventListener("keydown", (event) => {
    const it = held.owners, step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!it || !step) return;
    event.preventDefault();
    const here = at ? it.runs.findIndex(([, lb]) => lb === at[1]) : step > 0 ? -1 : it.runs.length;
    go(it.runs[Math.max(0, Math.min(it.runs.length - 1, here + step))]);
  });
}

// ---------------------------------------------------------------------------- migration and rescales

const facts = (pairs) => h("dl", {class: "facts"}, pairs.filter(Boolean).map(([name, value, id]) =>
  h("div", {}, h("dt", {}, name), h("dd", {id}, value))));

const roundsLegend = (budget) => h("figcaption", {}, "Longest wait for a state in each round",
  h("span", {class: "key k-pred"}, "predicted"), h("span", {class: "key k-other"}, "measured"),
  budget ? h("span", {class: "key k-budget"}, "allowed") : null);

export function migration(it) {
  if (!it) { put("migration-body", h("p", {class: "empty"}, "Nothing has moved yet.")); return; }
  const all = it.moved + it.left, round = it.round;
  const bar = h("progress", {max: Math.max(1, all), value: it.active ? it.moved - round.left : 1});
  const done = it.rounds.map(([, , predicted, measured]) => [predicted, measured, false]);
  const open = it.active && round.tasks ? [[round.predicted_s, round.measured_s, true]] : [];
  const moving = it.active ? round.moving.map(([task, from, to, size]) => h("span", {}, `${task}: ${from || "store"} → ${to} · ${bytes(size)}`)) : [];
  const doing = !it.active ? it.stage : round.copying ? `${it.stage}: copying the next round ahead, while its tasks are served` : it.stage;
  put("migration-body",
    facts([["migration", `${it.number}: ${it.from} → ${it.to} nodes`], ["stage", doing, "migration-stage"],
      ["tasks moved", `${whole(it.moved)}${it.active ? ` of ${whole(all)}` : ""}`, "migration-moved"], ["rounds done", whole(it.rounds.length)],
      ["may wait", it.budget_ms === null ? "any time" : ms(it.budget_ms)], it.active ? ["for", `${it.seconds} s`] : null]),
    it.active ? bar : null,
    done.length + open.length ? h("figure", {class: "rounds"}, roundsLegend(it.budget_ms), pen.rounds([...done, ...open], it.budget_ms, width("migration-body"))) : null,
    it.active && round.left ? h("p", {class: "lead"}, `This round: ${round.left} of ${round.tasks} tasks on their way, ${bytes(round.bytes)}, ${ms(1000 * round.predicted_s)} predicted, ${ms(1000 * round.measured_s)} so far.`) : null,
    moving.length ? h("div", {class: "moving"}, moving) : null);
}

const width = (id) => Math.max(280, $(id).clientWidth);

const PROMISE = {kept: "good", missed: "bad", "no limit": "", completed: "good"};

/** Compare what a plan moves with what others' would. */
export function compare(mine, name, others, total) {
  const rows = [[`this plan (${name})`, mine], ...others], most = Math.max(1, total, ...rows.map(([, n]) => n));
  const said = h("figcaption", {}, "State that this plan moves, and what others' plans would for the same rescale; as large as it was then");
  return h("figure", {}, said, h("div", {class: "compare"}, rows.flatMap(([label, n], i) => {
    const fill = h("div", {class: `fill c-${i % 4}`});
    fill.style.width = `${(100 * n) / most}%`;
    return [h("span", {}, label), h("div", {class: "track"}, fill), h("span", {}, `${bytes(n)}${total ? ` · ${percent(n / total)} of the state` : ""}`)];
  })));
}

/** Draw owners before and after. */
export function beforeAfter(plan) {
  const row = (label, runs) => {
    const canvas = h("canvas", {class: "mini", role: "img", "aria-label": `owners ${label}`});
    canvas.redraw = () => canvas.isConnected && pen.ribbon(canvas, plan.tasks, runs);
    requestAnimationFrame(canvas.redraw);
    return h("div", {class: "mini-row"}, h("span", {}, label), canvas);
  };
  return h("div", {}, row("before", plan.runs_before), row("after", plan.runs_after));
}

const chosen = new Map();  // rescales that somebody has opened or closed

export function rescales(found) {
  if (!found.length) { put("rescales-body", h("p", {class: "empty"}, "Nobody has asked for another number of nodes yet.")); return; }
  put("rescales-body", found.map((it, i) => {
    const plan = it.plan, word = it.promise || it.stage;
    const made = h("details", {open: chosen.get(it.number) ?? i === 0, "data-rescale": it.number},
      h("summary", {onclick: (event) => chosen.set(it.number, !event.currentTarget.parentElement.open)}, h("b", {}, `${it.from ?? plan?.from ?? "?"} → ${it.to ?? plan?.to ?? "?"} nodes`),
        h("span", {class: `pill ${PROMISE[word] ?? "warn"}`}, it.promise === "kept" ? "promise kept" : it.promise === "missed" ? "promise missed" : word),
        h("span", {class: "faint"}, `${clock(it.began_s)} · ${it.by || "?"}${it.why ? `: ${it.why}` : ""}`),
        it.moved === undefined ? null : h("span", {}, `${count(it.moved, "task")}, ${bytes(it.bytes)}, ${count(it.rounds.length, "round")}, ${it.seconds.toFixed(2)} s`)));
    made.append(detail(it, plan));
    return made;
  }));
}

function detail(it, plan) {
  const named = (tasks, verb) => Object.entries(tasks).slice(0, 8).map(([node, n]) => `${node} ${verb} ${count(n, "task")}`);
  const moved = plan ? [...named(plan.gave, "gave"), ...named(plan.got, "got")] : [];
  const rounds = (it.rounds || []).map((r) => [r.predicted_s, r.measured_s, false]);
  return h("div", {class: "detail"},
    it.said ? h("p", {class: "lead promise"}, `${it.said[0].toUpperCase()}${it.said.slice(1)}.`) : null,
    plan ? h("ul", {}, plan.why.map((text) => h("li", {}, text)), moved.length ? h("li", {}, `${moved.join(", ")}.`) : null) : null,
    plan ? compare(plan.bytes, plan.policy, plan.rivals, plan.state_bytes) : null,
    plan ? beforeAfter(plan) : null,
    rounds.length ? h("figure", {class: "rounds"}, roundsLegend(it.pause_ms), pen.rounds(rounds, it.pause_ms, width("rescales-body") - 20)) : null);
}

// ---------------------------------------------------------------------------- the rest

const table = (head, rows, left = 1) => h("table", {}, h("thead", {}, h("tr", {}, head.map((name, i) => h("th", {scope: "col", class: i < left ? "left" : ""}, name)))),
  h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, i) => h("td", {class: i < left ? "left wrap" : ""}, cell))))));

export function decisions(found, held) {
  const options = held.about?.autoscale, shown = Boolean(found.length || options);
  $("decisions").hidden = !shown;
  document.querySelector('nav a[href="#decisions"]').hidden = !shown;
  const numbers = (value) => Object.entries(value || {}).slice(0, 12).map(([name, n]) => `${name} ${Number(n.toPrecision(4))}`).join(" · ");
  put("decisions-body", h("p", {class: "lead"}, options ? `It is on: ${options}.` : "It is off."),
    found.length ? table(["when", "action", "nodes", "reasons", "numbers"], found.map((it) =>
      [clock(it.when), `${it.action}${it.carried_out ? "" : " (only said)"}`, it.nodes_before === it.nodes_after ? whole(it.nodes_after) : `${it.nodes_before} → ${it.nodes_after}`,
        it.reasons.join("; "), h("span", {class: "faint small"}, numbers(it.numbers))]), 5)
      : h("p", {class: "empty"}, "It has not decided anything yet."));
}

export function checkpoints(it) {
  if (!it) { put("durable-body", h("p", {class: "empty"}, "There are no checkpoints: a lost node takes the states of its tasks with it. Deploy with checkpoint=…")); return; }
  put("durable-body",
    facts([["written", it.saved_at_s === null ? "never" : h("span", {"data-since": it.saved_at_s}, ago(it.saved_at_s))],
      ["since then", it.saved ? "nothing new" : "more to write"], ["bytes", bytes(it.bytes)], ["files", whole(it.files)],
      ["snapshots", whole(it.snapshots)], ["changes", whole(it.changes)],
      ["durable after, p50 / p99", both(it.durable_ms.p50_ms, it.durable_ms.p99_ms)],
      ["rows waited for encoding, p99", ms(it.pause_ms.p99_ms)]]),
    h("p", {class: "lead"}, `In ${it.where}`), it.trouble ? h("p", {class: "error"}, it.trouble) : null);
}

export function feeders(found) {
  put("feeders-body", found.length ? table(["feeder", "chunks that are not durable", "bytes", "of its room"],
    found.map(([name, chunks, size, full]) => [name, whole(chunks), bytes(size), percent(full)])) : h("p", {class: "empty"}, "Nobody feeds."));
}

export function events(found) {
  put("events-body", found.length ? h("div", {class: "scroll"}, table(["when", "what", ""], found.map(([atS, what, text]) =>
    [clock(atS), h("span", {class: "pill warn"}, what), text]), 3)) : h("p", {class: "empty"}, "None."));
}

export function tick() {
  for (const it of document.querySelectorAll("[data-since]")) it.textContent = ago(Number(it.dataset.since));
}
