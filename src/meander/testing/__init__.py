"""The public testing kit: an operator's rules, and whole clusters in one thread, under a seed.

`check` tries an operator against its rules, in one call. The rest is the simulator: a schedule of
faults is a value that can be printed, replayed and cut down. A cluster runs the very machines that
production runs, on a virtual clock and a simulated network; checkers watch it from outside. Try an
operator of your own with `OperatorTrial`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from meander.testing.check import RULES, Checked, check

if TYPE_CHECKING:
    from meander.testing.cluster import Cluster
    from meander.testing.faults import COMMANDS, FAULTS, Incident, Schedule, generate
    from meander.testing.process import Classes
    from meander.testing.simulate import Outcome, minimise, run
    from meander.testing.trial import OperatorTrial, Trial, Verdict

__all__ = [
    "COMMANDS",
    "FAULTS",
    "RULES",
    "Checked",
    "Classes",
    "Cluster",
    "Incident",
    "OperatorTrial",
    "Outcome",
    "Schedule",
    "Trial",
    "Verdict",
    "check",
    "generate",
    "minimise",
    "run",
]

_PLACES = {
    "cluster": ("Cluster",),
    "faults": ("COMMANDS", "FAULTS", "Incident", "Schedule", "generate"),
    "process": ("Classes",),
    "simulate": ("Outcome", "minimise", "run"),
    "trial": ("OperatorTrial", "Trial", "Verdict"),
}


def __getattr__(name: str) -> Any:
    """Load the simulator when it is first asked for: `check` has no need of it."""
    for module, names in _PLACES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
