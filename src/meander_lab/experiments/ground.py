"""What experiments stand on: a trace of nodes, and weights of tasks, from recorded or generated tweets.

    tweets ──► volume per hour ──► nodes per hour ──► migrations; the matrix from those before the test
       └─────► words, patterns ──► work and state of every task, known when the test begins

Weights are fixed at the beginning of the test, as the paper's model has it (`Steps.fixed`); the
experiment `drift` lets them change. There are several *spans* of test, each the beginning of a month
(`at_span`): each has its own weights, and its own matrix from what came before it. Tasks are counted
finely once: since tasks are ranges of the hash, fewer tasks are sums of neighbours.

The state of frequent patterns is what lies in the window. A window of ω seconds is meant at the
paper's rate of tweets; ours come more slowly, so it covers a longer time and as many tweets.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from meander.errors import InputError
from meander.model import Workload
from meander.operators.hashing import Hashes, Tasks, tasks_of
from meander.operators.patterns.rules import STOP_WORDS, PatternRules
from meander.planning.ahead.evaluate import ReplayStep
from meander.planning.ahead.horizon import Ahead
from meander.planning.ahead.mtm import Mtm, mtm_from_trace
from meander.planning.ahead.observed import ByAhead, Record
from meander.spark.pipeline.trace import Scaling, Trace, make_trace
from meander_lab.experiments.parameters import Parameters, parameters
from meander_lab.experiments.texts import Longs, Units, pattern_units, word_units

HOUR_US = 3_600_000_000
SHARED = Path("../shared/data/tweets.parquet")
"""Where recorded tweets lie beside the project."""
APPLICATIONS = ("word-count", "frequent-patterns")


class ExperimentGround:
    """Tweets, cut into what comes before the test and the test."""

    def __init__(
        self, scale: str, data: Path | None, folder: Path, seed: int = 7, span: int = 0
    ) -> None:
        """Find the tweets; nothing is read yet.

        Args:
            scale: of the parameters.
            data: Parquet with `ts` and `text`; None: the recorded tweets beside the project if they
                are there, else generated ones.
            folder: where generated tweets are kept.
            seed: of everything that is drawn.
            span: which test, from 0 on; see `at_span`.

        Raises:
            InputError: if the data cannot be read.
        """
        self.scale, self.seed, self.folder, self.span = scale, seed, folder, span
        self._other: ExperimentGround | None = None
        self.wanted: Parameters = parameters("data", scale)
        if data is None and SHARED.exists() and scale != "toy":
            data = SHARED
        if data is not None and not data.exists():
            raise InputError(f"cannot read {data}: there is no such file or directory")
        if data is not None and (data / SHARED.name).is_file():
            data = data / SHARED.name  # a directory that holds other tables as well
        self.path = data

    def at_span(self, span: int) -> ExperimentGround:
        """Give the ground of another test: the same tweets, cut a month later for each span.

        One is kept: the texts of a month fill a gigabyte.
        """
        if span == self.span:
            return self
        if self._other is None or self._other.span != span:
            self._other = ExperimentGround(self.scale, self.path, self.folder, self.seed, span)
            self._other.__dict__.update(
                {"tweets": self.tweets, "_times": self._times, "trace": self.trace}
            )
        return self._other

    @cached_property
    def tweets(self) -> ds.Dataset:
        """The rows."""
        path = self.path or self._generated()
        try:
            found = ds.dataset(path, format="parquet", exclude_invalid_files=False)
            if not {"ts", "text"} <= set(found.schema.names):
                raise InputError(f"{path} has no columns ts and text")
            return found
        except (OSError, pa.ArrowInvalid) as error:
            raise InputError(f"cannot read {path} as Parquet: {error}") from None

    def prepare(self) -> None:
        """Have tweets generated, if they must be: others may then read them."""
        self.tweets  # noqa: B018 - what it finds or makes is on disk

    @property
    def data(self) -> str:
        """Say what the tweets are."""
        if self.path is not None:
            return f"recorded: {self.path.name}"
        rows, days = self.wanted.generated_rows, self.wanted.generated_days
        return f"generated: {rows:,} tweets in {days} days, seed {self.seed}"

    def _generated(self) -> Path:
        """Have tweets generated, once."""
        from meander.spark.cluster.session import local
        from meander.spark.pipeline.generate import METADATA, Stream, write_tweets

        rows, days = self.wanted.generated_rows, self.wanted.generated_days
        path = self.folder / f"tweets-{rows}-{days}-{self.seed}"
        if not (path / METADATA).exists():
            stream = Stream(rows=rows, users=max(1, rows // 13), days=days, seed=self.seed)
            write_tweets(local(), stream, str(path), force=True)
        return path

    @cached_property
    def _times(self) -> Longs:
        """When each tweet was written, in microseconds since 1970, ascending."""
        column = self.tweets.to_table(columns=["ts"])["ts"]
        return np.sort(_microseconds(column.combine_chunks()))

    @cached_property
    def trace(self) -> Trace:
        """Volume and nodes per slot."""
        length = self.wanted.slot_h * HOUR_US
        slots = self._times // length
        volume = np.bincount(slots - slots[0])
        starts = ((slots[0] + np.arange(len(volume))) * (length // 10**6)).astype("datetime64[s]")
        scaling = Scaling(
            self.wanted.nodes_min, self.wanted.nodes_max, high_quantile=self.wanted.high_quantile
        )
        return make_trace(starts, volume.astype(np.int64), scaling)

    @cached_property
    def split(self) -> int:
        """The slot that the test begins with: the first of a month, where that leaves enough."""
        slots = self.trace.slots
        least = int(len(slots) * self.wanted.test_after)
        months = slots[least:].astype("datetime64[M]")
        new = np.flatnonzero(months[1:] != months[:-1])
        at = least + 1 + int(new[self.span]) if len(new) > self.span else least
        if len(self._migrations(at)) < self.wanted.migrations and not self.span:
            at = least
        if self.span and at == least:
            raise InputError(f"{self.data}: there is no month for test span {self.span}")
        if len(self._migrations(at)) < self.wanted.migrations:
            raise InputError(
                f"{self.data}: {len(self._migrations(at))} migrations after {slots[at]}, "
                f"{self.wanted.migrations} are needed: give more tweets"
            )
        return at

    def _nodes(self, *, even: bool = False) -> npt.NDArray[np.int64]:
        """Give n per slot; `even`: rounded up to even numbers, as the authors' code has them."""
        nodes = self.trace.nodes
        return nodes + nodes % 2 if even else nodes

    def _migrations(self, start: int, *, even: bool = False) -> list[int]:
        changed = np.flatnonzero(np.diff(self._nodes(even=even))) + 1
        return [int(k) for k in changed[changed >= max(start, 1)]]

    @property
    def test(self) -> list[int]:
        """The slots that begin with the migrations of the test."""
        return self._migrations(self.split)[: self.wanted.migrations]

    def mtm(self, kind: str, *, even: bool = False, month: bool = False) -> Mtm:
        """Count the transitions before the test.

        Args:
            kind: of the labels.
            even: round nodes up to even numbers, as the authors' code has them.
            month: of the month before the test alone, as the paper has it; else of all before it.
        """
        start = self.month_before if month else 0
        nodes = self._nodes(even=even)[start : self.split]
        return mtm_from_trace(nodes.tolist(), kind, hours=self.hours(start, self.split))

    @property
    def month_before(self) -> int:
        """The first slot of the month before the test."""
        begin = self.trace.slots[self.split].astype("datetime64[M]") - 1
        return int(np.searchsorted(self.trace.slots, begin.astype(self.trace.slots.dtype)))

    def ahead(self) -> ByAhead:
        """Give the policy `ahead`, which learns from the slots up to each migration.

        It is told numbers of nodes and no weights: those are fixed here, or wander as nobody knows.
        """
        begin = self.trace.slots[0].astype("datetime64[h]").astype(int)
        slot_h = int(self.wanted.slot_h)
        since_monday = (int(begin) + 3 * 24) % (7 * 24)  # 1970 began on a Thursday
        policy = Ahead(
            day_slots=24 // slot_h, days_before=since_monday // slot_h, window=0, seed=self.seed
        )
        slots = len(self.trace.nodes)
        nothing = np.zeros((0, 1), dtype=np.int64), np.zeros(slots, dtype=np.int64)
        return ByAhead(policy, Record(self.trace.nodes, self.trace.need(), *nothing))

    def hours(self, start: int, stop: int) -> list[int]:
        """Give the hours of the day of some slots."""
        some = self.trace.slots[start:stop].astype("datetime64[h]").astype(int) % 24
        return [int(hour) for hour in some]

    # ------------------------------------------------------------------ weights

    def workload(
        self, application: str, tasks: int, window_s: float, at: int | None = None
    ) -> Workload:
        """Give the weights that are known at the beginning of a slot, by default of the test.

        Args:
            application: one of `APPLICATIONS`.
            tasks: m; a divisor of `finest`.
            window_s: ω, of frequent patterns.
            at: the slot.
        """
        finest = int(self.wanted.finest)
        if tasks > finest or finest % tasks:
            raise InputError(f"m = {tasks} does not divide {finest}, the finest number of tasks")
        end = self._us(self.split if at is None else at)
        work, size = self._weigh(application, end, window_s)
        fold = finest // tasks
        return Workload(
            work.reshape(tasks, fold).sum(axis=1), size.reshape(tasks, fold).sum(axis=1)
        )

    def steps(self, application: str, tasks: int, window_s: float) -> list[ReplayStep]:
        """Give the migrations of the test, all with the weights of its beginning."""
        load = self.workload(application, tasks, window_s)
        return [self._step(k, load) for k in self.test]

    def even_steps(self, load: Workload, count: int) -> tuple[list[ReplayStep], int]:
        """Give the first migrations among even numbers of nodes, and the number before them."""
        nodes, some = self._nodes(even=True), self._migrations(self.split, even=True)[:count]
        steps = [self._step(k, load)._replace(nodes=int(nodes[k])) for k in some]
        return steps, int(nodes[some[0] - 1])

    def drifting_steps(self, application: str, tasks: int, window_s: float) -> list[ReplayStep]:
        """Give the migrations of the test, each with the weights of its own moment."""
        return [self._step(k, self.workload(application, tasks, window_s, at=k)) for k in self.test]

    def first(self, application: str, tasks: int, window_s: float) -> tuple[Workload, int]:
        """Give weights and nodes before the first migration."""
        before = int(self.trace.nodes[self.test[0] - 1])
        return self.workload(application, tasks, window_s), before

    def _step(self, k: int, load: Workload) -> ReplayStep:
        return ReplayStep(
            int(self.trace.nodes[k]), load, self.hours(k, k + 1)[0], str(self.trace.slots[k]), k
        )

    def _us(self, slot: int) -> int:
        return int(self.trace.slots[slot].astype("datetime64[us]").astype(np.int64))

    def window_us(self, window_s: float) -> int:
        """How long a window of ω seconds at the paper's rate lasts here."""
        span_s = (self._times[-1] - self._times[0]) / 1e6
        rate = len(self._times) / span_s
        return int(window_s * self.wanted.tweets_s / rate * 1e6)

    def _weigh(self, application: str, end_us: int, window_s: float) -> tuple[Longs, Longs]:
        """Count work and state of the finest tasks.

        Work of patterns is what enters the window; as much leaves it.
        """
        units = self.units(application)
        if application == "word-count":
            held = self._new_words.between(0, end_us)
        else:
            held = _once(units.between(end_us - self.window_us(window_s), end_us))
        recent = units.between(end_us - self.wanted.weights_h * HOUR_US, end_us)
        work = np.bincount(self._tasks(recent.hashes), minlength=self.wanted.finest)
        weight = held.bytes.astype(np.float64)
        size = np.bincount(self._tasks(held.hashes), weight, self.wanted.finest)
        return work.astype(np.int64), size.astype(np.int64)

    def units(self, application: str) -> Units:
        """Give the words or patterns of the test, and of what came before it.

        Raises:
            InputError: for an unknown application.
        """
        if application not in APPLICATIONS:
            raise InputError(f"unknown application {application!r}: {', '.join(APPLICATIONS)}")
        return self._words if application == "word-count" else self._patterns

    def work_by_piece(self, application: str, tasks: int, piece_h: int) -> Longs:
        """Count the work of every task, `[piece, task]`, in whole pieces of the test's time."""
        begin, end = self.test_us
        units = self.units(application).between(begin, end)
        piece = (units.us - begin) // (piece_h * HOUR_US)
        count = (end - begin) // (piece_h * HOUR_US)
        found = np.bincount(piece * tasks + tasks_of(units.hashes, tasks), minlength=count * tasks)
        return found[: count * tasks].reshape(count, tasks)

    def _tasks(self, hashes: Hashes) -> Tasks:
        return tasks_of(hashes, int(self.wanted.finest))

    @cached_property
    def _words(self) -> Units:
        return word_units(*self._texts(self.wanted.state_h))

    @property
    def rules(self) -> PatternRules:
        """Which patterns a tweet has."""
        return PatternRules(
            size_max=self.wanted.pattern_size, words_max=self.wanted.pattern_words,
            stop_words=STOP_WORDS,
        )  # fmt: skip

    @cached_property
    def _new_words(self) -> Units:
        return _once(self._words)

    @cached_property
    def _patterns(self) -> Units:
        return pattern_units(*self._texts(self.wanted.weights_h), self.rules)

    @property
    def test_us(self) -> tuple[int, int]:
        """When the test begins, and when its last migration is, in microseconds since 1970."""
        return self._us(self.split), self._us(self.test[-1])

    def _texts(self, before_h: int) -> tuple[Longs, pa.Array]:
        """Give times and texts of the test and of some hours before it."""
        begin, end = self.test_us
        return self.texts(begin - before_h * HOUR_US, end)

    def texts(self, begin_us: int, end_us: int) -> tuple[Longs, pa.Array]:
        """Give times and texts of a span, by ascending time."""
        kind = self.tweets.schema.field("ts").type
        low, high = (pa.scalar(us, pa.timestamp("us", kind.tz)) for us in (begin_us, end_us))
        ts = pc.field("ts").cast(pa.timestamp("us", kind.tz))
        table = self.tweets.to_table(columns=["ts", "text"], filter=(ts >= low) & (ts < high))
        us = _microseconds(table["ts"].combine_chunks())
        order = np.argsort(us, kind="stable")
        return us[order], table["text"].combine_chunks().take(pa.array(order))


def _once(units: Units) -> Units:
    """Keep the first occurrence of every key."""
    _, first = np.unique(units.hashes, return_index=True)
    kept = np.sort(first)
    return Units(units.us[kept], units.hashes[kept], units.bytes[kept])


def _microseconds(column: pa.Array) -> Longs:
    if not pa.types.is_timestamp(column.type):
        raise InputError(f"the column ts must be a timestamp, not {column.type}")
    return np.asarray(column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_numpy())
