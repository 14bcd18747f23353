"""What a reader of outputs asks, against a deployment that is made up: moves, losses, another life."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from meander.errors import (
    OperatorGoneError,
    OperatorRefusedError,
    OutputsBrokenError,
    OutputsLostError,
    UnreadError,
)
from meander.runtime.clients.driver_client import FETCH_S
from meander.runtime.clients.output_scripts import (
    AGAIN_S,
    NODE_S,
    Offset,
    OutputScripts,
    OutputSpan,
)
from meander.runtime.clients.owners import owners_of
from meander.runtime.clients.reader import OUTPUTS_S, metrics_of, new_outputs
from meander.runtime.clients.state_scripts import NODE_S as STATE_S
from meander.runtime.clients.state_scripts import first_schema, read_states
from meander.runtime.clock import Clock
from meander.runtime.driver.loop_drain import emptied, look
from meander.runtime.process.outputs import nothing, with_place
from meander.runtime.process.script import Ask, FetchRows, Sleep, Together, iterate, run

DRIVER = "driver:1"


class Made:
    """A deployment of two nodes and three tasks; tasks move when a reader sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.owner = ["a", "a", "b"]
        self.nodes = {"a": "a:1", "b": "b:1"}
        self.trouble: str | None = None
        self.ends = {0: [1, 3, 4], 1: [1, 2, 2], 2: [3, 5, 5]}
        self.serving = {"a": {0, 1}, "b": {2}}
        self.refusing: dict[str, Exception] = {}
        self.silent: set[str] = set()
        """Nodes that never answer."""
        self.later: list[Callable[[], None]] = []
        """What happens while a reader sleeps, one by one."""
        self.asked: list[Any] = []
        self.released: dict[str, Any] = {}
        self.once = 9
        """Batches of a task that an answer has."""

    def scripts(self, lineage: str = "one", **options: Any) -> OutputScripts:
        about: Any = SimpleNamespace(lineage=lineage, tasks=len(self.owner), first=0)
        clock = Clock(lambda: self.now, lambda: 0)
        return OutputScripts(DRIVER, about, clock=clock, **options)

    def __call__(self, step: Any) -> Any:
        if isinstance(step, Together):
            begun, ends, found = self.now, [self.now], []
            for each in step.steps:
                self.now = begun
                found.append(self._answer(each))
                ends.append(self.now)
            self.now = max(ends)
            return found
        self.asked.append(step)
        if isinstance(step, Sleep):
            self.now += step.seconds
            if self.later:
                self.later.pop(0)()
            return None
        if step.address == DRIVER:
            runs = [[task, node] for task, node in enumerate(self.owner)]
            return {
                "tasks": len(runs), "runs": runs, "nodes": self.nodes, "trouble": self.trouble,
            }  # fmt: skip
        node = step.address[0]
        if node in self.refusing:
            raise self.refusing[node]
        if node in self.silent:
            self.now += step.timeout_s
            raise OperatorGoneError(step.address)
        if isinstance(step, Ask):
            return self._facts(step, node)
        assert isinstance(step, FetchRows)
        return self._rows(step.fields, node)

    def _answer(self, step: Any) -> Any:
        try:
            return self(step)
        except (OperatorGoneError, OperatorRefusedError):
            return None

    def _facts(self, step: Ask, node: str) -> Any:
        if step.what == "ends":
            return {str(t): self.ends[t] for t in self.serving[node]}
        if step.what == "loop":
            return {str(t): [4, 4, 5] for t in self.serving[node]}
        if step.what == "metrics":
            return {"node": node}
        self.released[node] = step.fields["upto"]
        return {}

    def _rows(self, fields: Any, node: str) -> pa.Table:
        if fields["kind"] == "state":
            return self._state(fields, node)
        spans = fields.get("spans", {str(t): [0, 9] for t in self.serving[node]})
        tables, kept = [nothing(pa.schema({"n": pa.int64()}))], dict[str, Any]()
        for task in sorted(self.serving[node] & {int(t) for t in spans}):
            first, _, last = self.ends[task]
            after, upto = spans[str(task)]
            numbers = list(range(max(after + 1, first), min(upto, last) + 1))
            told = upto if len(numbers) <= self.once else numbers[self.once - 1]
            kept[str(task)] = first, last, told
            numbers = numbers[: self.once]
            batches = ((n, pa.record_batch({"n": [10 * task + n]})) for n in numbers)
            tables += [with_place(batch, task, n) for n, batch in batches]
        found = pa.concat_tables(tables)
        return found.replace_schema_metadata({b"kept": json.dumps(kept).encode()})

    def _state(self, fields: Any, node: str) -> pa.Table:
        tasks = sorted(self.serving[node] & set(fields.get("tasks", range(9))))
        found = pa.table({"count": tasks, "task": tasks, "node": [node] * len(tasks)})
        return found.replace_schema_metadata({b"tasks": json.dumps(tasks).encode()})

    def move(self, task: int, to: str) -> None:
        for tasks in self.serving.values():
            tasks.discard(task)
        self.owner[task] = to
        self.serving[to].add(task)


