"""What a user asks of the autoscaler: every option with its meaning, default and check."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import Any

from meander.autoscale.season import Season
from meander.errors import InputError


@dataclass(frozen=True)
class Autoscale:
    """How a deployment may rescale itself.

    Attributes:
        nodes: the fewest and the most nodes.
        latency_ms: what is promised: rows that wait longer count as broken.
        utilisation: how busy a node may be by plan; the rest is for bursts, and for a rescale.
        pause_ms: the longest that a row may wait for a state that moves, as for `rescale`.
        season: how the load goes by the hour or the day, if that is known (`Season.of`). It counts as
            long as it foretells the load better than the last minutes do.
        dry_run: only say what would be done.

    >>> Autoscale(nodes=(2, 12)).utilisation
    0.7
    >>> Autoscale(nodes=(4, 2))
    Traceback (most recent call last):
      ...
    meander.errors.InputError: nodes are the fewest and the most, from 1 on, not (4, 2)
    """

    nodes: tuple[int, int]
    latency_ms: float = 200.0
    utilisation: float = 0.7
    pause_ms: float = 100.0
    season: Season | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        pair = self.nodes
        whole = isinstance(pair, tuple) and len(pair) == 2 and all(map(_is_whole, pair))
        if not whole or not 1 <= pair[0] <= pair[1]:
            raise InputError(f"nodes are the fewest and the most, from 1 on, not {pair!r}")
        if not _is_number(self.latency_ms) or self.latency_ms <= 0:
            raise InputError(f"latency_ms is more than 0, not {self.latency_ms!r}")
        if not _is_number(self.utilisation) or not 0.05 <= self.utilisation <= 0.95:
            raise InputError(f"utilisation is a share from 0.05 to 0.95, not {self.utilisation!r}")
        if not _is_number(self.pause_ms) or self.pause_ms < 0:
            raise InputError(f"pause_ms is 0 or more, not {self.pause_ms!r}")
        if not isinstance(self.season, Season | None):
            raise InputError(f"season is a Season, or None, not {self.season!r}")
        if not isinstance(self.dry_run, bool):
            raise InputError(f"dry_run is True or False, not {self.dry_run!r}")

    def __str__(self) -> str:
        """Say it in a few words.

        >>> print(Autoscale(nodes=(2, 12), dry_run=True))
        2 to 12 nodes, 70% busy by plan, rows within 200 ms; a dry run: it only says what it would do
        """
        said = (
            f"{self.nodes[0]} to {self.nodes[1]} nodes, {self.utilisation:.0%} busy by plan, "
            f"rows within {self.latency_ms:g} ms"
        )
        return f"{said}; a dry run: it only says what it would do" if self.dry_run else said

    def check_tasks(self, tasks: int) -> None:
        """Refuse more nodes than there are tasks."""
        if self.nodes[1] > tasks:
            raise InputError(f"{self.nodes[1]} nodes are more than the {tasks} tasks they share")


def replace_options(options: Autoscale | None, changes: Mapping[str, Any]) -> Autoscale:
    """Change some options; without any before, `nodes` must be among them.

    >>> replace_options(Autoscale((2, 12)), {"utilisation": 0.6}).utilisation
    0.6
    """
    try:
        return Autoscale(**changes) if options is None else replace(options, **changes)
    except TypeError as error:
        names = ", ".join(field.name for field in fields(Autoscale))
        raise InputError(f"the autoscaler's options are {names}: {error}") from None


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
