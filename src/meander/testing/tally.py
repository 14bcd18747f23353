"""The simulator's own trial: an operator that notes what it is given so exactly that any fault shows.

A row is its source offset. A task's state holds, per feeder, how many rows it took, the last offset,
and a hash of their sequence; offsets must ascend, or a row came twice or out of order. Some rows
make the task feed a row to another task, which is a feedback loop. What comes through a loop or from
a micro-batch has no fixed order between feeders, so for those a sum stands in for the sequence.

What an operator may do or not is drawn, too: some write the records of many tasks together, some feed
no loop and take rows a block at a time, some make few chunks of what they have fed, or none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, ClassVar

from meander.model import Ints, TaskId
from meander.protocol.blocks import BlockRows
from meander.protocol.messages import FeederId
from meander.protocol.state import App, AppRows, Emission, OperatorPort, Pieces
from meander.testing.trial import QUERY, Verdict

MASK = (1 << 61) - 1
LOOP_SHARE = 4
"""One row in so many is fed on."""
QUERY_MARK = 255
"""The low bits of a query's rows; those of a feeder's are the feeder's number."""
JOINT_TASKS_MAX = 4
"""Of more tasks `JointTally` writes one after the other."""
JOINT_PADDING_MAX = 2_000
"""A longer state has a record of its own."""


