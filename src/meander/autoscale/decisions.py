"""What was decided: small values that print, go into logs and JSON, and can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Action(StrEnum):
    """What a decision is."""

    UP = "up"
    DOWN = "down"
    REBALANCE = "rebalance"
    """As many nodes as before; only the split changes."""
    ASK_AHEAD = "ask ahead"
    """Have room made for nodes that will soon be needed; none is started yet."""
    CANNOT = "cannot"
    """Something is wrong that nodes do not cure: it is said, and nothing is done."""
    HELD = "held"
    """A person has rescaled: from here on it is only said what would be done."""


@dataclass(frozen=True)
class Decision:
    """One decision of the autoscaler."""

    when: float
    """In seconds, on the clock of the signals; live: since 1970."""
    action: Action
    nodes_before: int
    nodes_after: int
    reasons: tuple[str, ...]
    """In words, the first one first."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """What it was made from."""
    carried_out: bool = True
    """Whether it is acted upon: not in a dry run, and not after a person has rescaled."""
    node_share_max: float | None = None
    """How much of all work the plan may give to one node, so that none is busier than asked for."""

    def to_json(self) -> dict[str, Any]:
        """Give it in what JSON has."""
        return {**asdict(self), "action": str(self.action), "numbers": dict(self.numbers)}

    def __str__(self) -> str:
        told = f"{self.nodes_before} → {self.nodes_after} nodes: "
        if self.action in (Action.CANNOT, Action.HELD, Action.ASK_AHEAD):
            told = ""
        would = "" if self.carried_out else " (not carried out)"
        return f"{self.action}: {told}{'; '.join(self.reasons)}{would}"
