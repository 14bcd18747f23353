"""Beyond: one rescale from 8 to 1,000 nodes, simulated; and the simulator held against reality.

`compared`: the same rescale, simulated and on the real runtime, where both can run: one node in four
leaves, so that no process has to start. The machines are the same, so tasks that move must agree; how
far the times are apart says how much the simulated network is worth.
"""

from __future__ import annotations

from fractions import Fraction

from meander.operators import WordCount
from meander.run.flow import FlowRescale, Site, Step
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.local import deploy_local
from meander.testing.scale import STATE_BYTES, TAU
from meander.testing.scale import measure as simulate
from meander_lab.bench.load import LiveSetting, fill
from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.live import PATIENCE_S
from meander_lab.experiments.parameters import Parameters
from meander_lab.experiments.tables import Cell, Row


def cells(wanted: Parameters) -> list[Cell]:
    """List the cells."""
    compared = [{"part": "compared", "nodes": n} for n in wanted.real_nodes]
    return [*compared, *({"part": "simulated", "nodes": n} for n in wanted.nodes)]


def measure(cell: Cell, wanted: Parameters, ground: ExperimentGround) -> list[Row]:
    """Simulate, and in the part `compared` do the same for real."""
    nodes = cell["nodes"]
    if cell["part"] == "simulated":
        return [dict(simulate(nodes, wanted.tasks, nodes + max(1, nodes // 10))._asdict())]
    target = max(1, nodes - max(1, nodes // 4))
    growth = simulate(nodes, wanted.real_tasks, target)
    real = _really(nodes, wanted.real_tasks, target)
    return [{**growth._asdict(), **real}]


def _really(nodes: int, tasks: int, target: int) -> Row:
    """Do the same rescale with processes, and states of about the same size."""

    def deploy(n: int) -> ElasticOperator:
        return deploy_local(WordCount(), tasks=tasks, nodes=n, tau=Fraction(TAU))

    with Site(deploy, nodes) as site:
        fill(site, LiveSetting(state_mb=max(tasks * STATE_BYTES / 2**20, 0.001), tasks=tasks,
                             nodes=nodes, to=target))  # fmt: skip
        moving = FlowRescale(site.op, Step(0.0, target))
        report = moving.end(PATIENCE_S)
    return {
        "measured_s": moving.ended_s - moving.began_s,
        "measured_moved": report.moved,
        "measured_rounds": len(report.rounds),
    }
