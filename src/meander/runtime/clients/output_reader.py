"""Reads an operator's outputs in a thread that may wait; what it asks is in `output_scripts`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from meander.runtime.clients.carrier import by_desk
from meander.runtime.clients.driver_client import DriverClient
from meander.runtime.clients.output_scripts import (
    PATIENCE_S,
    Ends,
    Offset,
    OutputScripts,
    OutputSpan,
)
from meander.runtime.process.script import Script, iterate, run

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class OutputReader:
    """Reads an operator's outputs, from anywhere; errors as the scripts have them."""

    def __init__(
        self, desk: DriverClient, *, fail_on_data_loss: bool = True, output: str | None = None
    ) -> None:
        """Read what comes out at an output; None: the only one."""
        about = desk.about(output=output)
        self.scripts = OutputScripts(desk.address, about, fail_on_data_loss=fail_on_data_loss)
        self._carry_out = by_desk(desk.credentials)

    def _run(self, script: Script[T]) -> T:
        return run(script, self._carry_out)

    def all_ends(self, timeout_s: float = PATIENCE_S) -> Ends:
        """Ask for the ends of all tasks; wait for those on the move."""
        return self._run(self.scripts.all_ends(timeout_s))

    def earliest(self) -> Offset:
        """Give the offset before everything that is kept."""
        return self._run(self.scripts.earliest())

    def latest(self, start: Offset | None = None) -> Offset:
        """Give the offset of all that may be read; tasks on the move stay where the start has them."""
        return self._run(self.scripts.latest(start))

    def upto(self, start: Offset, latest: Offset, target: Offset) -> Offset:
        """Give the latest offset, but not beyond a target that was fixed before."""
        return self.scripts.upto(start, latest, target)

    def spans(self, start: Offset, end: Offset) -> list[list[OutputSpan]]:
        """Cut what lies between two offsets into parts, one for each node that has some of it."""
        return self._run(self.scripts.spans(start, end))

    def read(
        self, spans: Sequence[OutputSpan], timeout_s: float = PATIENCE_S
    ) -> Iterator[pa.Table]:
        """Give rows as tables with `task` and `number`; ask again for tasks on the move."""
        return iterate(self.scripts.read(spans, timeout_s), self._carry_out)

    def release(self, offset: Offset) -> None:
        """Let go of what has been read; what does not hear it now hears it next time."""
        self._run(self.scripts.release(offset))
