"""Let mutants loose on schedules until a checker catches them.

Every mutant lives in a process of its own, forked from one that has run the sound product once: so
libraries are loaded, kernels compiled, and it starts in a second. There the product is loaded anew, all
but what is kept (`SHARED`), and a finder in front of the import system gives the broken module.
"""

from __future__ import annotations

import gc
import importlib.abc
import importlib.machinery
import importlib.util
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import CodeType, ModuleType
from typing import Any, Final, NamedTuple

from meander.errors import InputError
from meander_lab.mutants.bugs import Bug
from meander_lab.mutants.mutate import Mutant, source_of

CAUGHT, SURVIVED, ACCIDENT = "caught", "survived", "accident"
ACCIDENTS_MAX: Final = 25
"""Whoever falls over by itself so often is not looked at any further."""
MANY_SEEDS: Final = 100
_BOTH: Final = (
    "reroutes", "waits", "second_moves", "aborts", "loop_chunks", "staged_batches", "copied_ahead",
    "deltas", "snapshots", "deltas_restored", "restores", "express_chunks", "joint_records",
)  # fmt: skip
OFTEN: Final = {
    "protocol": (
        *_BOTH, "resumes", "dismissed", "swept", "packed_chunks",
    ),
    "full": (
        *_BOTH, "noticed", "spilled", "chains_moved", "twins", "failed_attempts", "combined_rows",
        "outputs_shown", "reader_releases", "copies_resent", "wire_pulse_ending",
    ),
}  # fmt: skip
"""By world: what happens in every hundred schedules with all faults, as long as it is not broken."""
SEED_S_MAX: Final = 30
"""A schedule that takes more of a processor has got stuck in one event."""
SHARED: Final = ("meander.errors", "meander.model", "meander.planning", "meander.operators")
"""What a mutant's process keeps of what was loaded before, unless it is broken itself."""


class HuntScope(NamedTuple):
    """The schedules that mutants are let loose on."""

    seeds: int = 300
    nodes: int = 3
    tasks: int = 8
    seconds: float = 2.0
    world: str = "protocol"
    first_seed: int = 0
    trial: str = ""
    """One of the full world's; empty: each schedule draws its own."""
    faults: tuple[str, ...] = ()
    """Empty: all of the world's."""


class Catch(NamedTuple):
    """What became of a mutant."""

    mutant: Mutant | Bug
    status: str
    """`CAUGHT`, `SURVIVED`, or `ACCIDENT`: it fell over by itself, which is no catch."""
    seeds: int
    """How many it took; all, if it was not caught."""
    by: str = ""
    """The checker that caught it."""
    text: str = ""
    """What it said."""

    def as_dict(self) -> dict[str, Any]:
        """Give it as plain values."""
        return {**self.mutant._asdict(), "status": self.status, "seeds": self.seeds, "by": self.by,
                "text": self.text}  # fmt: skip


