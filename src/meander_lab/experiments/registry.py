"""The experiments by name. A module has `cells(wanted)` and `measure(cell, wanted, ground)`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Final, NamedTuple, Protocol, cast

from meander.errors import InputError
from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.parameters import Parameters
from meander_lab.experiments.tables import Cell, Row


class Measures(Protocol):
    """What the module of an experiment offers."""

    def cells(self, wanted: Parameters) -> Sequence[Cell]:
        """List what is to be measured, cell by cell."""

    def measure(self, cell: Cell, wanted: Parameters, ground: ExperimentGround) -> list[Row]:
        """Measure one cell."""


class Experiment(NamedTuple):
    """One row of the registry."""

    name: str
    title: str
    module: str
    live: bool
    """Whether it runs nodes as processes, and so wants a quiet machine."""
    hosts: bool = False
    """Whether it runs on hosts, which are network namespaces, with links of some rate; needs root."""

    def load(self) -> Measures:
        """Import its module."""
        return cast(Measures, import_module(f"meander_lab.experiments.{self.module}"))


EXPERIMENTS: Final = (
    Experiment("table3", "Table 3: cheapest steps, dear sequences", "table3", False),
    Experiment("appendix-a", "Appendix A: what consistent hashing misses", "appendix_a", False),
    Experiment("routing", "Section 4.1: routing by intervals or by a map", "routing", False),
    Experiment("bursts", "Bursts: how the load of tasks jumps", "bursts", False),
    Experiment("search-space", "Search space: how many partitions", "search_space", False),
    Experiment("frequencies", "Frequencies: how rare patterns are", "frequencies", False),
    Experiment("fig12", "Figure 12: migration cost against τ", "fig12", False),
    Experiment("fig13", "Figure 13: time of a plan against τ", "fig13", False),
    Experiment("fig14", "Figure 14: time of the pre-computation against τ", "fig14", False),
    Experiment("fig15", "Figure 15: cost and time against the number of tasks", "fig15", False),
    Experiment("fig17", "Figure 17: cost and pre-computation against γ", "fig17", False),
    Experiment("drift", "Beyond: weights that drift", "drift", False),
    Experiment("scale", "Beyond: up to 1,000 nodes, simulated", "scale", True),
    Experiment("fig11", "Figure 11: response time around a migration", "fig11", True),
    Experiment("fig16", "Figure 16: response time against the window", "fig16", True),
    Experiment("fig16-gap", "Figure 16 over many migrations: the gap", "fig16", True),
    Experiment("fig11-links", "Figure 11 on links: 4 hosts", "fig11", True, hosts=True),
    Experiment("fig16-links", "Figure 16 on links: 4 hosts", "fig16", True, hosts=True),
    Experiment("state", "Beyond: from a little state to a lot of it", "state", True),
    Experiment("rounds", "Beyond: all at once, or one task at a time", "rounds", True),
)
"""In the order in which `all` runs them."""


LINKS: Final = "-links"
"""How the name of an experiment ends that is another one on links."""


def experiment(name: str) -> Experiment:
    """Find an experiment.

    Raises:
        InputError: for a name that is none.
    """
    for found in EXPERIMENTS:
        if found.name == name:
            return found
    known = ", ".join(one.name for one in EXPERIMENTS)
    raise InputError(f"there is no experiment {name!r}: choose from {known}, or all")
