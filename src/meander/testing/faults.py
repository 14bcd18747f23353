"""Faults as data: a schedule is a list of incidents that can be printed, replayed and cut down.

An incident is a fault that begins at a time and lasts a while, or a command to the master. Seed and
size give the same schedule every time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import NamedTuple

from meander.errors import InputError

FAULTS = (
    "loss",  # messages disappear
    "duplicate",  # messages arrive twice
    "reorder",  # messages overtake one another, as over several connections
    "corrupt",  # a byte of a state under way changes
    "partition",  # one direction between two processes is cut
    "clog",  # one direction is held back
    "lag",  # one direction takes far longer
    "narrow",  # a process's link carries little
    "crash",  # a node is killed and loses its memory
    "reset",  # a connection breaks: the master takes a node for dead that lives on
    "pause",  # a process stops and goes on later (SIGSTOP, SIGCONT)
    "slow",  # a node takes its time for everything
    "server",  # a state server is killed
    "full",  # a state server takes hardly anything
    "feeder",  # a feeder is killed; another incarnation replays
    "query",  # a query's driver is killed; the batch is replayed
    "attempt",  # one attempt at a partition dies half way; another wins
    "master",  # the master is killed: a new generation starts from the manifest
    "store",  # the durable store fails writes and reads
    "launch",  # a launched node never comes up
    "skew",  # clocks run at different speeds
)
"""All kinds of fault, by the names that `--faults` takes."""

WORLD_FAULTS = (
    "host",  # a host is lost with its state server and nodes, and nobody closes its connections
    "spot",  # a host is announced to go, and goes
    "raise",  # an operator raises
    "dump",  # an operator cannot write or read a state
    "long",  # an operator takes long for one call
    "call",  # somebody asks many things at once, in the middle of turns
    "reader",  # a reader of outputs is killed, or another one comes
    "lazy",  # a process reads slowly
    "jump",  # the calendar of a process jumps
    "limits",  # queues may hold little
    "cut",  # a process dies in the middle of a write
)
"""Kinds of fault that take a whole process, in the full world alone."""
ALL_FAULTS = FAULTS + WORLD_FAULTS
WORLDS = {"full": ALL_FAULTS, "protocol": FAULTS}
"""What may go wrong in each world: whole processes, or the protocol's machines alone."""
TRIALS = ("words", "patterns", "windows", "reminders", "emits", "processor", "relays", "cascades")
"""Operators of the full world, by the names that `--trial` takes."""

LOSES_MEMORY = frozenset(
    ("loss", "partition", "clog", "lag", "narrow", "crash", "reset", "pause", "server", "feeder",
     "query", "master", "launch")
)  # fmt: skip
"""Faults after which something must be restored: without checkpoints they would lose state.
A pause or a cut is one of them: who is silent for longer than its lease is replaced."""

COMMANDS = ("rescale", "abort", "resume", "roll back", "vacate", "upgrade")


class Incident(NamedTuple):
    """One fault or command."""

    at: float
    """Virtual seconds from the start."""
    kind: str
    """One of `ALL_FAULTS` or `COMMANDS`."""
    target: int = 0
    """Which process of its kind, modulo how many there are; for `rescale` the number of nodes, for
    `vacate` which of them."""
    other: int = 0
    """The other end of a link; for `rescale` how rounds are limited."""
    seconds: float = 0.0
    amount: float = 0.0


