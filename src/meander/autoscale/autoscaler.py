"""The autoscaler: signals in, decisions out. It has no clock: times are those of the signals.

Once a second:

  1. learn: the true rate of a node, the load (`demand`), how long a rescale takes
  2. up, at once: if it is sure that at the end of a rescale the busiest node of the best plan for as
     many nodes as there are would be busier than asked for, go to the smallest n whose plan is not.
     What waits is added, to be worked off within `DRAIN_S`
  3. or rebalance: if only the split is bad, as many nodes with another plan; once more when the loss
     of a node is over, for its tasks went where there was room, by work that nobody could measure
  4. or down: to what has been enough for as long as a node is worth keeping (`rental`)
  5. ask ahead for what takes long to come, and say what nodes do not cure (`cures`)

*Sure* is `SURE` standard errors of the expected load: a noisy load is given more room before anything
is done, on both sides, which is what keeps it from swinging. While a rescale is under way only more
nodes are asked for. Without the word of every node nothing goes down.
"""

from __future__ import annotations

from math import ceil, inf
from typing import Final, NamedTuple

from meander.autoscale.cures import Cures
from meander.autoscale.decisions import Action, Decision
from meander.autoscale.demand import Demand, Expected, SeasonalDemand
from meander.autoscale.options import Autoscale
from meander.autoscale.rental import Rental
from meander.autoscale.signals import Signals
from meander.autoscale.split import Split
from meander.autoscale.times import RescaleTimes, busiest_bytes

SURE: Final = 4.5
"""Standard errors: 3 in a million by chance."""
SURE_FRESH: Final = 1.0
"""The same where the load has just changed: that it has is sure already."""
SLACK: Final = 0.1
"""No more nodes are asked for before the busiest is beyond the utilisation by this share of it."""
BURST: Final = 2.0
"""A node has room for so many standard deviations of a second's load: it binds where noise is large."""
DRAIN_S: Final = 6.0
"""What waits shall be worked off in that time."""
UP_FACTOR_MAX: Final = 8
"""So many times the nodes at once, and no more."""
REPLACE: Final = 1.25
"""A rescale under way is replaced by one to that many times its nodes, and not for less."""
DOWN_FACTOR_MAX: Final = 2
"""So many times fewer at once, and no fewer."""
EVEN: Final = 1.05
"""A new split's busiest node has at most that much more than the best plan's: room to grow into."""
UNEVEN: Final = 1.15
"""A split is bad if its busiest node has that much more than the best plan's would."""
REBALANCE_S: Final = 30.0
"""Between two rebalances."""
SETTLED_S: Final = 12.0
"""So long after a loss the work of tasks is known again: they had none, then all that had waited."""
PRICE_S_MIN: Final = 10.0
"""A node is kept idle for at least so long: what a rescale disturbs is not all in its seconds."""
RATE_GAIN: Final = 0.2
"""How much of a second in which all were half busy or more enters the true rate."""
BUSY_MIN: Final = 0.02
"""Of all nodes together: below, rows over busy time say little."""
LATE_S: Final = 3
"""Seconds in which rows wait for too long, until that is a reason of its own."""
FIRST_S: Final = 5
"""Seconds that are only looked at."""
LOOK_S: Final = 2.0
"""Until the next look: what is not seen now is seen then."""
SAY_S: Final = 60.0
"""How often the same is said: that the most nodes are not enough, or what would be done."""


class View(NamedTuple):
    """A second's signals, and what follows from them."""

    seen: Signals
    split: Split
    expected: Expected
    """The load when a rescale that begins now has ended."""
    surely: float
    """It is more than that."""
    backlog: float
    """What must be taken beside it so that nothing waits, in rows a second."""
    rate: float
    """What a node can take; infinite before any has taken a row: then no load is a reason for more than
    the fewest nodes, and what waits keeps those that there are."""
    room: float
    """What it may have by plan."""


