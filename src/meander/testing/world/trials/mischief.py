"""Any operator, made to fail or to take long: by call, and without another class in its place.

The methods of one instance are led through here. Its class is what it was, so the adapter sees what it
sees in production: which methods are the user's own, whether it feeds, has timers, keeps versions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias

from meander.operators.base import Operator
from meander.operators.topology import Topology

METHODS: Final = (
    "create", "process_groups", "fire", "dump", "load", "size", "sizes", "freeze", "seal", "seals",
    "changes", "changes_of", "apply_changes", "apply_changes_of",
)  # fmt: skip
"""What the runtime calls. Where a state has no `result` of its own, `dump` shows it, too."""


class Prank(NamedTuple):
    """What a call is to do, instead of its work or beside it."""

    method: str
    calls: int = 1
    """It is played with the so-manieth call from now on."""
    takes_s: float = 0.0
    """How long the call takes."""
    fails: bool = True
    spoils: bool = False
    """Whether it fails behind its work and not before: what it was given has changed by then."""

    @classmethod
    def draw(cls, random: Random, calls_max: int = 20, takes_s: float = 2.0) -> Prank:
        """Draw one: often a failure, now and then a long call, or both."""
        method = random.choice((*METHODS, "process_groups", "process_groups", "dump", "load"))
        slow = random.random() < 0.4
        return cls(
            method, random.randint(1, calls_max), random.uniform(0.0, takes_s) if slow else 0.0,
            not slow or random.random() < 0.3, random.random() < 0.5,
        )  # fmt: skip


Bug: TypeAlias = tuple[Prank, ...]
"""One thing that is wrong with an operator: with one of its methods, or with two that do the same."""


class Mischief:
    """The pranks of one process; it does nothing until there is one.

    >>> from meander.operators import WordCount
    >>> operator, spent = WordCount(), []
    >>> mischief = Mischief(operator, spent.append)
    >>> mischief.plan(Prank("seal", calls=2, takes_s=1.5))
    >>> table = operator.create(None)
    >>> operator.seal(table)
    1
    >>> operator.seal(table)
    Traceback (most recent call last):
    ArithmeticError: seal fails
    >>> spent, mischief.played
    ([1.5], [Prank(method='seal', calls=0, takes_s=1.5, fails=True, spoils=False)])
    """

    def __init__(
        self,
        operator: Operator[Any] | Topology,
        spent: Callable[[float], None],
        met: Callable[[Prank], object] = lambda _: None,
    ) -> None:
        """Lead an operator's methods through here.

        Args:
            operator: of one process, or all of a topology. It cannot be pickled any more.
            spent: hears of the seconds that a call has taken.
            met: hears of a prank that is played.
        """
        self.spent, self._met = spent, met
        self.planned: list[Prank] = []
        self.played: list[Prank] = []
        made = [operator] if isinstance(operator, Operator) else operator.operators.values()
        for one in made:
            for method in METHODS:
                setattr(one, method, self._led(method, getattr(one, method)))

    def plan(self, *pranks: Prank) -> None:
        """Have something happen."""
        self.planned.extend(pranks)

    @property
    def failed(self) -> bool:
        """Whether a call has failed."""
        return any(prank.fails for prank in self.played)

    def behave(self) -> None:
        """Have nothing happen any more."""
        self.planned.clear()

    def _led(self, method: str, work: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(work)
        def call(*args: Any, **options: Any) -> Any:
            due = self._due(method) if self.planned else ()
            for prank in due:
                if prank.takes_s:
                    self.spent(prank.takes_s)
                if prank.fails and not prank.spoils:
                    raise ArithmeticError(f"{method} fails")
            found = work(*args, **options)
            if any(prank.fails for prank in due):
                raise ArithmeticError(f"{method} fails behind its work")
            return found

        return call

    def _due(self, method: str) -> list[Prank]:
        """Count a call; give what is to be played with it."""
        counted = [p._replace(calls=p.calls - (p.method == method)) for p in self.planned]
        due = [prank for prank in counted if not prank.calls]
        self.planned = [prank for prank in counted if prank.calls]
        self.played += due
        for prank in due:
            self._met(prank)
        return due
