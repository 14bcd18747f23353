"""How a deployment ends, and a program that has one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from runtime_kit import Stream, children, until

from meander.operators import WordCount
from meander.runtime.driver import runs
from meander.runtime.driver.local import deploy_local

FORGETFUL = """
import pyarrow as pa
from meander.operators import WordCount
from meander.runtime.driver.local import deploy_local
op = deploy_local(WordCount(), tasks=8, nodes=2)
feeder = op.feeder("f")
feeder.feed(pa.record_batch({"word": ["a", "b"]}))
feeder.flush()
print("fed", flush=True)
{ending}
"""
END_S_MAX = 30.0
"""Ten seconds on a machine that has nothing else to do."""


def test_a_program_that_forgets_to_stop_ends() -> None:
    """Before, it waited for ever: for streams whose threads waited for the interpreter."""
    ends({"ending": ""}, 0)


def test_a_program_that_fails_before_it_stops_ends() -> None:
    ends({"ending": "raise SystemExit(3)"}, 3)


def test_a_program_that_ends_while_it_is_stopped_from_outside_ends() -> None:
    ends({"ending": "from meander.runtime.driver import remote; remote.end(op, {})"}, 0)


FORKING = """
import os
pid = os.fork()
if pid:
    _, status = os.waitpid(pid, 0)
    feeder.feed(pa.record_batch({"word": ["c"]}))
    feeder.flush(timeout_s=10)
    assert op.metrics()["rows"] == 3, op.metrics()["rows"]
    assert status == 0
    op.stop()
"""


def test_a_fork_of_the_program_ends_for_itself() -> None:
    """Before, what a program does at its end was done in it: the nodes ended, and it hung."""
    ends({"ending": FORKING}, 0)


def ends(script: dict[str, str], code: int) -> None:
    text = FORGETFUL.replace("{ending}", script["ending"])
    with subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == b"fed\n"
            started = children(program.pid)
            assert len(started) >= 3
            _, complaints = program.communicate(timeout=END_S_MAX)
            assert program.returncode == code
            assert b"Traceback" not in complaints, complaints
        finally:
            program.kill()
    until(lambda: not [pid for pid in started if alive(pid)])


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_deployment_that_is_stopped_has_lost_nothing() -> None:
    told: list[tuple[str, Mapping[str, Any]]] = []
    with deploy_local(
        WordCount(), tasks=8, nodes=2, tell=lambda what, facts: told.append((what, facts))
    ) as op:
        feeder = op.feeder("f")
        for batch in Stream(3).batches(5):
            feeder.feed(batch)
        feeder.flush()
    assert [what for what, _ in told if what in ("lost", "state lost", "state at risk")] == []
    assert op.driver.lost() is None
    assert {e.reason.value for e in op.driver.exits} == {"stopped"}


@pytest.mark.parametrize("where", ["asking", "killing", "hanging up"])
def test_a_stop_that_was_interrupted_is_done_by_the_next(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """After a Ctrl-C in it nothing could stop the deployment any more."""
    others = set(children(os.getpid()))
    op = deploy_local(WordCount(), tasks=8, nodes=2)
    started = set(children(os.getpid())) - others
    assert len(started) >= 3
    driver, interrupted = op.driver, list[str]()
    transport, launcher = driver.transport, driver.launcher
    what: tuple[Any, str] = {
        "asking": (driver.core.rescales, "fail"),
        "killing": (launcher, "close"),
        "hanging up": (transport, "close"),
    }[where]
    real = getattr(*what)

    def interrupt(*given: Any) -> Any:
        if not interrupted:
            interrupted.append(where)
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(*what, interrupt)
    with pytest.raises(KeyboardInterrupt):
        op.stop()
    assert driver.run not in [run.run for run in runs.listed()]
    op.stop()
    assert interrupted == [where]
    assert transport is not None
    assert transport.closing.is_set()
    until(lambda: not [pid for pid in started if alive(pid)])
    op.stop()


def test_feeders_that_have_left_are_not_kept() -> None:
    with deploy_local(WordCount(), tasks=8, nodes=1) as op:
        for i in range(5):
            with op.feeder(f"f{i}") as feeder:
                feeder.feed(Stream(i).batch())
        last = op.feeder("last")
        assert op.driver.feeders == [last]
