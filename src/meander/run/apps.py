"""What a run runs: an operator, how texts feed it, what is written of it, what it is compared with.

An application is a value without state of its own; `run` is the frame around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from meander.errors import InputError
from meander.operators import FrequentPatterns, PatternRules, WordCount
from meander.operators.base import Operator
from meander.runtime.process.source import SourceBatch
from meander.sources.files import TextSource
from meander.sources.own_rows import RowSource, check_rows
from meander.sources.patterns import PatternSource, window_of, with_top_words
from meander.sources.words import SourcePart, WordSource

if TYPE_CHECKING:
    import pyarrow as pa

    from meander.runtime.driver.elastic import ElasticOperator
    from meander.spark.cluster.session import Session
    from meander.spark.pipeline.feeding import CountVerdict

TOP = 10
"""Patterns that a report names."""
DRAIN_S_MAX = 120.0
"""How long the loop may take when the sources are done."""

WHERE = ("task", "node", "as_of")
"""What reading adds to a state."""

Feed = Callable[[int], Iterable[SourceBatch]]


class Application(Protocol):
    """What `meander run` can run."""

    @property
    def name(self) -> str:
        """As it is written in reports."""

    noun: ClassVar[str]
    """What its rows are."""
    emits: ClassVar[bool]
    """Whether there are outputs to fetch."""

    @property
    def rows(self) -> pa.Schema | None:
        """The columns that it reads of the input; None: texts."""

    def prepare(self, source: TextSource) -> Application:
        """Check the input and read what must be known of it, before anything is started."""

    def operator(self) -> Operator[Any]:
        """Make what nodes run."""

    def feed(self, source: TextSource, part: SourcePart) -> Feed:
        """Make what a feeder reads."""

    def write(self, counts: ElasticOperator, output: Path) -> dict[str, Any]:
        """Write the results when the sources are done; give `distinct`, and more for the report."""

    def compare(self, spark: Session, source: TextSource, output: Path) -> CountVerdict:
        """Compare what was written with a batch computation by Spark."""


@dataclass(frozen=True)
class CountWords:
    """How often each word came."""

    name: ClassVar[str] = "word count"
    noun: ClassVar[str] = "words"
    emits: ClassVar[bool] = False
    rows: ClassVar[None] = None

    def prepare(self, source: TextSource) -> CountWords:
        """Check the input."""
        source.check()
        return self

    def operator(self) -> Operator[Any]:
        """Make what nodes run."""
        return WordCount()

    def feed(self, source: TextSource, part: SourcePart) -> Feed:
        """Cut texts into words."""
        return WordSource(source, part)

    def write(self, counts: ElasticOperator, output: Path) -> dict[str, Any]:
        """Write `word` and `count`."""
        table = counts.state_table().select(["word", "count"])
        write_parquet(table, output / "state")
        return {"distinct": table.num_rows}

    def compare(self, spark: Session, source: TextSource, output: Path) -> CountVerdict:
        """Compare with Spark's count of the same input."""
        from meander.spark.pipeline.feeding import compare

        return compare(spark, str(output / "state"), source)


@dataclass(frozen=True)
class FindPatterns:
    """The maximal frequent patterns of a sliding window."""

    rules: PatternRules = field(default_factory=PatternRules)
    threshold: int = 15
    top_words: int = 0
    """When positive: only so many of the input's most frequent words are in patterns."""
    drains: bool = False
    """Whether the window empties at the end of the input."""
    name: ClassVar[str] = "frequent patterns"
    noun: ClassVar[str] = "patterns"
    emits: ClassVar[bool] = True
    rows: ClassVar[None] = None

    def prepare(self, source: TextSource) -> FindPatterns:
        """Check that the input can be read twice, and find its most frequent words."""
        window_of(source, self.rules)
        source.check()
        if not self.top_words:
            return self
        rules = with_top_words(source, self.top_words, self.rules)
        if not rules.dictionary:
            raise InputError(f"{source.describe()}: there is no word to make patterns of")
        return FindPatterns(rules, self.threshold, 0, self.drains)

    def operator(self) -> Operator[Any]:
        """Make what nodes run."""
        return FrequentPatterns(self.threshold)

    def feed(self, source: TextSource, part: SourcePart) -> Feed:
        """Have texts come and leave, and make patterns of them."""
        window = window_of(source, self.rules, drains=self.drains)
        return PatternSource(window, self.rules, part)

    def write(self, counts: ElasticOperator, output: Path) -> dict[str, Any]:
        """Wait for the loop; write all patterns (`state`) and those reported (`patterns`)."""
        counts.drain(DRAIN_S_MAX)
        table = counts.state_table().select(["pattern", "count", "supers", "reported"])
        found = table.filter(table["reported"]).select(["pattern", "count"])
        found = found.sort_by([("count", "descending"), ("pattern", "ascending")])
        write_parquet(table, output / "state")
        write_parquet(found, output / "patterns")
        return {
            "distinct": table.num_rows,
            "reported": found.num_rows,
            "top": [[row["pattern"], row["count"]] for row in found.slice(0, TOP).to_pylist()],
            "window_s": self.rules.window_s,
            "threshold": self.threshold,
        }

    def compare(self, spark: Session, source: TextSource, output: Path) -> CountVerdict:
        """Compare with Spark's own patterns of the window's content."""
        from meander.spark.pipeline.maximal import compare

        window = window_of(source, self.rules, drains=self.drains)
        texts = [] if self.drains else window.content()
        return compare(spark, str(output / "state"), texts, self.rules, self.threshold)


@dataclass(frozen=True)
class RunOperator:
    """An operator of one's own: rows of its schema come in, its state is what is written."""

    own: Operator[Any]
    noun: ClassVar[str] = "rows"
    emits: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Its class."""
        return self.own.name

    @property
    def rows(self) -> pa.Schema:
        """What it reads."""
        return self.own.schema

    def prepare(self, source: TextSource) -> RunOperator:
        """Check that the input has the operator's columns."""
        check_rows(source, self.rows)
        return self

    def operator(self) -> Operator[Any]:
        """Give what nodes run."""
        return self.own

    def feed(self, source: TextSource, part: SourcePart) -> Feed:
        """Read the operator's columns."""
        return RowSource(source, part, self.rows)

    def write(self, counts: ElasticOperator, output: Path) -> dict[str, Any]:
        """Write the state, with the columns that the operator dumps."""
        table = counts.state_table()
        table = table.select([name for name in table.schema.names if name not in WHERE])
        write_parquet(table, output / "state")
        return {"distinct": table.num_rows}

    def compare(self, spark: Session, source: TextSource, output: Path) -> CountVerdict:
        """Refuse: only its author knows what should come out.

        Raises:
            InputError: always.
        """
        raise InputError(f"there is nothing to compare {self.name} with: run it without --verify")


def write_parquet(table: pa.Table, where: Path) -> None:
    """Write a table as Spark would: a directory with a mark that it is whole."""
    import pyarrow.parquet as pq

    where.mkdir()
    pq.write_table(table, where / "part-00000.parquet")
    (where / "_SUCCESS").touch()
