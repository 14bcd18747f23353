"""How large the search space is, for both applications: what the paper explains Figure 12 with.

A row is an application, a τ and a number of nodes, with the feasible partitions of the weights that
Figure 12 plans with. They are counted and not listed, so that every τ and every n of the trace has its
number. Where an n cannot meet τ it is the smallest that can be met that is counted at, and told.
"""

from __future__ import annotations

from meander.planning.exact.partitions import count_partitions, effective_tau
from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.parameters import Parameters
from meander_lab.experiments.tables import Cell, Row


def cells(wanted: Parameters) -> list[Cell]:
    """List the cells."""
    return [
        {"span": span, "application": application, "tau": tau}
        for span in range(wanted.spans)
        for application in wanted.applications
        for tau in wanted.taus
    ]


def measure(cell: Cell, wanted: Parameters, ground: ExperimentGround) -> list[Row]:
    """Count, for every number of nodes that there may be."""
    ground = ground.at_span(cell["span"])
    load = ground.workload(cell["application"], wanted.tasks, wanted.window_s)
    rows = []
    for nodes in range(int(ground.wanted.nodes_min), int(ground.wanted.nodes_max) + 1):
        met = effective_tau(load, nodes, cell["tau"])
        states = float(count_partitions(load, nodes, met))
        rows.append({"nodes": nodes, "states": states, "tau_met": float(met)})
    return rows