class Schedule(NamedTuple):
    """Everything that distinguishes one run from another."""

    seed: int
    nodes: int
    tasks: int
    seconds: float
    """How long faults and commands go on; from then on everything must come to its end."""
    incidents: tuple[Incident, ...]
    world: str = "protocol"
    """One of `WORLDS`."""
    trial: str = ""
    """One of `TRIALS`, in the full world; empty: drawn from the seed."""

    def dump(self) -> str:
        """Write it as JSON."""
        return json.dumps(
            {**self._asdict(), "incidents": [i._asdict() for i in self.incidents]}, indent=1
        )

    @classmethod
    def load(cls, text: str) -> Schedule:
        """Read what `dump` wrote.

        Raises:
            InputError: if that is not what it is.
        """
        try:
            data = json.loads(text)
            incidents = tuple(Incident(**i) for i in data.pop("incidents"))
            return cls(**data, incidents=incidents)._checked()
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(f"this is no schedule: {error}") from None

    @classmethod
    def read(cls, path: str) -> Schedule:
        """Read a schedule from a file."""
        try:
            return cls.load(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read {path}: {error}") from None

    def _checked(self) -> Schedule:
        if self.world not in WORLDS:
            raise ValueError(f"unknown world {self.world!r}")
        if self.trial and (self.world != "full" or self.trial not in TRIALS):
            raise ValueError(f"unknown trial {self.trial!r}")
        for incident in self.incidents:
            if incident.kind not in WORLDS[self.world] + COMMANDS:
                raise ValueError(f"unknown incident {incident.kind!r}")
            if not all(isinstance(n, int) for n in (incident.target, incident.other)):
                raise ValueError(f"target and other of {incident.kind!r} must be whole numbers")
            if not all(0 <= n < 10_000 for n in (incident.at, incident.seconds, incident.amount)):
                raise ValueError(f"at, seconds and amount of {incident.kind!r} must be 0 to 10000")
        if not all(isinstance(n, int) for n in (self.seed, self.nodes, self.tasks)):
            raise ValueError("seed, nodes and tasks must be whole numbers")
        if not (1 <= self.nodes <= self.tasks and 0 < self.seconds < 10_000):
            raise ValueError("needs 1 <= nodes <= tasks and 0 < seconds < 10000")
        return self


def parse_faults(text: str, world: str = "protocol") -> frozenset[str]:
    """Read `all`, `none` or a list of a world's kinds.

    >>> sorted(parse_faults("crash,loss"))
    ['crash', 'loss']
    """
    known = WORLDS[world]
    if text == "all":
        return frozenset(known)
    if text == "none":
        return frozenset()
    kinds = frozenset(part.strip() for part in text.split(","))
    if unknown := kinds - set(known):
        raise InputError(
            f"unknown faults {', '.join(sorted(unknown))}: choose from {', '.join(known)}"
        )
    return kinds


OFTEN = 4
"""The store fails so much more often than anything else: in as many ways, and most was wrong there."""


def generate(
    seed: int,
    nodes: int,
    tasks: int,
    faults: Iterable[str],
    seconds: float = 8.0,
    rescales_max: int = 4,
    *,
    world: str = "protocol",
    trial: str = "",
) -> Schedule:
    """Draw a schedule: some rescales, now and then an abort, and a handful of faults."""
    random = Random(seed * 7919 + 13)
    incidents = list(_commands(random, nodes, tasks, seconds, rescales_max))
    incidents += _days(Random(f"days {seed}"), seconds)
    kinds = sorted(faults)
    if "store" in kinds:
        kinds += ["store"] * (OFTEN - 1)
    if kinds:
        commands = tuple(incident.at for incident in incidents)
        incidents += [
            _fault(random, random.choice(kinds), _time(random, commands, seconds))
            for _ in range(random.randint(2, max(6, len(kinds) // 3)))
        ]
        if random.random() < 0.3:  # two at once
            one = random.choice(incidents)
            incidents.append(_fault(random, random.choice(kinds), one.at))
    incidents.sort()
    return Schedule(seed, nodes, tasks, seconds, tuple(incidents), world, trial)


def _commands(
    random: Random, nodes: int, tasks: int, seconds: float, rescales_max: int
) -> Iterable[Incident]:
    most = min(tasks, max(2, nodes + nodes // 2))
    at = random.uniform(0.5, 1.5)
    for _ in range(random.randint((rescales_max + 3) // 4, rescales_max)):
        yield Incident(round(at, 3), "rescale", random.randint(1, most), random.randint(0, 3))
        follow = random.random()
        if follow < 0.25:
            stop = at + random.uniform(0.02, 1.0)
            yield Incident(round(stop, 3), "abort")
            back = random.choice(("resume", "roll back", "rescale"))
            target = random.randint(1, most)
            yield Incident(round(stop + random.uniform(0.05, 1.0), 3), back, target)
        elif follow < 0.4:
            yield Incident(round(at + random.uniform(0.02, 1.5), 3), "roll back")
        at += random.choice((random.uniform(0.02, 0.4), random.uniform(0.5, 3.0)))
        if at > seconds:
            return


def _days(random: Random, seconds: float) -> Iterable[Incident]:
    """Draw what happens to a service as days go by: nodes are taken away, the operator is replaced."""
    for kind, share in (("vacate", 0.3), ("upgrade", 0.2)):
        if random.random() < share:
            at, other = round(random.uniform(0.5, seconds), 3), random.randrange(1000)
            left = round(random.uniform(0.1, 1.5), 3)
            yield Incident(at, kind, random.randrange(1000), other, left)
            if random.random() < 0.3:
                yield Incident(round(at + random.uniform(0.02, 1.0), 3), "roll back")


def _time(random: Random, commands: tuple[float, ...], seconds: float) -> float:
    """Choose when: half of the faults come shortly before or after a command, where it hurts."""
    if random.random() < 0.5:
        return max(0.3, min(seconds, random.choice(commands) + random.uniform(-0.4, 0.8)))
    return random.uniform(0.3, seconds)


def _fault(random: Random, kind: str, at: float) -> Incident:
    return Incident(
        round(at, 3),
        kind,
        random.randrange(1000),
        random.randrange(1000),
        round(random.choice((random.uniform(0.1, 0.8), random.uniform(0.5, 4.0))), 3),
        round(random.uniform(0.02, 0.3), 3),
    )
