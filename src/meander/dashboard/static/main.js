// The page: listens to the deployment, and hands each section to what shows it.

import {$, h, put, say} from "/static/dom.js";
import * as show from "/static/show.js";
import {askState, preview, rescale} from "/static/ask.js";

const held = {};       // the newest of every section
const stale = new Set();  // sections that have news and are not drawn yet
let may = {};

const NAMES = ["about", "now", "nodes", "owners", "tasks", "curves", "curve", "migration", "rescales",
  "checkpoints", "events", "feeders", "decisions", "trouble"];

function draw() {
  for (const name of stale) show[name]?.(held[name], held);
  if (["now", "nodes", "rescales", "trouble"].some((name) => stale.has(name))) show.health(held);
  stale.clear();
  document.body.dataset.drawn = String(Number(document.body.dataset.drawn || 0) + 1);
}

let asked = false;
function soon() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => { asked = false; draw(); });
}

function redraw() {
  for (const name of Object.keys(held)) stale.add(name);
  for (const canvas of document.querySelectorAll("canvas.mini")) canvas.redraw?.();
  soon();
}

function listen() {
  const source = new EventSource("/events");
  let ended = false;
  const live = (word, style) => { say("live", word); $("live").className = `live ${style}`; };
  source.onopen = () => live("live", "on");
  source.onerror = () => { if (!ended) live("connection lost, trying again", "off"); };
  source.addEventListener("may", (event) => {
    may = JSON.parse(event.data);
    $("whatif-do").hidden = $("whatif-why").hidden = !may.rescale;
    $("state").hidden = !may.state;
    document.querySelector('nav a[href="#state"]').hidden = !may.state;
  });
  source.addEventListener("ended", (event) => {
    ended = true;
    source.close();
    live("ended", "off");
    show.over(JSON.parse(event.data).why);
  });
  for (const name of NAMES) {
    source.addEventListener(name, (event) => {
      held[name] = JSON.parse(event.data);
      stale.add(name);
      soon();
    });
  }
}

// ---------------------------------------------------------------------------- theme, keys, forms

const THEMES = ["", "light", "dark"];

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  say("theme", {light: "☀ light", dark: "☾ dark"}[theme] || "◐ auto");
  try { localStorage.setItem("meander-theme", theme); } catch { /* a private window */ }
  redraw();
}

function nextTheme() {
  const now = document.documentElement.dataset.theme || "";
  setTheme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input")) return;
  if (event.key === "t") nextTheme();
  else if (event.key === "/") { event.preventDefault(); $("node-filter").focus(); }
  else if (/^[1-9]$/.test(event.key)) {
    const links = [...document.querySelectorAll("nav a:not([hidden])")];
    const link = links[Number(event.key) - 1];
    if (link) { link.click(); link.focus(); }
  }
}

function begin() {
  let theme = "";
  try { theme = localStorage.getItem("meander-theme") || ""; } catch { /* a private window */ }
  setTheme(THEMES.includes(theme) ? theme : "");
  $("theme").addEventListener("click", nextTheme);
  document.addEventListener("keydown", onKey);
  addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  show.tools(held, redraw);
  $("whatif-form").addEventListener("submit", (event) => { event.preventDefault(); preview(held); });
  $("whatif-do").addEventListener("click", () => rescale());
  $("state-form").addEventListener("submit", (event) => { event.preventDefault(); askState(held); });
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of document.querySelectorAll("nav a")) {
        if (link.hash === `#${entry.target.id}`) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
    }
  }, {rootMargin: "-25% 0px -65% 0px"});
  for (const section of document.querySelectorAll("main > section[aria-labelledby]")) seen.observe(section);
  listen();
  setInterval(() => show.tick(held), 1000);
}

begin();