def numbers(scripts: OutputScripts, *found: int) -> Offset:
    return scripts.offset(found)


def rows(made: Made, scripts: OutputScripts, *spans: OutputSpan) -> list[int]:
    tables = iterate(scripts.read(spans), made)
    return [n for table in tables for n in table["n"].to_pylist()]


def test_offsets_begin_before_what_is_kept_and_end_with_what_may_be_read() -> None:
    made = Made()
    scripts = made.scripts()
    assert run(scripts.earliest(), made) == numbers(scripts, 0, 0, 2)
    assert run(scripts.latest(), made) == numbers(scripts, 3, 2, 5)


def test_a_task_on_the_move_is_waited_for_or_stays_where_it_was() -> None:
    made = Made()
    made.serving["b"].clear()
    made.later = [lambda: made.move(2, "a")]
    scripts = made.scripts()
    assert run(scripts.latest(numbers(scripts, 1, 1, 4)), made) == numbers(scripts, 3, 2, 4)
    assert run(scripts.latest(), made) == numbers(scripts, 3, 2, 5)
    assert made.now == AGAIN_S


def test_who_waits_for_too_long_says_for_which_tasks() -> None:
    made = Made()
    made.serving["b"].clear()
    with pytest.raises(UnreadError, match="outputs"):
        run(made.scripts().all_ends(timeout_s=3.0), made)
    assert 3.0 < made.now < 3.2
    with pytest.raises(UnreadError):
        list(iterate(made.scripts().read([OutputSpan(2, 0, 5)], timeout_s=1.0), made))


@pytest.mark.parametrize("error", [OperatorGoneError("b:1"), OperatorRefusedError("ended")])
def test_a_stretch_is_read_across_moves_and_nodes_that_vanish(error: Exception) -> None:
    made = Made()
    made.refusing["b"] = error
    made.later = [lambda: None, lambda: made.move(2, "a")]
    spans = OutputSpan(0, 1, 3), OutputSpan(2, 2, 5)
    assert rows(made, made.scripts(), *spans) == [2, 3, 23, 24, 25]
    assert len([step for step in made.asked if isinstance(step, FetchRows)]) == 4


def test_what_is_too_much_for_an_answer_is_asked_for_at_once() -> None:
    made = Made()
    made.once = 1
    spans = [OutputSpan(0, 0, 3), OutputSpan(1, 0, 2), OutputSpan(2, 2, 5)]
    found = pa.concat_tables(iterate(made.scripts().read(spans), made))
    assert sorted(found["n"].to_pylist()) == [1, 2, 3, 11, 12, 23, 24, 25]
    assert not [step for step in made.asked if isinstance(step, Sleep)]
    asked = [step.fields["spans"] for step in made.asked if isinstance(step, FetchRows)]
    assert asked[:3] == [{"0": [0, 3], "1": [0, 2]}, {"0": [1, 3], "1": [1, 2]}, {"0": [2, 3]}]


