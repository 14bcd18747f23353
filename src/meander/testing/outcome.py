"""What became of one schedule, in whichever world."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from meander.testing.checkers import ACCIDENT, Violation
from meander.testing.faults import Schedule


@dataclass
class Outcome:
    """What became of one schedule."""

    schedule: Schedule
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    """What was seen, for people; `seen` has the same with the names of the checkers."""
    seen: list[Violation] = field(default_factory=list)
    digest: str = ""
    """Of every event that any machine handled, if it was asked for."""

    @property
    def failed(self) -> bool:
        """Whether anything that must not happen did."""
        return bool(self.violations)

    @property
    def caught_by(self) -> str:
        """The checker that saw something first; empty: none did.

        An accident is no catch, nor is what comes of one: that is why only the first counts.
        """
        return "" if not self.seen or self.seen[0].by == ACCIDENT else self.seen[0].by

    @property
    def accident(self) -> bool:
        """Whether all that happened is an exception that is none of ours."""
        return self.failed and not self.caught_by
