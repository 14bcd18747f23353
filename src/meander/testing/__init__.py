"""The public testing kit: an operator's rules, and whole deployments in one thread, under a seed.

`check` tries an operator against its rules, in one call. The rest is the simulator: a schedule of
faults is a value that can be printed, replayed and cut down. `run_world` runs the very processes of
production on a virtual clock, simulated wires and a simulated disk; `run` runs the machines of the
protocol alone, which is faster. Checkers watch from outside. Try an operator of your own with
`run_world` and an `OwnTrial`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from meander.testing.check import RULES, Checked, check

if TYPE_CHECKING:
    from meander.testing.cluster import Cluster
    from meander.testing.faults import (
        ALL_FAULTS,
        COMMANDS,
        FAULTS,
        TRIALS,
        Incident,
        Schedule,
        generate,
    )
    from meander.testing.outcome import Outcome
    from meander.testing.playing import minimise, play
    from meander.testing.process import Classes
    from meander.testing.simulate import run
    from meander.testing.trial import OperatorTrial, Trial, Verdict
    from meander.testing.world.simulate import run_world
    from meander.testing.world.trials import OwnTrial, WorldTrial

__all__ = [
    "ALL_FAULTS",
    "COMMANDS",
    "FAULTS",
    "RULES",
    "TRIALS",
    "Checked",
    "Classes",
    "Cluster",
    "Incident",
    "OperatorTrial",
    "Outcome",
    "OwnTrial",
    "Schedule",
    "Trial",
    "Verdict",
    "WorldTrial",
    "check",
    "generate",
    "minimise",
    "play",
    "run",
    "run_world",
]

_PLACES = {
    "cluster": ("Cluster",),
    "faults": ("ALL_FAULTS", "COMMANDS", "FAULTS", "TRIALS", "Incident", "Schedule", "generate"),
    "process": ("Classes",),
    "outcome": ("Outcome",),
    "playing": ("minimise", "play"),
    "simulate": ("run",),
    "trial": ("OperatorTrial", "Trial", "Verdict"),
    "world.simulate": ("run_world",),
    "world.trials": ("OwnTrial", "WorldTrial"),
}


def __getattr__(name: str) -> Any:
    """Load the simulator when it is first asked for: `check` has no need of it."""
    for module, names in _PLACES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