def mix(value: int) -> int:
    """Scatter a number (the finaliser of SplitMix64)."""
    value = (value + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return value ^ (value >> 31)


def fed_to(row: int, tasks: int) -> TaskId | None:
    """Name the task that a row is fed on to; None for most rows. Some tasks get more than others."""
    scattered = mix(row)
    return _skewed(scattered >> 8, tasks) if scattered % LOOP_SHARE == 0 else None


def times_fed(row: int) -> int:
    """Say in how many chunks a row is fed on: now and then in several at once."""
    return 3 if mix(row ^ 0xB5) % 3 == 0 else 1


def task_of(mark: int, offset: int, tasks: int) -> TaskId:
    """Give a row's task: skewed, so that some tasks have far more rows than others."""
    return _skewed(mix(offset * 257 + mark), tasks)


def _skewed(scattered: int, tasks: int) -> TaskId:
    narrow = scattered % tasks
    return narrow if scattered & (1 << 40) else narrow % max(1, tasks // 4)


class Notes(dict[str, list[int]]):
    """What a task has noted; remembers which version changed which entry last."""

    __slots__ = ("stamps", "version")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.version = 1
        self.stamps: dict[str, int] = {}


class Tally:
    """The operator. It keeps versions, so that records are changes of the ones before."""

    loops = True
    """Whether it feeds itself."""

    def __init__(
        self,
        tasks: int,
        padding: tuple[int, ...],
        notice: Callable[[TaskId, str], None],
        joined_rows_max: int = 0,
    ) -> None:
        self.tasks = tasks
        self.padding = padding
        """How many bytes every task's state is longer than it need be."""
        self.notice = notice
        """Called with what must never happen."""
        self.joined_rows_max = joined_rows_max
        """So many rows it makes one chunk of, when they were fed in several."""
        self._kept: list[tuple[TaskId, Emission]] | None = None
        """What was put off; None: nothing may be."""

    def empty(self, task: TaskId) -> App:
        """Per feeder [count, last, hash or sum]; under "" [rows fed on, padding, 0]."""
        return Notes({"": [0, self.padding[task], 0]})

    def apply(
        self, task: TaskId, app: App, feeder: FeederId, rows: AppRows, after: int
    ) -> Iterable[Emission]:
        """Note every row."""
        entry = app.get(feeder)
        if entry is None:
            entry = app[feeder] = [0, -1, 0]
        app.stamps[feeder] = app.stamps[""] = app.version
        if feeder.startswith("loop/"):
            for number, row in rows:
                if number <= entry[1]:
                    self.notice(task, f"{feeder} row {number} after {entry[1]}")
                entry[0] += 1
                entry[1] = number
                entry[2] = (entry[2] + mix(row)) & MASK
            return ()
        emissions = []
        ordered = feeder.startswith("feeder")
        for row in rows:
            offset = row >> 8
            if ordered:
                if offset <= after:
                    continue
                if offset <= entry[1]:
                    self.notice(task, f"{feeder} offset {offset} after {entry[1]}")
                entry[2] = (entry[2] * 1_000_003 + offset) & MASK
            else:
                entry[2] = (entry[2] + mix(row)) & MASK
            entry[0] += 1
            entry[1] = offset
            target = fed_to(row, self.tasks) if self.loops else None
            if target is None:
                continue
            count = app[""]
            for _ in range(times_fed(row)):
                count[0] += 1
                emissions.append(Emission(target, ((count[0], row),), 16))
        if self._kept is None:
            return emissions
        self._kept += [(task, emission) for emission in emissions]
        return ()

    def gather(self) -> bool:
        """Put off what is fed."""
        self._kept = self._kept or []
        return True

    def collect(self) -> Iterable[tuple[TaskId, Emission]] | None:
        """Give what was put off."""
        kept, self._kept = self._kept, None
        return kept or None

    def dump(self, app: App) -> bytes:
        """Write the notes, padded."""
        return json.dumps(app).encode().ljust(app[""][1])

    def load(self, task: TaskId, blob: bytes) -> App:
        """Read the notes."""
        return Notes(json.loads(blob))

    def seal(self, app: App) -> int:
        """End a version."""
        app.version += 1
        return int(app.version - 1)

    def record(self, app: App, since: int | None) -> Callable[[], Sequence[bytes]]:
        """Write all notes, or the entries that changed after a version."""
        if since is None:
            blob = self.dump(app)
        else:
            blob = json.dumps({f: app[f] for f, v in app.stamps.items() if v > since}).encode()
        return lambda: (blob,)

    def revise(self, task: TaskId, app: App, blob: bytes) -> App:
        """Put changed entries in the place of the old ones."""
        app = Notes() if app is None else app
        app.update(json.loads(blob))
        return app

    def ahead(self, app: App, since: int | None) -> tuple[int, Pieces]:
        """Write the entries that changed after a version, some bytes at a time."""
        mark = self.seal(app)
        changed = app if since is None else [f for f, v in app.stamps.items() if v > since]
        return mark, _pieces([(feeder, list(app[feeder])) for feeder in changed])

    def catch_up(self, task: TaskId, app: App, piece: bytes) -> App:
        """Put changed entries in the place of the old ones."""
        return self.revise(task, app, piece)

    def rest(self, app: App, since: int) -> bytes:
        """Write the entries that changed after a version."""
        return b"".join(self.record(app, since)())

    def complete(self, task: TaskId, app: App, blob: bytes) -> App:
        """Put the last changes in."""
        return self.revise(task, app, blob)

    def lay_by(self, rows: AppRows) -> bytes:
        """Keep rows that wait for their commit as they would be on disk."""
        return self.dump_rows(rows)

    def take_up(self, laid: bytes) -> AppRows:
        """Read them again."""
        return self.load_rows(laid)

    def dump_rows(self, rows: AppRows) -> bytes:
        """Write rows."""
        return json.dumps(rows).encode()

    def load_rows(self, blob: bytes) -> AppRows:
        """Read rows."""
        return tuple(tuple(r) if isinstance(r, list) else r for r in json.loads(blob))

    def join_rows(self, parts: Sequence[AppRows]) -> AppRows:
        """Put rows together; None: they are too many."""
        rows = tuple(row for rows in parts for row in rows)
        return rows if len(rows) <= self.joined_rows_max else None

    def size(self, app: App) -> int:
        """Say about how large the notes are."""
        padding: int = app[""][1]
        return max(40 * len(app), padding)


class JointTally(Tally):
    """The same, and it writes the changes of several tasks in one go."""

    def joins(self, apps: Sequence[App]) -> list[bool]:
        """Tell which states may stand with others in one record."""
        return [app[""][1] <= JOINT_PADDING_MAX for app in apps]

    def seal_all(self, apps: Sequence[App]) -> list[int]:
        """End a version of each."""
        return [self.seal(app) for app in apps]

    def record_joint(
        self, apps: Sequence[App], since: Sequence[int | None]
    ) -> Callable[[], Sequence[bytes]] | None:
        """Write the entries of each that changed after its version; None: they are too many."""
        if len(apps) > JOINT_TASKS_MAX:
            return None
        changed = [
            {f: app[f] for f in app if mark is None or app.stamps.get(f, 0) > mark}
            for app, mark in zip(apps, since, strict=True)
        ]
        blob = json.dumps(changed).encode()
        return lambda: (blob,)

    def open_joint(self, blob: bytes) -> list[dict[str, list[int]]]:
        """Read what `record_joint` wrote."""
        found: list[dict[str, list[int]]] = json.loads(blob)
        return found

    def revise_joint(
        self,
        tasks: Sequence[TaskId],
        apps: Sequence[App],
        found: list[dict[str, list[int]]],
        places: Sequence[int],
    ) -> list[App]:
        """Put changed entries in the place of the old ones."""
        revised = [Notes() if app is None else app for app in apps]
        for app, place in zip(revised, places, strict=True):
            app.update({feeder: list(entry) for feeder, entry in found[place].items()})
        return revised


class BlockTally(JointTally):
    """The same, without a loop: it takes rows of several tasks at a time."""

    loops = False
    takes_blocks = True

    def apply_block(self, tasks: Ints, apps: Any, feeder: FeederId, rows: BlockRows) -> None:
        """Note every row; none was given before, or the block would have been taken apart."""
        for place, task in enumerate(tasks.tolist()):
            self.apply(task, apps[task], feeder, rows.at(place), -1)

    def gather(self) -> bool:
        """Put nothing off."""
        return False


def _pieces(entries: list[tuple[str, list[int]]]) -> Pieces:
    def take(size: int) -> bytes | None:
        step = max(1, size // 40)
        some, entries[:step] = entries[:step], []
        return json.dumps(dict(some)).encode() if some else None

    return take


def _noted(offsets: Sequence[int]) -> list[int]:
    """Give what a task notes of rows that come in order: how many, the last one, their hash."""
    digest = 0
    for offset in offsets:
        digest = (digest * 1_000_003 + offset) & MASK
    return [len(offsets), offsets[-1] if offsets else -1, digest]


class TallyTrial:
    """Feeders, a query and tasks of random sizes, for `Tally` and those that can do more."""

    kinds: ClassVar[tuple[type[Tally], ...]] = (Tally, Tally, JointTally, BlockTally)
    """What the operator is drawn of."""

    def __init__(
        self, tasks: int, random: Random, rows: int | None = None, seconds: float = 8.0
    ) -> None:
        """Make as many rows and batches as the sources can give in so many seconds."""
        share = min(1.0, seconds / 8.0)
        self.tasks = tasks
        self._padding = tuple(random.choice((0, 200, 2000, 20000)) for _ in range(tasks))
        count = random.randint(1, 3)
        self._rows = {
            f"feeder{i}": rows or int(share * random.randint(40, 160)) for i in range(count)
        }
        self._batches = 1 + int(share * random.randint(1, 7))
        apart = Random(f"{self._rows} {self._batches} {self._padding}")  # all else stays as it was
        self._kind = apart.choice(self.kinds)
        self._joined_rows_max = apart.choice((0, 3, MASK))

    @property
    def feeders(self) -> Mapping[FeederId, int]:
        """From one to three."""
        return self._rows

    @property
    def batches(self) -> int:
        """From two to eight."""
        return self._batches

    def operator(self, notice: Callable[[TaskId, str], None]) -> OperatorPort:
        """Make the operator of one node."""
        return self._kind(self.tasks, self._padding, notice, self._joined_rows_max)

    def rows(
        self, feeder: FeederId, first: int, last: int
    ) -> Iterable[tuple[TaskId, int, AppRows]]:
        """Give rows that are their offset, with the feeder's number in the low bits."""
        mark = int(feeder[6:])
        for offset in range(first, last + 1):
            yield task_of(mark, offset, self.tasks), offset, (offset << 8) | mark

    def batch(self, number: int) -> Sequence[tuple[TaskId, AppRows]]:
        """Give the rows of a micro-batch."""
        count = 4 + mix(number) % 12
        rows = [((number * 64 + i) << 8) | QUERY_MARK for i in range(count)]
        return [(task_of(QUERY_MARK, row, self.tasks), row) for row in rows]

    # ------------------------------------------------------------------ the end

    def judge(self, states: Mapping[TaskId, App]) -> Verdict:
        """Compare with what one plain loop over all rows comes to."""
        direct, loops = self._sequential()
        violations: list[str] = []
        lost = duplicated = 0
        for task, app in states.items():
            looped = [0, 0]
            for feeder, (count, last, digest) in app.items():
                if feeder.startswith("loop/"):
                    looped = [looped[0] + count, (looped[1] + digest) & MASK]
                elif feeder:
                    want = direct.pop((task, feeder), [0, -1, 0])
                    if want != [count, want[1] if feeder == QUERY else last, digest]:
                        violations.append(f"task {task}: {feeder} gave {count} rows, not {want[0]}")
                        lost += max(0, want[0] - count)
                        duplicated += max(0, count - want[0])
            want = loops.get(task, [0, 0])
            if looped != want:
                violations.append(f"task {task}: loops gave {looped} (rows, sum), not {want}")
                lost += max(0, want[0] - looped[0])
                duplicated += max(0, looped[0] - want[0])
        for (task, feeder), want in direct.items():
            lost += want[0]
            if task in states:
                violations.append(f"task {task}: {feeder} gave nothing, not {want[0]} rows")
        return Verdict(violations, lost, duplicated)

    def judge_rest(
        self, states: Mapping[TaskId, App], offsets: Mapping[FeederId, int], batch: int
    ) -> Iterator[str]:
        """Say what is wrong with states in a run that has lost others and so has no end.

        Each must have a beginning of its rows, and at least what feeders need not send again
        (`offsets`) and what was committed (`batch`). What came through loops cannot be known.
        """
        for feeder, length in self.feeders.items():
            rows: dict[TaskId, list[int]] = {}
            for task, offset, _ in self.rows(feeder, 0, length - 1):
                rows.setdefault(task, []).append(offset)
            for task, app in states.items():
                found, all_ = app.get(feeder, [0, -1, 0]), rows.get(task, [])
                if found != _noted(all_[: found[0]]):
                    yield f"task {task}: {feeder} gave {found[0]} rows that are not its first"
                elif found[0] < sum(offset <= offsets.get(feeder, -1) for offset in all_):
                    yield f"task {task}: {feeder} gave {found[0]} rows, and need not send more"
        for task, app in states.items():
            yield from self._batches_of(task, app.get(QUERY, [0, -1, 0]), batch)

    def _batches_of(self, task: TaskId, found: list[int], batch: int) -> Iterator[str]:
        """A task has some batches whole and in order, all that were committed among them."""
        count = total = 0
        good = [[0, 0]] if batch < 0 else []
        for number in range(self.batches):
            rows = [row for to, row in self.batch(number) if to == task]
            count, total = count + len(rows), (total + sum(map(mix, rows))) & MASK
            good += [[count, total]] if number >= batch else []
        if [found[0], found[2]] not in good:
            yield f"task {task}: batches gave {found[0]} rows, which are no whole batches"

    def _sequential(
        self,
    ) -> tuple[dict[tuple[TaskId, FeederId], list[int]], dict[TaskId, list[int]]]:
        """Give per (task, feeder) [rows, last offset, hash], and per task [rows, sum] of its loops."""
        direct: dict[tuple[TaskId, FeederId], list[int]] = {}
        loops: dict[TaskId, list[int]] = {}

        def feed(row: int) -> None:
            target = fed_to(row, self.tasks) if self._kind.loops else None
            if target is not None:
                entry, times = loops.setdefault(target, [0, 0]), times_fed(row)
                entry[0] += times
                entry[1] = (entry[1] + times * mix(row)) & MASK

        for feeder, length in self.feeders.items():
            for task, offset, row in self.rows(feeder, 0, length - 1):
                entry = direct.setdefault((task, feeder), [0, -1, 0])
                entry[0] += 1
                entry[1] = offset
                entry[2] = (entry[2] * 1_000_003 + offset) & MASK
                feed(row)
        for number in range(self.batches):
            for task, row in self.batch(number):
                entry = direct.setdefault((task, QUERY), [0, -1, 0])
                entry[0] += 1
                entry[2] = (entry[2] + mix(row)) & MASK
                feed(row)
        return direct, loops
