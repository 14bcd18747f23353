"""What the end of a process means for a deployment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from meander.errors import CheckpointError, DeployError, ModuleMissingError
from meander.protocol.master.master import Master
from meander.protocol.master.membership import Status
from meander.runtime.driver.supervisor import CRASHES_MAX, EXITS_MAX, FAILED_STARTS_MAX, Supervisor
from meander.runtime.process.spec import ProcessExit, Reason
from meander.runtime.roles.entry import load_operator


def master(up: bool, **peers: SimpleNamespace) -> Master:
    return cast(Master, SimpleNamespace(membership=SimpleNamespace(up=lambda *_: up, peers=peers)))


def test_a_checkpoint_is_broken_if_a_node_says_so_that_was_not_replaced() -> None:
    """A node that stood still wakes up replaced, and finds the records gone that it wanted."""
    ended = ProcessExit("node", "n1", 1, Reason.CHECKPOINT_FAILED, "the file is missing")
    staff = Supervisor(cast(Any, None))
    assert isinstance(staff.failure(ended, master(up=True)), CheckpointError)
    said = [staff.failure(ended, master(up=False)) for _ in range(FAILED_STARTS_MAX)]
    assert said[:-1] == [None] * (FAILED_STARTS_MAX - 1)
    assert isinstance(said[-1], CheckpointError), "it does not go on like this for ever"
    staff.failure(ProcessExit("node", "n2", 1, Reason.DRAINED), master(up=False))
    assert staff.failure(ended, master(up=False)) is None


def test_processes_that_end_before_they_register_are_too_many_some_time() -> None:
    """Not those whose successor starts already: they were known, and their end is heard late."""
    staff = Supervisor(cast(Any, None))
    starting = master(up=False, n1=SimpleNamespace(incarnation=2, status=Status.STARTING))
    former, present = (ProcessExit("node", "n1", i, Reason.KILLED, "it was killed") for i in (1, 2))
    assert [staff.failure(former, starting) for _ in range(9)] == [None] * 9
    said = [staff.failure(present, starting) for _ in range(FAILED_STARTS_MAX)]
    assert said[:-1] == [None] * (FAILED_STARTS_MAX - 1)
    assert isinstance(said[-1], DeployError)


def test_a_bug_is_not_run_into_for_ever() -> None:
    """Nodes that serve crash again and again with the same words: the deployment fails by them."""
    staff = Supervisor(cast(Any, None))
    up = master(up=True, n1=SimpleNamespace(incarnation=1, status=Status.UP))
    same = ProcessExit("node", "n1", 1, Reason.CRASHED, "KeyError: 7")
    other = ProcessExit("node", "n1", 1, Reason.CRASHED, "MemoryError")
    assert [staff.failure(end, up) for end in (same, other) * CRASHES_MAX] == [
        None
    ] * 2 * CRASHES_MAX
    said = [staff.failure(same, up) for _ in range(CRASHES_MAX)]
    assert said[:-1] == [None] * (CRASHES_MAX - 1)
    assert isinstance(said[-1], DeployError)
    assert "KeyError: 7" in str(said[-1])


def test_few_of_many_ends_are_remembered() -> None:
    staff = Supervisor(cast(Any, None))
    for i in range(EXITS_MAX + 5):
        staff.note(ProcessExit("node", f"n{i}", 1, Reason.DRAINED))
    assert (len(staff.exits), staff.exits[-1].name) == (EXITS_MAX, f"n{EXITS_MAX + 4}")


def test_a_module_that_only_the_driver_has_is_named_with_what_to_do() -> None:
    """1. a node cannot import the operator  2. its exit says so by name  3. the deployment ends."""
    blob = b"\x80\x04cno_such_module\nMine\n."  # a pickle of a class there
    with pytest.raises(ModuleMissingError) as raised:
        load_operator(blob)
    assert raised.value.module == "no_such_module"
    ended = ProcessExit("node", "n1", 1, Reason.MODULE_MISSING, raised.value.module)
    failure = Supervisor(cast(Any, None)).failure(ended, master(up=False))
    assert isinstance(failure, ModuleMissingError)
    assert "addPyFile" in str(failure)


def test_crashes_at_one_place_are_one_bug_whatever_they_say() -> None:
    """A broken rule tells its story, with times: no two of them read alike."""
    staff = Supervisor(cast(Any, None))
    up = master(up=True, n1=SimpleNamespace(incarnation=1, status=Status.UP))
    trace = 'Traceback\n  File "slot.py", line 121, in go\n    raise'
    said = [
        staff.failure(ProcessExit("node", "n1", 1, Reason.CRASHED, f"at {second} s", trace), up)
        for second in range(CRASHES_MAX)
    ]
    assert said[:-1] == [None] * (CRASHES_MAX - 1)
    assert isinstance(said[-1], DeployError)


def test_whoever_looks_now_and_then_sees_every_end() -> None:
    staff = Supervisor(cast(Any, None))
    seen, names = 0, list[str]()
    for i in range(EXITS_MAX + 500):
        staff.note(ProcessExit("node", f"n{i}", 1, Reason.DRAINED))
        if i % 100 == 99:
            fresh, seen = staff.exits_after(seen)
            names += [ended.name for ended in fresh]
    assert names == [f"n{i}" for i in range(EXITS_MAX + 500)]
    assert staff.exits_after(seen) == ([], EXITS_MAX + 500)
    assert len(staff.exits_after(0)[0]) == EXITS_MAX