def test_a_node_of_a_lost_host_is_not_waited_for_long_and_a_slow_one_longer_each_time() -> None:
    made = Made()
    made.silent.add("b")
    made.later = [lambda: None] * 3 + [lambda: made.move(2, "a")]
    assert rows(made, made.scripts(), OutputSpan(2, 2, 5)) == [23, 24, 25]
    patient = [step.timeout_s for step in made.asked if isinstance(step, FetchRows)]
    assert patient == [NODE_S * 2**n for n in range(5)]
    made.asked.clear()
    scripts = made.scripts()
    run(scripts.latest(numbers(scripts, 1, 1, 4)), made)
    assert {s.timeout_s for s in made.asked if isinstance(s, Ask) and s.what == "ends"} == {NODE_S}


def test_a_silent_node_with_many_tasks_is_waited_for_once_before_they_are_looked_for_elsewhere() -> (
    None
):
    """1. a node with 512 tasks is gone without a word  2. the first request waits for it, and no other
    3. then all tasks are elsewhere."""
    made = Made()
    made.owner = ["b"] * 512
    made.ends = {task: [1, 1, 1] for task in range(512)}
    made.silent.add("b")

    def restored() -> None:
        made.owner = ["a"] * 512
        made.serving = {"a": set(range(512)), "b": set()}

    made.later = [restored]
    spans = [OutputSpan(task, 0, 1) for task in range(512)]
    assert len(rows(made, made.scripts(), *spans)) == 512
    assert made.now < NODE_S + 1.0
    made.owner, made.later, made.now = ["b"] * 512, [restored], 0.0
    clock = Clock(lambda: made.now, lambda: 0)
    list(iterate(read_states(owners, None, 60.0, tasks_once=4, clock=clock), made))
    assert made.now < STATE_S + 1.0


def test_tasks_on_the_move_make_nobody_wait_longer_for_a_node_that_is_lost_then() -> None:
    """1. a task is on the move  2. its new owner is lost with its host  3. the task is elsewhere."""
    made = Made()
    made.serving["b"].clear()
    made.later = [
        *[lambda: None] * 4, lambda: made.silent.add("b"), lambda: made.move(2, "a"),
    ]  # fmt: skip
    assert rows(made, made.scripts(), OutputSpan(2, 2, 5)) == [23, 24, 25]
    patient = [step.timeout_s for step in made.asked if isinstance(step, FetchRows)]
    assert patient == [NODE_S] * 6 + [2 * NODE_S]


def test_what_is_gone_is_an_error_unless_it_may_be() -> None:
    made = Made()
    with pytest.raises(OutputsLostError, match="outputs 1 to 2 of task 2 are gone"):
        rows(made, made.scripts(), OutputSpan(2, 0, 5))
    lax = made.scripts(fail_on_data_loss=False)
    assert rows(made, lax, OutputSpan(2, 0, 5)) == [23, 24, 25]


def test_an_operator_that_began_anew_is_an_error_unless_all_of_it_is_new() -> None:
    made = Made()
    strict, lax = made.scripts(), made.scripts(fail_on_data_loss=False)
    past = made.scripts(lineage="zero").offset([9, 9, 9])
    for start, why in (
        (past, "deployed anew"),
        (strict.offset([9, 2, 5]), "has emitted 4 batches"),
    ):
        with pytest.raises(OutputsLostError, match=why):
            run(strict.latest(start), made)
    latest = run(lax.latest(lax.offset([9, 2, 5])), made)
    assert latest == lax.offset([3, 2, 5])
    assert run(lax.spans(lax.offset([9, 2, 5]), latest), made) == [[OutputSpan(0, 0, 3)]]


def test_a_task_that_began_anew_while_a_stretch_was_read_is_an_error() -> None:
    """Without checkpoints its node was lost: the stretch was planned from what nobody has any more."""
    made = Made()
    made.ends[0] = [1, 1, 1]
    with pytest.raises(OutputsLostError, match="task 0 has emitted 1 batches, not 3"):
        rows(made, made.scripts(), OutputSpan(0, 0, 3))
    assert rows(made, made.scripts(fail_on_data_loss=False), OutputSpan(0, 0, 3)) == [1]


def test_what_failed_for_good_is_told() -> None:
    made = Made()
    made.trouble = "the source has failed"
    with pytest.raises(OutputsBrokenError, match="the source has failed"):
        run(made.scripts().latest(), made)


