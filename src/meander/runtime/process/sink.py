"""The interface of a sink: rows go out in transactions, each tied to a position in the outputs.

    writer = sink.open("counts.0")          takes the place of any other writer of that name
    writer.recover() ─► position            the last that was committed; None: nothing was
    writer.write(rows) … writer.commit(position)     all of it at once, or nothing

Outputs of an operator are numbered per task, durably. A **position** says up to which number all are
out. Whoever writes stores it in the transaction with the rows; after any crash the next writer asks
for it, and reads on from there. So every output is out once, and nobody keeps a second book.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa


class SinkWriter(Protocol):
    """Writes, in one process and one thread.

    What may be over soon is raised as a ConnectionError: nothing of the open transaction counts then,
    and another writer is opened after a while. Anything else ends the sink.

    One whose rows are out as soon as they are written, at least once, may say so by an attribute
    `writes_through` that is true: its commits need not follow every write then, and may come without
    one. Others are asked to commit only what they have written.
    """

    def recover(self) -> str | None:
        """Undo what an earlier writer of this name left open, keep it from writing any more, and give
        the position that was committed last; called once, first."""  # noqa: D205, D209

    def write(self, rows: pa.Table) -> None:
        """Take outputs into the open transaction; the first one opens it."""

    def commit(self, position: str) -> None:
        """Make them and the position count, together, and return when they do."""

    def close(self) -> None:
        """Leave; what was not committed does not count."""


@runtime_checkable
class TransactionalSink(Protocol):
    """Where outputs go. A value: it is pickled to where it is written.

    One whose writers can keep the position of so many tasks only says so by an attribute `tasks_max`:
    more than that are refused when the sink begins.
    """

    @property
    def at_least_once(self) -> bool:
        """Whether outputs shall go out before they are durable. After a loss some come again, perhaps
        cut otherwise; none is left out. Such a writer need not keep a position."""  # noqa: D205, D209

    def check(self, schema: pa.Schema | None) -> None:
        """Refuse what cannot be written, before anything is started.

        Args:
            schema: of the outputs; None: the operator does not say.

        Raises:
            InputError: saying what is wrong.
        """

    def open(self, writer: str) -> SinkWriter:
        """Make the writer of a name, which is the same in every life of the deployment."""
