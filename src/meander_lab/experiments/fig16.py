"""Figure 16: response time of frequent patterns against the window, method by method, on the runtime.

Each method keeps its own kind of assignment: it settles there before the stream begins. When the window
is full, migrations of the test follow one another; the delay of every row due within `after_s` of a
start counts. From the end of one to the beginning of the next it is told how busy nodes are. On links
(`fig16-links`) nodes are on hosts, and the window is full from the beginning.

`fig16-gap` has two methods alone and as many migrations as Figure 12, close behind one another: what
looking ahead saves is spread over many of them, and the first two may well cost more.
"""

from __future__ import annotations

from dataclasses import replace

from meander_lab.experiments.fig11 import links
from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.live import LiveDeployment, LiveMigration, distribution, response, run
from meander_lab.experiments.parameters import Parameters
from meander_lab.experiments.policies import PAPER, paper_forecast
from meander_lab.experiments.stream import PatternStream
from meander_lab.experiments.tables import Cell, Row

APPLICATION = "frequent-patterns"


def cells(wanted: Parameters) -> list[Cell]:
    """List the cells; a restart is measured with the smallest windows only."""
    return [
        {"method": method, "window_s": window, "repeat": repeat, **link}
        for repeat in range(wanted.repeats)
        for link in links(wanted)
        for number, window in enumerate(sorted(wanted.windows_s))
        for method in wanted.methods
        if method != "restart" or number < wanted.restart_windows
    ]


def measure(cell: Cell, wanted: Parameters, ground: ExperimentGround) -> list[Row]:
    """Let the window fill, then migrate again and again."""
    method, window = cell["method"], cell["window_s"]
    nodes = [int(ground.trace.nodes[k]) for k in ground.test[: wanted.migrations]]
    before = int(ground.trace.nodes[ground.test[0] - 1])
    forecast = None
    if method == PAPER:
        load = ground.workload(APPLICATION, wanted.tasks, wanted.planned_window_s)
        forecast, _ = paper_forecast(
            load, ground.mtm("n", month=True), wanted.tau, wanted.gamma, wanted.effort, ground.seed,
            int(wanted.states_max),
        )  # fmt: skip
    policy = str({"restart": "storm", PAPER: "mtm"}.get(method, method))
    mode = "restart" if method == "restart" else "live"
    full = bool(wanted.get("full"))
    begin = 2 * KNOWN_S if full else window + FULL_S
    script = [
        LiveMigration(begin + k * wanted.after_s, to, mode, policy) for k, to in enumerate(nodes)
    ]
    seconds = begin + len(nodes) * wanted.after_s
    settle = None if mode == "restart" else LiveMigration(0.0, before, policy=policy)
    again = [] if settle is None or not full else [replace(settle, at_s=KNOWN_S)]
    where = LiveDeployment(
        before, wanted.tasks, wanted.tau, forecast, settle=settle, link_mbit=cell.get("link_mbit")
    )
    stream = PatternStream(
        ground, wanted.tweets_s, seconds, window, repeat=cell["repeat"], full=full
    )
    found = run(stream, where, [*again, *script])
    rows = []
    for number, facts in enumerate(found.migrations[len(again) :]):
        near = found.samples.due(facts["began_s"], facts["began_s"] + wanted.after_s)
        rows.append({
            "migration": number + 1, "nodes": nodes[number], **response(near),
            "quantiles_ms": distribution(near), "seconds": facts["seconds"],
            "bytes_moved": facts["bytes_moved"], "moved": len(facts["moved"]),
            "exact": found.exact, "state_bytes": found.state_bytes,
            "trusted": None if forecast is None else forecast.trusted,
            **{name: facts.get(name) for name in TOLD},
        })  # fmt: skip
    return rows


TOLD = ("plan_pct", "differs_share", "busy_share", "operator_share", "rows_s")
"""Of a migration: what its plan moves, whether it is another than single-step's; and how busy nodes are
from its end to the next one."""
FULL_S = 1.0
"""So long after the first tweets leave the window the first migration begins."""
KNOWN_S = 4.0
"""Where the window is full from the beginning: so long after it a method settles once more, since only
now the work of tasks is known; and as long after that the first migration begins."""