class _Overlay(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives one module from other code."""

    def __init__(self, module: str, code: CodeType) -> None:
        self.module, self.code, self.origin = module, code, str(source_of(module))

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.module:
            return None
        return importlib.util.spec_from_loader(fullname, self, origin=self.origin)

    def exec_module(self, module: ModuleType) -> None:
        exec(self.code, module.__dict__)


def lay_over(mutant: Mutant | Bug) -> None:
    """From now on, importing the mutant's modules gives the broken ones."""
    codes = mutant.codes()
    kept = () if any(module.startswith(SHARED) for module in codes) else SHARED
    # To find a module's source is to import its package, perhaps with that module: that comes first.
    overlays = [_Overlay(module, code) for module, code in codes.items()]
    for name in [n for n in sys.modules if n.startswith("meander.") and not n.startswith(kept)]:
        del sys.modules[name]
    sys.meta_path[:0] = overlays


def try_seeds(scope: HuntScope) -> Iterator[tuple[str, str]]:
    """Run schedule after schedule; give who caught something and what (empty: nobody, nothing)."""
    from meander.testing.playing import play

    counts: Counter[str] = Counter()
    for seed in range(scope.first_seed, scope.first_seed + scope.seeds):
        outcome = play(_schedule(scope, seed))
        counts.update(outcome.counts)
        if outcome.seen:
            yield outcome.caught_by or ACCIDENT, str(outcome.seen[0]).splitlines()[0]
        else:
            yield "", ""
    never = [name for name in OFTEN[scope.world] if not counts[name]]
    if never and scope.seeds >= MANY_SEEDS and not scope.faults and not scope.trial:
        yield "coverage", f"{never[0]} never happened in {scope.seeds} schedules"


class _Hangs(BaseException):
    """Not an error that a simulated run could take for one of a machine."""


def _alarm(_: int, __: object) -> None:
    raise _Hangs


def _hunt(mutant: Mutant | Bug, scope: HuntScope, answer: Connection) -> None:
    """In a process of its own: hunt one mutant and tell.

    What the process before the fork had no use for any more is let be: a Flight server that the
    collector frees here waits for threads that only its own process has, for ever.
    """
    gc.freeze()
    signal.signal(signal.SIGVTALRM, _alarm)
    fell, tried = "", 0
    catch: Catch | None = None
    try:
        lay_over(mutant)
        signal.setitimer(signal.ITIMER_VIRTUAL, SEED_S_MAX)
        for tried, (by, text) in enumerate(try_seeds(scope), 1):
            signal.setitimer(signal.ITIMER_VIRTUAL, SEED_S_MAX)
            if by == ACCIDENT:
                fell = fell or text
                if tried >= ACCIDENTS_MAX:
                    break
            elif by:
                catch = Catch(mutant, CAUGHT, tried, by, text)
                break
    except _Hangs:
        catch = Catch(mutant, CAUGHT, tried + 1, "hang", "an event does not come to its end")
    except Exception as error:
        fell = f"{type(error).__name__}: {error}"
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    answer.send(catch or Catch(mutant, ACCIDENT if fell else SURVIVED, tried, "", fell))


@cache
def _warm_up(world: str) -> None:
    """Run sound schedules, so that no mutant has to load libraries or to compile kernels."""
    from meander.testing.faults import TRIALS, Incident, Schedule
    from meander.testing.playing import play

    for trial in TRIALS if world == "full" else ("",):
        with suppress(InputError):  # one needs what need not be installed
            play(Schedule(0, 2, 4, 1.0, (Incident(0.5, "rescale", 3),), world, trial))


def _caught(mutant: Mutant | Bug, scope: HuntScope) -> Catch:
    """Hunt one mutant in a process of its own."""
    context = get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_hunt, args=(mutant, scope, there))
    process.start()
    there.close()
    try:
        found: Catch = here.recv()
        return found
    except EOFError:
        return Catch(mutant, ACCIDENT, 0, "", "its process ended without a word")
    finally:
        process.join()


def hunt(mutants: Iterable[Mutant | Bug], scope: HuntScope) -> Iterator[Catch]:
    """Hunt mutants one after another; give what became of each.

    Whatever sees something in a schedule of the sound product, too, has caught nobody.
    """
    _warm_up(scope.world)
    for mutant in mutants:
        found, tried = _caught(mutant, scope), 0
        while found.status == CAUGHT and _sound_fails(
            scope, scope.first_seed + tried + found.seeds
        ):
            tried += found.seeds
            rest = scope._replace(seeds=scope.seeds - tried, first_seed=scope.first_seed + tried)
            found = _caught(mutant, rest)
        yield found._replace(seeds=tried + found.seeds)


def _sound_fails(scope: HuntScope, after: int) -> bool:
    """Whether the sound product fails in the schedule before a seed."""
    from meander.testing.playing import play

    return play(_schedule(scope, after - 1)).failed


def _schedule(scope: HuntScope, seed: int) -> Any:
    from meander.testing.faults import WORLDS, generate

    return generate(
        seed, scope.nodes, scope.tasks, scope.faults or WORLDS[scope.world], scope.seconds,
        world=scope.world, trial=scope.trial,
    )  # fmt: skip
