"""A Spark task that keeps its slot: when the process in it dies, the next one starts there at once.

    seat: the Python worker of a Spark task            driver (`seats`)
      └─ fork ─► child ── which incarnation am I? ──►  the one that is wanted under this name
                 is that process, and says how it ended
      └─ fork ─► child ── the one before ended so; … ─►  the next, or none: then the task ends

A replacement needs no job, no slot and no import, so nobody can take its place meanwhile.

Rules
  1. The spec with the operator came in Spark's closure. Over the wire comes a number alone: which
     incarnation of the same process to be. (With TLS the process then exchanges the certificate in its
     spec, which lasts, for one to work with.)
  2. A child that ended well ends the task. After any other end the driver is asked; it holds the answer
     back until there is a wish for the name, for `HOLD_S` at most.
  3. A clean process forks (`cluster.forks`), as the worker may have threads; and the child asks.
     A session without our daemon has none: there the worker itself is the process, and its slot is
     lost with it.
  4. A child dies with its seat. So Spark's SIGKILL of the worker still ends everything.
  5. Spark's next attempt, after the worker or its executor was lost, is the same seat: it asks, too.
     Its job is older than the micro-batches since, so it is the first to get a free slot. Not so where
     Spark does not try again (a plain `local[N]`, or a task that was lost too often): then a new job
     holds the next seat, behind what was submitted before it, unless nodes come first (`jobs`).
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any, NamedTuple

from meander.runtime.clients.driver_client import DriverClient
from meander.runtime.clients.query import leave_all
from meander.runtime.process.spec import ProcessExit, ProcessSpec, Reason
from meander.runtime.roles.entry import local_host
from meander.runtime.roles.nursery import run
from meander.spark.cluster import forks
from meander.spark.cluster.executors import own_executor

ASK = "seat"
"""The action of the driver that is asked."""
HOLD_S = 5.0
"""How long a slot is kept for a successor that nobody has wished for yet."""
ANSWER_S = HOLD_S + 20.0
MUTE_MAX = 3
"""Children in a row that end before they have an answer: then this is no place for them."""
ANSWERED, LEFT = b".", "left"
LIVE = f"{__name__}:live"


class Last(NamedTuple):
    """What is known of a child that has ended."""

    answered: bool
    """Whether the driver had told it who to be, or to leave."""
    words: str
    """How it ended, in its own words."""
    how: str
    """What the kernel says of it."""

    @property
    def ended(self) -> ProcessExit | None:
        """Its words, if it could finish them."""
        try:
            return ProcessExit.parse(self.words)
        except (ValueError, KeyError, TypeError):
            return None


def hold(seat: str, spec: ProcessSpec) -> ProcessExit | None:
    """Be a seat until a child ends well or the driver has no more use for it.

    Args:
        seat: what the driver knows it by.
        spec: of the process; its incarnation does not count.

    Returns:
        How the last child ended, unless the driver was told.
    """
    from pyspark import TaskContext

    leave_all()  # a worker that has written rows until now
    context = TaskContext.get()
    attempt = 0 if context is None else context.attemptNumber()
    said: dict[str, Any] = {"seat": seat, "attempt": attempt, "pid": os.getpid()}
    said |= {"ended": "", "how": "", "executor": own_executor()}
    mute, how = 0, ""
    while mute < MUTE_MAX:
        argument = json.dumps({"spec": spec.json(), "said": said})
        last = _forked(argument)
        if last is None:  # nobody forks here: this process is the child
            words = live(argument, lambda _: None)
            return None if words == LEFT else ProcessExit.parse(words)
        if last.words == LEFT:
            return None
        ended, how = last.ended, last.how
        if ended is not None and (ended.clean or not last.answered):
            return ended
        mute = 0 if last.answered else mute + 1
        if last.answered:
            said = {**said, "ended": last.words, "how": how}
    return ProcessExit(spec.kind, spec.name, 0, Reason.KILLED, f"{how} before it could ask")


def _forked(argument: str) -> Last | None:
    heard = forks.run(LIVE, argument)
    if heard is None:
        return None
    words = heard.words.removeprefix(ANSWERED).decode(errors="replace")
    return Last(heard.words.startswith(ANSWERED), words, heard.how)


def live(argument: str, say: forks.Say) -> str:
    """Find out who to be, and be it; gives the last words."""
    fields = json.loads(argument)
    spec, said = ProcessSpec.parse(fields["spec"]), fields["said"]
    desk = DriverClient(spec.master, spec.credentials)
    try:
        incarnation = desk.ask(ASK, {**said, "host": local_host(spec)}, ANSWER_S)
    except Exception as error:  # whatever it is: without an answer it is nobody
        why = f"{type(error).__name__}: {error}"
        gone = ProcessExit(spec.kind, spec.name, 0, Reason.DRIVER_LOST, why)
        return str(said["ended"]) or gone.json()
    finally:
        desk.close()
    say(ANSWERED)
    return LEFT if incarnation is None else run(replace(spec, incarnation=int(incarnation))).json()
