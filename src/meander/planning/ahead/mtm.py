"""The migration transition matrix (MTM): what the number of nodes tends to do next.

The paper's Section 5.2 labels a row by n alone. A daily cycle keeps its direction for hours, and
n alone forgets it, so a label here may know more:

    kind         label of "12 nodes, reached going up at 07:00"     example in print
    n            12                                                 12
    direction    12, up                                             12:up
    slot         12, third eighth of the day                        12:06-09

One entry `matrix[i, j]` is the probability that the next migration leads to label j when the last
one led to label i. Counts come from a trace; `alpha` is added to every *possible* count before the
rows are normalised (add-α): a step to fewer nodes never gets the label "up", and a step to the same
number of nodes is possible only with `self_transitions`.

A row that was never left in the trace and gets nothing from α borrows: the pooled row of the labels
with the same n, or else of all labels. `unseen` lists such rows, so that no reader takes them for
knowledge.

>>> table4 = Mtm.from_matrix([2, 3, 4], [[.3, .6, .1], [.3, .4, .3], [.1, .5, .4]])
>>> round(sequence_probability(table4, [2, 3, 4]), 10)
0.18
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from meander.errors import InputError

KINDS: Final = ("n", "direction", "slot")
LABELS_MAX = 4096
"""A matrix of more labels would be empty nearly everywhere: no trace fills 16 million cells."""

RECENT = 480
"""Labels that a matrix remembers in order: some seven weeks of ten migrations a day."""

Floats = npt.NDArray[np.float64]


class Label(NamedTuple):
    """A number of nodes and what else is known of the moment it was reached.

    >>> str(Label(12, "up")), Label.parse("12:up"), Label.parse("8")
    ('12:up', Label(nodes=12, tag='up'), Label(nodes=8, tag=''))
    """

    nodes: int
    tag: str = ""

    def __str__(self) -> str:
        return f"{self.nodes}:{self.tag}" if self.tag else str(self.nodes)

    @classmethod
    def parse(cls, text: str) -> Label:
        """Read the printed form."""
        nodes, _, tag = text.partition(":")
        if not nodes.isdigit() or int(nodes) < 1:
            raise InputError(f"a label is a number of nodes and an optional tag, not {text!r}")
        return cls(int(nodes), tag)


@dataclass(frozen=True, eq=False)
class Mtm:
    """Transition probabilities between labels. Rows add up to 1."""

    kind: str
    """One of `KINDS`."""
    labels: tuple[Label, ...]
    """Ascending."""
    matrix: Floats
    """`[i, j]`: the probability of label j after label i."""
    counts: Floats
    """How often the step was seen; zeros for a matrix that was given, not counted."""
    alpha: float = 0.0
    self_transitions: bool = False
    slot_hours: int = 3
    """Length of a slot of the day; only for kind `slot`."""
    unseen: tuple[Label, ...] = field(default=())
    """Labels whose row is borrowed, since the trace never left them."""
    recent: tuple[Label, ...] = field(default=())
    """The last labels of the trace, oldest first: a forecast is tried on them."""

    @classmethod
    def from_matrix(cls, nodes: Sequence[int], matrix: npt.ArrayLike) -> Mtm:
        """Wrap a matrix over numbers of nodes, such as Table 4 of the paper.

        Raises:
            InputError: unless it is square, not negative, and every row adds up to 1.
        """
        rows = np.asarray(matrix, dtype=np.float64)
        if rows.shape != (len(nodes), len(nodes)) or len(nodes) == 0:
            raise InputError(f"{len(nodes)} labels need a square matrix, not shape {rows.shape}")
        if not (np.isfinite(rows).all() and (rows >= 0).all()):
            raise InputError("probabilities must be finite and not negative")
        if not np.allclose(rows.sum(axis=1), 1.0):
            raise InputError("every row of an MTM must add up to 1")
        labels = tuple(Label(int(n)) for n in nodes)
        if list(labels) != sorted(set(labels)):
            raise InputError("the numbers of nodes must ascend, each once")
        stays = bool(np.diag(rows).any())
        return cls("n", labels, rows, np.zeros_like(rows), self_transitions=stays)

    @property
    def nodes(self) -> tuple[int, ...]:
        """The distinct numbers of nodes, ascending."""
        return tuple(sorted({label.nodes for label in self.labels}))

    def resolve(self, label: Label) -> tuple[int, str]:
        """Find the row for a label, or the nearest one, with a sentence on what was done.

        >>> mtm = Mtm.from_matrix([2, 4], [[0, 1], [1, 0]])
        >>> mtm.resolve(Label(5))
        (1, 'the MTM has no label 5: read as 4')
        """
        if label in self.labels:
            return self.labels.index(label), ""
        near = min(
            range(len(self.labels)),
            key=lambda i: (
                abs(self.labels[i].nodes - label.nodes),
                self.labels[i].tag != label.tag,
            ),
        )
        return near, f"the MTM has no label {label}: read as {self.labels[near]}"

    def label(self, nodes: int, previous: Label | None = None, hour: int | None = None) -> Label:
        """Name the label of a migration to `nodes` that follows `previous` at an hour of the day.

        >>> Mtm.from_matrix([2], [[1.0]]).label(3)
        Label(nodes=3, tag='')
        """
        if self.kind == "direction":
            return _directed(nodes, previous)
        if self.kind == "slot":
            if hour is None:
                raise InputError("labels of kind 'slot' need the hour of the day")
            return _slotted(nodes, hour, self.slot_hours)
        return Label(nodes)

    def to_json(self) -> dict[str, Any]:
        """Give plain values for `json.dumps`; `from_json` reads them back."""
        return {
            "kind": self.kind,
            "labels": [str(label) for label in self.labels],
            "matrix": self.matrix.tolist(),
            "counts": self.counts.tolist(),
            "alpha": self.alpha,
            "self_transitions": self.self_transitions,
            "slot_hours": self.slot_hours,
            "unseen": [str(label) for label in self.unseen],
            "recent": [str(label) for label in self.recent],
        }

    @classmethod
    def load(cls, path: Path) -> Mtm:
        """Read what `meander mtm --out` wrote.

        Raises:
            InputError: if there is none, or it is no MTM.
        """
        try:
            data = json.loads(path.read_text())
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from None
        except ValueError as error:
            raise InputError(f"{path} is not JSON: {error}") from None
        if not isinstance(data, dict):
            raise InputError(f"{path} is no MTM")
        return cls.from_json(data)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Mtm:
        """Read what `to_json` gave, or at least `labels` and `matrix`.

        Raises:
            InputError: where a part is missing or does not fit.
        """
        try:
            labels = tuple(Label.parse(str(text)) for text in data["labels"])
            matrix = np.array(data["matrix"], dtype=np.float64)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"not an MTM: {error}") from None
        kind = data.get("kind", "n")
        if kind not in KINDS or matrix.shape != (len(labels), len(labels)):
            raise InputError(f"not an MTM: kind {kind!r}, {len(labels)} labels, {matrix.shape}")
        if not np.allclose(matrix.sum(axis=1), 1.0) or not (matrix >= 0).all():
            raise InputError("every row of an MTM must add up to 1, without negative entries")
        if len(set(labels)) != len(labels):
            raise InputError("not an MTM: a label stands twice")
        try:
            counts = np.array(data.get("counts", np.zeros_like(matrix)), dtype=np.float64)
            alpha, slot_hours = float(data.get("alpha", 0.0)), int(data.get("slot_hours", 3))
            unseen, recent = (
                tuple(Label.parse(str(text)) for text in data.get(key, ()))
                for key in ("unseen", "recent")
            )
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"not an MTM: {error}") from None
        if counts.shape != matrix.shape or not 1 <= slot_hours <= 24:
            raise InputError(f"not an MTM: counts {counts.shape}, slots of {slot_hours} hours")
        return cls(kind, labels, matrix, counts, alpha, bool(data.get("self_transitions", False)),
                   slot_hours, unseen, recent)  # fmt: skip


def _directed(nodes: int, previous: Label | None) -> Label:
    """A step up or down names itself; a step to the same n keeps the direction it had."""
    if previous is None:
        return Label(nodes, "up")
    if nodes == previous.nodes:
        return Label(nodes, previous.tag)
    return Label(nodes, "up" if nodes > previous.nodes else "down")


def _slotted(nodes: int, hour: int, slot_hours: int) -> Label:
    start = hour % 24 // slot_hours * slot_hours
    return Label(nodes, f"{start:02d}-{min(start + slot_hours, 24):02d}")


def label_trace(
    nodes: Sequence[int],
    kind: str = "n",
    *,
    hours: Sequence[int] | None = None,
    self_transitions: bool = False,
    slot_hours: int = 3,
) -> list[Label]:
    """Turn nodes per slot into the labels of successive migrations.

    Args:
        nodes: the number of nodes in each slot, in order.
        kind: `n`, `direction` or `slot`.
        hours: the hour of the day (0 to 23) of each slot; needed for kind `slot`.
        self_transitions: keep slots that need no migration, as steps from n to n.
        slot_hours: length of a slot of the day.

    >>> [str(x) for x in label_trace([8, 9, 9, 10, 8], "direction")]
    ['8:up', '9:up', '10:up', '8:down']
    """
    if kind not in KINDS:
        raise InputError(f"unknown kind of label {kind!r}: choose from {', '.join(KINDS)}")
    if any(n < 1 for n in nodes):
        raise InputError("a trace needs at least one node in every slot")
    if kind == "slot" and (hours is None or len(hours) != len(nodes)):
        raise InputError("labels of kind 'slot' need the hour of the day of every slot")
    if not 1 <= slot_hours <= 24:
        raise InputError(f"a slot of the day has 1 to 24 hours, not {slot_hours}")
    labels: list[Label] = []
    for i, n in enumerate(nodes):
        if labels and n == labels[-1].nodes and not self_transitions:
            continue
        if kind == "slot" and hours is not None:
            labels.append(_slotted(n, hours[i], slot_hours))
        elif kind == "direction":
            labels.append(_directed(n, labels[-1] if labels else None))
        else:
            labels.append(Label(n))
    return labels


def mtm_from_trace(
    nodes: Sequence[int],
    kind: str = "n",
    *,
    hours: Sequence[int] | None = None,
    alpha: float = 0.0,
    self_transitions: bool = False,
    slot_hours: int = 3,
) -> Mtm:
    """Count the transitions of a training trace; see the head of this file for α and borrowing.

    Raises:
        InputError: for a trace without a single migration.

    >>> mtm = mtm_from_trace([8, 9, 8, 10, 8, 9])
    >>> mtm.matrix[0].round(3).tolist()  # from 8: twice to 9, once to 10
    [0.0, 0.667, 0.333]
    """
    if not (np.isfinite(alpha) and alpha >= 0):
        raise InputError(f"alpha must be a number of at least 0, not {alpha}")
    steps = label_trace(
        nodes, kind, hours=hours, self_transitions=self_transitions, slot_hours=slot_hours
    )
    if len(steps) < 2:
        raise InputError("the training span has no migration: take a longer one")
    labels = tuple(sorted(set(steps)))
    if len(labels) > LABELS_MAX:
        raise InputError(f"{len(labels)} labels are more than {LABELS_MAX}: use longer slots")
    index = {label: i for i, label in enumerate(labels)}
    counts = np.zeros((len(labels), len(labels)))
    for a, b in pairwise(steps):
        counts[index[a], index[b]] += 1
    weights = counts + alpha * _possible(labels, kind, self_transitions)
    matrix, unseen = _normalised(labels, weights)
    return Mtm(kind, labels, matrix, counts, float(alpha), self_transitions, slot_hours, unseen,
               tuple(steps[-RECENT:]))  # fmt: skip


def _possible(labels: tuple[Label, ...], kind: str, self_transitions: bool) -> Floats:
    """1 where a step can occur at all, so that α is spread over nothing else."""
    n = np.array([label.nodes for label in labels])
    up, same = n[None, :] > n[:, None], n[None, :] == n[:, None]
    possible = ~same | self_transitions
    if kind == "direction":
        tags = np.array([label.tag for label in labels])
        moved = np.where(up, "up", "down")
        tag = np.where(same, tags[:, None], moved)
        possible &= tags[None, :] == tag
    return np.asarray(possible, dtype=np.float64)


def _normalised(labels: tuple[Label, ...], weights: Floats) -> tuple[Floats, tuple[Label, ...]]:
    """Divide by the row sums; rows without weight borrow."""
    matrix, unseen = weights.copy(), []
    for i, label in enumerate(labels):
        if weights[i].sum() > 0:
            continue
        unseen.append(label)
        kin = np.array([other.nodes == label.nodes for other in labels])
        pooled = weights[kin].sum(axis=0)
        matrix[i] = pooled if pooled.sum() > 0 else weights.sum(axis=0)
    return matrix / matrix.sum(axis=1, keepdims=True), tuple(unseen)


def sequence_probability(mtm: Mtm, sequence: Sequence[int | str | Label]) -> float:
    """Give the probability that the migrations follow a sequence, given its first element.

    Elements are labels, in printed form or, for kind `n`, as numbers. A step that the matrix does
    not know has probability 0.

    >>> table4 = Mtm.from_matrix([2, 3, 4], [[.3, .6, .1], [.3, .4, .3], [.1, .5, .4]])
    >>> round(sequence_probability(table4, [2, 3, 4]), 10), sequence_probability(table4, [2, 9])
    (0.18, 0.0)
    """
    if not sequence:
        raise InputError("a sequence needs at least one label")
    index = {label: i for i, label in enumerate(mtm.labels)}
    labels = [x if isinstance(x, Label) else Label.parse(str(x)) for x in sequence]
    chance = 1.0
    for a, b in pairwise(labels):
        if a not in index or b not in index:
            return 0.0
        chance *= float(mtm.matrix[index[a], index[b]])
    return chance