def test_what_was_read_is_let_go_where_it_is_and_not_where_nobody_answers() -> None:
    made = Made()
    made.refusing["a"] = OperatorGoneError("a:1")
    scripts = made.scripts()
    run(scripts.release(numbers(scripts, 3, 0, 5)), made)
    assert made.released == {"b": {"2": 5}}


# --------------------------------------------------------------------------- state, outputs, loop


def owners() -> Any:
    return owners_of(DRIVER)


def test_every_state_is_read_once_though_tasks_move() -> None:
    made = Made()
    made.serving["b"].clear()
    made.later = [lambda: made.move(2, "a")]
    clock = Clock(lambda: made.now, lambda: 0)
    script = read_states(owners, None, 5.0, tasks_once=1, clock=clock)
    tables = [table for table in iterate(script, made) if table.num_rows]
    assert [table["task"].to_pylist() for table in tables] == [[0], [1], [2]]
    made.serving["a"].discard(2)
    with pytest.raises(UnreadError, match="the state"):
        list(iterate(read_states(owners, [2], 1.0, tasks_once=8, clock=clock), made))


def test_the_columns_of_a_state_are_those_of_any_node_that_has_one() -> None:
    made = Made()
    made.refusing["a"] = OperatorGoneError("a:1")
    found = run(first_schema(owners, 2, range(3)), made)
    assert found is not None
    assert found.names == ["count"]
    assert [s.timeout_s for s in made.asked if isinstance(s, FetchRows)] == [STATE_S] * 2


def test_columns_are_asked_for_again_before_there_are_none() -> None:
    """1. nobody answers in time  2. all are asked again, with more patience  3. then nobody has any."""
    made = Made()
    made.refusing.update({node: OperatorGoneError(node) for node in "ab"})
    assert run(first_schema(owners, 2, range(3)), made) is None
    asked = [step.timeout_s for step in made.asked if isinstance(step, FetchRows)]
    assert asked == [STATE_S, STATE_S, FETCH_S, FETCH_S]


def test_nobody_waits_a_minute_for_outputs_of_one_that_is_gone() -> None:
    made = Made()
    run(new_outputs(made.nodes, {}), made)
    assert [s.timeout_s for s in made.asked if isinstance(s, FetchRows)] == [OUTPUTS_S] * 2


def test_outputs_come_once_and_the_next_call_says_what_the_caller_has() -> None:
    made, have = Made(), {0: 2}
    made.refusing["b"] = OperatorRefusedError("it ends")
    found = run(new_outputs(made.nodes, have), made)
    assert [n for table in found for n in table["n"].to_pylist()] == [3, 4, 11, 12]
    assert have == {0: 4, 1: 2}
    run(new_outputs(made.nodes, have), made)
    assert made.asked[-1].fields["release"] == {"0": 4, "1": 2}


def test_what_a_call_brings_is_not_forgotten_before_the_caller_has_it() -> None:
    made, have = Made(), {0: 2}
    made.serving["b"].add(0)  # it moves while the nodes are asked
    found = run(new_outputs(made.nodes, have), made)
    assert [n for table in found for n in table["n"].to_pylist()][:2] == [3, 4]
    assert [step.fields["release"] for step in made.asked] == [{"0": 2}] * 2
    made.refusing["b"], have = ValueError("malformed"), {0: 2}
    with pytest.raises(ValueError, match="malformed"):
        run(new_outputs(made.nodes, have), made)
    assert have == {0: 2}, "the caller was given nothing, and asks for it again"


def test_who_does_not_answer_has_no_metrics() -> None:
    made = Made()
    made.refusing["b"] = OperatorGoneError("b:1")
    assert [run(metrics_of(at), made) for at in made.nodes.values()] == [{"node": "a"}, None]


def test_a_loop_is_empty_when_two_looks_are_alike() -> None:
    made, checks = Made(), list[int]()
    assert run(look(made.nodes, 3), made) == dict.fromkeys(range(3), (4, 4, 5))
    made.serving["b"].add(0)  # on the move: it is at two
    assert run(look(made.nodes, 3), made) is None
    made.later = [lambda: made.serving["b"].discard(0)]
    clock = Clock(lambda: made.now, lambda: 0)
    run(emptied(lambda: made.nodes, 3, 5.0, lambda: checks.append(1), clock), made)
    assert len(checks) == 2
