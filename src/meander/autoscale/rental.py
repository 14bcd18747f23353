"""When fewer nodes are enough: pay for an idle one until that has cost as much as letting it go would.

The cost of n(t) nodes for a need of k(t) ≤ n(t), with β node-seconds for each node that goes and comes
back, is a sum over layers: layer j is the j-th node, needed while k(t) ≥ j. Each layer is a ski-rental
of its own. The rule: a layer goes once it has been idle for β seconds. In a gap of g seconds the best
that can be done in hindsight costs min(g, β). The rule costs g where g ≤ β, and β + β beyond: at most
twice the best, gap by gap and layer by layer, so at most twice the best in all; and no rule without
knowledge of the future and without chance can promise less (Karlin, Manasse, Rudolph and Sleator,
"Competitive snoopy caching", 1988). Where the next β seconds are foretold rightly, a layer that will
not be needed in them goes at once and any other stays, which is the best there is: looking further
would not help (Lu and Chen, "Simple and Effective Dynamic Provisioning for Power-Proportional Data
Centers", 2012, with 2 - α where a share α of β is foretold).

"Idle for β seconds" for all layers together: n goes down to the largest need of the last β seconds.
"""

from __future__ import annotations

from collections import deque
from typing import Final

PRICE_S_MAX: Final = 3600.0
"""No node is kept idle for longer, whatever its move costs."""


class Rental:
    """The needs of the last while.

    >>> rental = Rental()
    >>> for second, need in enumerate([5, 3, 3, 3]):
    ...     rental.note(second, need)
    >>> rental.enough(at_s=3, price_s=2.0), rental.enough(at_s=3, price_s=3.0)
    (3, 5)
    """

    def __init__(self) -> None:
        self._needs: deque[tuple[float, int]] = deque()
        """Times and needs; needs descend: what is smaller than a later one is never the largest."""
        self._since: float | None = None

    def note(self, at_s: float, need: int) -> None:
        """Take the need of a second."""
        if self._since is None:
            self._since = at_s
        while self._needs and self._needs[-1][1] <= need:
            self._needs.pop()
        self._needs.append((at_s, need))

    def forget(self) -> None:
        """Begin anew: what was seen says nothing of now."""
        self._needs.clear()
        self._since = None

    def enough(self, at_s: float, price_s: float) -> int | None:
        """Tell how many nodes were enough for so long; None: it is not known for as long."""
        if self._since is None or at_s - self._since < price_s:
            return None
        while self._needs[0][0] < at_s - PRICE_S_MAX:
            self._needs.popleft()
        return next(need for when, need in self._needs if when >= at_s - price_s)
