"""The public testing kit: whole clusters in one thread, under a seed, with faults as data.

A schedule of faults is a value that can be printed, replayed and cut down. A cluster runs the very
machines that production runs, on a virtual clock and a simulated network; checkers watch it from
outside. Try an operator of your own with `OperatorTrial`.
"""

from meander.testing.cluster import Cluster
from meander.testing.faults import COMMANDS, FAULTS, Incident, Schedule, generate
from meander.testing.process import Classes
from meander.testing.simulate import Outcome, minimise, run
from meander.testing.trial import OperatorTrial, Trial, Verdict

__all__ = [
    "COMMANDS",
    "FAULTS",
    "Classes",
    "Cluster",
    "Incident",
    "OperatorTrial",
    "Outcome",
    "Schedule",
    "Trial",
    "Verdict",
    "generate",
    "minimise",
    "run",
]
