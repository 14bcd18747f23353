// What the page asks for: previews, rescales, states by key.

import {$, bytes, count, h, ms, put, whole} from "/static/dom.js";
import {beforeAfter, compare} from "/static/show.js";

async function ask(path, body) {
  const how = body === undefined ? {} : {method: "POST", headers: {"x-meander": "1", "content-type": "application/json"}, body: JSON.stringify(body)};
  const answer = await fetch(path, {credentials: "same-origin", ...how});
  const told = await answer.json().catch(() => ({error: `the driver answered ${answer.status}`}));
  if (!answer.ok) throw new Error(told.error || `the driver answered ${answer.status}`);
  return told;
}

const wish = () => ({nodes: Number($("whatif-nodes").value), pause_ms: $("whatif-pause").value === "" ? null : Number($("whatif-pause").value)});

const failed = (id) => (error) => put(id, h("p", {class: "error"}, error.message));

export function preview() {
  put("whatif-body", h("p", {class: "empty"}, "planning …"));
  ask("/preview", wish()).then((it) => {
    const said = it.moves
      ? `${it.from} → ${it.to} nodes: ${whole(it.moves)} of ${whole(it.tasks)} tasks would move, ${bytes(it.bytes)}, in ${count(it.rounds, "round")}. Rows would wait ${ms(1000 * it.pause_s)} at most; all takes about ${it.duration_s.toFixed(1)} s, without the start of new nodes.`
      : `${it.from} → ${it.to} nodes: nothing would move.`;
    put("whatif-body", h("p", {id: "preview-said"}, said),
      it.too_large ? h("p", {class: "t-warn"}, `${it.too_large} tasks alone take longer than that, unless most of each can be copied ahead.`) : null,
      it.conflict ? h("p", {class: "t-warn"}, it.conflict) : null,
      h("div", {class: "detail"}, h("ul", {}, it.why.map((text) => h("li", {}, text))), compare(it.bytes, it.policy, it.rivals, it.state_bytes), beforeAfter(it)));
  }).catch(failed("whatif-body"));
}

export function rescale() {
  if (!$("whatif-form").reportValidity()) return;
  const wanted = wish();
  const button = $("whatif-do");
  if (button.dataset.sure !== String(wanted.nodes)) {  // ask once, on the button itself
    button.dataset.sure = String(wanted.nodes);
    button.textContent = `Rescale to ${wanted.nodes} now?`;
    setTimeout(() => { delete button.dataset.sure; button.textContent = "Rescale"; }, 5000);
    return;
  }
  delete button.dataset.sure;
  button.textContent = "Rescale";
  ask("/rescale", {...wanted, why: $("whatif-reason").value}).then(({migration}) => {
    put("whatif-body", h("p", {id: "rescale-said"}, `Migration ${migration} has begun.`));
    $("migration").scrollIntoView();
  }).catch(failed("whatif-body"));
}

export function askState() {
  const fields = new URLSearchParams(new FormData($("state-form")));
  ask(`/state?${fields}`).then((it) => {
    const said = `Task ${it.task} on ${it.node}, which has ${whole(it.rows_of_task)} rows` + (it.by_key ? "." : "; its states do not name their keys, so these are the first.");
    const rows = it.rows.map((row) => h("tr", {}, row.map((cell) => h("td", {class: "left wrap"}, cell))));
    put("state-body", h("p", {id: "state-said"}, said),
      it.count ? h("table", {}, h("thead", {}, h("tr", {}, it.columns.map((name) => h("th", {class: "left"}, name)))), h("tbody", {}, rows))
        : h("p", {class: "empty"}, "There is no state under this key."));
  }).catch(failed("state-body"));
}