class Autoscaler:
    """Decides when a deployment rescales, and to how many nodes."""

    def __init__(self, options: Autoscale, ahead_s: float = 0.0) -> None:
        """Begin; `ahead_s` is how long before they start room for nodes must be asked for."""
        self.options = options
        season = options.season
        self.demand = Demand() if season is None else SeasonalDemand(season)
        self.cures, self.rental = Cures(), Rental()
        self.rate: float | None = None
        """Rows a second that one node can take: the true rate."""
        self.times = RescaleTimes()
        """How long rescales take, with the start of processes."""
        self.rescale_s = self.times.seconds(0.0)
        """The same of the one that would be next, as last foreseen."""
        self.held = False
        """Whether a person has rescaled: then it is only said what would be done."""
        self._ahead_s = ahead_s
        self._split: Split | None = None
        self._seconds = self._losses = 0
        self._lost_at: float | None = None
        """When a node was lost; None: the split has been looked at since."""
        self._balanced_at = self._said_at = -1e9
        self._would: tuple[Action, int, int] | None = None
        self._would_at = 0.0
        """What was last said that would be done, and when."""
        self._late_s = 0
        """For so many seconds rows have waited too long, and nodes had no time left."""
        self._asked = 0
        """For how many nodes room was asked ahead."""

    # ------------------------------------------------------------------ events

    def rescaled(
        self, at_s: float, seconds: float, bytes_moved: int, before: int, after: int
    ) -> None:
        """Hear that a rescale has ended: what it took is expected of the next."""
        self.times.learn(bytes_moved / max(1, min(before, after)), seconds)
        if after > before and self.rate is not None:
            self.cures.went_up(at_s, before, self.rate)
        elif after < before:
            self.cures.went_down()

    def hold(self, at_s: float, before: int, after: int) -> Decision:
        """Hear that a person has rescaled, which counts until the autoscaler is switched on again."""
        self.held = True
        why = f"somebody asked for {after} nodes: that counts until `autoscale` is called again"
        return Decision(at_s, Action.HELD, before, after, (why,), carried_out=False)

    def observe(self, seen: Signals) -> list[Decision]:
        """Take a second's signals; give what is to be done, or said: mostly nothing."""
        self._seconds += 1
        if seen.losses > self._losses:
            self._losses, self._lost_at = seen.losses, seen.at_s
        self._learn_rate(seen)
        if not seen.unheard or seen.offered_rows_s > 0:
            self.demand.observe(seen.at_s, seen.offered_rows_s)
        if self._seconds <= FIRST_S:
            return []
        view = self._look(seen, inf if self.rate is None else self.rate)
        found = [self._up(view) or self._rebalance(view) or self._down(view)]
        found += [self._ask_ahead(view), self._say(view)]
        return [decision for decision in found if decision is not None and self._is_news(decision)]

    # ------------------------------------------------------------------ what is known

    def _learn_rate(self, seen: Signals) -> None:
        """Rows over busy time, of all nodes: idle ones weigh little, and a queue hides nothing."""
        nodes, busy = len(seen.node_busy), float(seen.node_busy.sum())
        if busy <= BUSY_MIN * nodes:
            return
        now = float(seen.node_rows_s.sum()) / busy
        if now > 0:
            gain = RATE_GAIN * min(1.0, 2 * busy / nodes)
            self.rate = now if self.rate is None else self.rate + gain * (now - self.rate)

    def _look(self, seen: Signals, rate: float) -> View:
        if self._split is None or self._split.work is not seen.work:
            self._split = Split(seen.work)
        room = rate * min(self.options.utilisation, 1 / (1 + BURST * self.demand.noise))
        expected = self._at_end(seen, self._split, room)
        sure = SURE_FRESH if expected.fresh else SURE
        surely = max(0.0, expected.rows_s - sure * expected.error)
        backlog = self._backlog(seen, expected.rows_s, rate)
        return View(seen, self._split, expected, surely, backlog, rate, room)

    def _at_end(self, seen: Signals, split: Split, room: float) -> Expected:
        """Tell the load at the end of a rescale: how long it takes depends on where it goes."""
        now = self.demand.expect(0.0)
        need, state = seen.nodes, float(seen.sizes.sum())
        for _ in range(2):
            self.rescale_s = self.times.seconds(busiest_bytes(state, seen.nodes, need))
            now = self._most(self.rescale_s + LOOK_S)
            need = split.smallest(now.rows_s, room, *self.options.nodes)
        return now

    def _most(self, ahead_s: float) -> Expected:
        """Tell the largest load that is expected from now until then."""
        demand = self.demand
        if isinstance(demand, SeasonalDemand):
            return demand.most(ahead_s)
        now, then = demand.expect(0.0), demand.expect(ahead_s)
        return now if now.rows_s > then.rows_s else then

    def _backlog(self, seen: Signals, load: float, rate: float) -> float:
        """Tell what must be taken beside the load once a rescale has ended, so that nothing waits."""
        capacity = rate / max(seen.busiest_share, 1e-9)
        more = max(0.0, load - capacity) * self.rescale_s
        usual = load * self.options.latency_ms / 1000
        return max(0.0, seen.waiting_rows + more - usual) / DRAIN_S

    # ------------------------------------------------------------------ up

    def _up(self, view: View) -> Decision | None:
        seen, split, expected, rate = view.seen, view.split, view.expected, view.rate
        low, high = self.options.nodes
        have = seen.nodes if seen.heading_for is None else seen.heading_for
        load = expected.rows_s + view.backlog
        if have < low:
            need, why = low, f"at least {low} nodes are asked for"
        elif self._too_busy(view, have) or self._late(view):
            need = split.smallest(load, view.room, have, high)
            why = (
                f"{load:,.0f} rows a second are expected in {self.rescale_s:.0f} s; {have} nodes "
                f"would be {load * split.share(have) / rate:.0%} busy, of {view.room / rate:.0%}"
            )
        else:
            return None
        if need <= have or seen.at_s < self.cures.useless_until_s:
            return None
        if seen.heading_for is not None and need < REPLACE * seen.heading_for:
            return None
        limited, reasons = min(need, UP_FACTOR_MAX * have), [why]
        if limited < need:
            reasons.append(f"not {need} at once: {UP_FACTOR_MAX} times as many at most")
        if expected.rows_s * split.share(limited) > view.room:
            busy = expected.rows_s * split.share(limited) / rate
            reasons.append(f"{limited} nodes will still be {busy:.0%} busy")
        return self._decide(Action.UP, view, limited, reasons)

    @staticmethod
    def _too_busy(view: View, nodes: int) -> bool:
        """Whether the busiest of so many is surely busier than it may be, and no better split helps."""
        limit, best = view.room * (1 + SLACK), view.split.share(nodes)
        if view.surely * best > limit:
            return True
        split_is_bad = view.surely * view.seen.busiest_share > limit
        return split_is_bad and view.expected.rows_s * best > limit

    def _late(self, view: View) -> bool:
        """Whether rows wait for longer than promised and nodes have no time left to catch up."""
        seen, capacity = view.seen, view.seen.nodes * view.rate
        promised = self.options.latency_ms / 1000 * capacity
        full = seen.offered_rows_s > 0.9 * capacity and seen.waiting_rows > promised
        self._late_s = self._late_s + 1 if full and seen.heading_for is None else 0
        return self._late_s >= LATE_S

    # ------------------------------------------------------------------ as many, otherwise split

    def _rebalance(self, view: View) -> Decision | None:
        seen, share = view.seen, view.split.share(view.seen.nodes)
        if seen.heading_for is not None or seen.unheard:
            return None
        left_so = self._lost_at is not None and seen.at_s - self._lost_at >= SETTLED_S
        if left_so:  # whoever took the tasks in a hurry has them still
            self._lost_at = None
        if seen.busiest_share <= UNEVEN * share:
            return None
        too_soon = seen.at_s - self._balanced_at < REBALANCE_S
        too_busy = view.surely * seen.busiest_share > view.room * (1 + SLACK)
        if not left_so and (too_soon or not too_busy):
            return None
        self._balanced_at = seen.at_s
        busy = view.expected.rows_s * seen.busiest_share / view.rate
        why = (
            f"the busiest of {seen.nodes} nodes has {seen.busiest_share:.0%} of the rows and would "
            f"be {busy:.0%} busy; {share:.0%} is possible"
        )
        return self._decide(Action.REBALANCE, view, seen.nodes, [why])

    # ------------------------------------------------------------------ down

    def _down(self, view: View) -> Decision | None:
        seen, low = view.seen, self.options.nodes[0]
        need = self._enough(view, view.expected)
        self.rental.note(seen.at_s, self._enough(view, view.expected, view.backlog))
        if seen.heading_for is not None or seen.unheard or seen.nodes <= low:
            return None
        if need >= seen.nodes or view.backlog > 0 or not self.demand.noise_known:
            return None
        price_s = self._price_s(seen, need)
        foretold = self._foretold(view, price_s)
        if foretold is None:
            enough = self.rental.enough(seen.at_s, price_s)
            why = f"{enough} nodes were enough for {price_s:.0f} s, the price of letting one go"
        else:
            enough = max(need, foretold)
            why = f"{enough} nodes are enough for the next {price_s:.0f} s by the season"
        if enough is None or enough >= seen.nodes:
            return None
        fewer = max(enough, ceil(seen.nodes / DOWN_FACTOR_MAX), low)
        if fewer >= seen.nodes:
            return None
        return self._decide(Action.DOWN, view, fewer, [why], price_s=price_s)

    def _enough(self, view: View, expected: Expected, backlog: float = 0.0) -> int:
        """Tell how many nodes are surely enough, for what comes and, if told, for what waits."""
        low, high = self.options.nodes
        most = expected.rows_s + SURE * expected.error + backlog
        return view.split.smallest(most, view.room, low, max(high, view.seen.nodes))

    def _foretold(self, view: View, price_s: float) -> int | None:
        """Tell how many are enough for the next while, by a season that is trusted."""
        demand = self.demand
        if not isinstance(demand, SeasonalDemand) or not demand.trusted:
            return None
        return self._enough(view, demand.most(price_s + self.rescale_s))

    def _price_s(self, seen: Signals, need: int) -> float:
        """Price a node that goes and comes back, in its seconds: two rescales, and what they disturb.

        For the time of a rescale nodes are paid that do no work: those that leave, or have just come.
        What moves is a share of all state that goes with the nodes. Rows of moving tasks wait for the
        pause, which counts as if all nodes stood still for it.
        """
        state = float(seen.sizes.sum())
        moving_s = self.times.seconds(busiest_bytes(state, seen.nodes, need))
        pause_s = self.options.pause_ms / 1000 * seen.nodes
        return max(PRICE_S_MIN, 2 * moving_s + 2 * pause_s)

    # ------------------------------------------------------------------ what is asked for and said

    def _ask_ahead(self, view: View) -> Decision | None:
        """Have room made where that takes long: for what will be needed by then."""
        if not self._ahead_s:
            return None
        seen, (low, high) = view.seen, self.options.nodes
        expected = self._most(self._ahead_s + self.rescale_s)
        need = view.split.smallest(expected.rows_s, view.room, low, high)
        have = max(seen.nodes, seen.heading_for or 0)
        if need < have:
            self._asked = 0
        if need <= max(have, self._asked):
            return None
        self._asked = need
        why = f"{need} nodes will be needed in {self._ahead_s:.0f} s: so long their executors take"
        return self._decide(Action.ASK_AHEAD, view, need, [why])

    def _say(self, view: View) -> Decision | None:
        seen, expected, high = view.seen, view.expected, self.options.nodes[1]
        found = self.cures.look(seen, view.split, expected.rows_s, view.rate, view.room)
        too_much = expected.rows_s * view.split.share(high) > view.rate
        if seen.nodes >= high and too_much and seen.at_s - self._said_at > SAY_S:
            self._said_at = seen.at_s
            rows = f"{expected.rows_s:,.0f}"
            found.append(f"{rows} rows a second are more than {high} nodes can take")
        return self._decide(Action.CANNOT, view, seen.nodes, found) if found else None

    def _is_news(self, decision: Decision) -> bool:
        """Whether it is done, or was not just said: what only would be done is so every second."""
        if decision.carried_out or decision.action is Action.CANNOT:
            return True
        would = decision.action, decision.nodes_before, decision.nodes_after
        if would == self._would and decision.when - self._would_at < SAY_S:
            return False
        self._would, self._would_at = would, decision.when
        return True

    def _decide(
        self, action: Action, view: View, nodes: int, reasons: list[str], price_s: float = 0.0
    ) -> Decision:
        """Make the decision, with the numbers it was made from."""
        seen, split, expected, rate = view.seen, view.split, view.expected, view.rate
        busiest = seen.busiest_share or split.share(max(1, seen.nodes))
        numbers = {
            "offered_rows_s": seen.offered_rows_s,
            "expected_rows_s": expected.rows_s,
            "error_rows_s": expected.error,
            "noise": self.demand.noise,
            "trend_rows_s2": self.demand.trend,
            "waiting_rows": seen.waiting_rows,
            "node_rate_rows_s": 0.0 if rate == inf else rate,
            "busiest_share": busiest,
            "utilisation_now": seen.offered_rows_s * busiest / rate,
            "utilisation_after": expected.rows_s * split.share(nodes) / rate,
            "rescale_s": self.rescale_s,
            "state_bytes": float(seen.sizes.sum()),
            "price_s": price_s,
        }
        acts = action in (Action.UP, Action.DOWN, Action.REBALANCE, Action.ASK_AHEAD)
        share = split.share(nodes) * EVEN
        if action is Action.DOWN:  # what goes down may be less even, if the utilisation allows it
            most = view.room / max(expected.rows_s + SURE * expected.error, 1.0)
            share = max(share, min(most, UNEVEN * split.share(nodes)))
        return Decision(
            seen.at_s, action, seen.nodes, nodes, tuple(reasons),
            {name: round(value, 6) for name, value in numbers.items()},
            carried_out=acts and not (self.options.dry_run or self.held),
            node_share_max=min(1.0, share) if acts else None,
        )  # fmt: skip
