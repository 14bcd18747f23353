"""What a user's code raises, or gives that it must not give, names its method and the task."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from meander.errors import OperatorError
from meander.operators import Context, WordCount
from meander.operators.tasks import NAME
from meander.runtime.process.app_state import AppState
from meander.runtime.process.outputs import Outputs
from meander.runtime.process.user_code import ask, size_of, written


class Odd(WordCount):
    """Gives what it is told to."""

    given: Any = None

    def dump(self, state: Any) -> Any:
        return self.given

    def size(self, state: Any) -> Any:
        return self.given


def app() -> AppState:
    return AppState(7, WordCount().create(Context(7, 8)), Outputs())


def test_an_error_is_the_operators_with_method_and_task() -> None:
    with pytest.raises(OperatorError, match="task 7: load: KeyError: 3") as raised:
        ask(WordCount(), 7, "load", {}.__getitem__, 3)
    assert isinstance(raised.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (None, "it gave a NoneType, not a list"),
        (pa.table({"n": [1]}), "it gave a Table, not a list"),
        ([pa.record_batch({"n": [1]}), 3], "it gave a int among its record batches"),
    ],
)
def test_a_dump_is_a_list_of_batches(given: Any, why: str) -> None:
    odd = Odd()
    odd.given = given
    with pytest.raises(OperatorError, match=f"dump: {why}"):
        written(odd, app())


@pytest.mark.parametrize(("given", "why"), [(-1, "no size of -1"), ("x", "TypeError")])
def test_a_size_is_a_number_of_bytes(given: Any, why: str) -> None:
    odd = Odd()
    odd.given = given
    with pytest.raises(OperatorError, match=f"size: .*{why}"):
        size_of(odd, app())


def test_what_is_written_says_whose_it_is() -> None:
    odd = Odd()
    odd.given = [pa.record_batch({"n": [1]})]
    (batch,) = written(odd, app())
    assert batch.schema.metadata[NAME] == b"Odd"
