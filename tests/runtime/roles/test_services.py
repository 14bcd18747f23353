"""What a node answers to those who are not of the protocol, from books that are made up."""

from __future__ import annotations

import json
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from meander.model import Epoch
from meander.protocol.node.slot import TaskPhase
from meander.runtime.process.loop_counts import counts
from meander.runtime.process.outputs import Outputs
from meander.runtime.roles.node_service import moment
from meander.runtime.roles.output_service import OutputService


def emitted(batches: int, durable: int) -> Outputs:
    outputs = Outputs()
    for number in range(1, batches + 1):
        outputs.add(pa.record_batch({"n": [number]}))
    outputs.durable = durable
    return outputs


def node(gated: bool, **slots: tuple[TaskPhase, Outputs]) -> Any:
    """Make a node that has tasks t0, t1, … in a phase, with outputs."""
    return SimpleNamespace(
        gated=gated,
        slots={
            int(name[1:]): SimpleNamespace(
                phase=phase, state=SimpleNamespace(app=SimpleNamespace(outputs=outputs))
            )
            for name, (phase, outputs) in slots.items()
        },
    )


def service(machine: Any) -> OutputService:
    def call(function: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(function(machine))
        return done

    shell: Any = SimpleNamespace(call=call)
    transport: Any = SimpleNamespace(actions={}, answers={})
    return OutputService(shell, transport)


def away() -> TaskPhase:
    return next(phase for phase in TaskPhase if phase is not TaskPhase.SERVING)


def test_only_tasks_that_are_served_count_and_with_checkpoints_only_what_is_durable() -> None:
    here, there = (TaskPhase.SERVING, emitted(5, 3)), (away(), emitted(2, 2))
    assert service(node(True, t0=here, t1=there)).ends({}) == {"0": [1, 3, 5]}
    assert service(node(False, t0=here)).ends({}) == {"0": [1, 5, 5]}


def test_what_is_released_is_forgotten_but_nothing_that_nobody_could_read() -> None:
    outputs = emitted(5, 3)
    asked = service(node(True, t0=(TaskPhase.SERVING, outputs)))
    asked.release({"upto": {"0": 2}})
    assert outputs.first == 3
    asked.release({"upto": {"0": 5}})
    assert outputs.first == 4


def test_a_moment_names_what_a_task_has_taken_in() -> None:
    state = SimpleNamespace(batches={"q": 3}, positions={"f": SimpleNamespace(offset=7)})
    slot: Any = SimpleNamespace(state=state, tenure=Epoch(1, 2))
    told = json.loads(moment(slot))
    assert (told["queries"], told["feeders"]) == ({"q": 3}, {"f": 7})


def test_a_loop_is_counted_by_what_tasks_put_in_and_took_out_of_it() -> None:
    position = SimpleNamespace(number=4)
    positions = {"loop/1": position, "loop/2": position, "words": position}
    state = SimpleNamespace(emitted=9, positions=positions)
    slots = {
        0: SimpleNamespace(phase=TaskPhase.SERVING, state=state),
        1: SimpleNamespace(phase=away(), state=state),
    }
    machine: Any = SimpleNamespace(slots=slots)
    assert counts(machine) == {0: (9, 8)}
