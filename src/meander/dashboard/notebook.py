"""A deployment as a small picture for notebooks: who owns what, loads, the migration under way.

Where a notebook can change what it has shown, the picture is drawn anew every second: by one thread,
of the operator that was shown last, until that ends or `LIVE_S_MAX` is over. It is never a frame of
the dashboard, which lets no page embed it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any, Protocol

from meander.dashboard.snapshot import Snapshot, take
from meander.show.picture import amount

if TYPE_CHECKING:
    from meander.runtime.driver.elastic import ElasticOperator

log = logging.getLogger(__name__)

DRAW_S = 1.0
"""Between two pictures."""
LIVE_S_MAX = 3600.0
"""How long a picture is drawn anew: a notebook that is left open keeps nobody busy for ever."""
WIDTH = 640
NODES_SHOWN = 12
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8860B", "#6A3D9A")


def view(op: ElasticOperator) -> str:
    """Draw a deployment as it is now."""
    return draw(take(op), None if op.dashboard is None else op.dashboard.partition("?")[0])


class Shown(Protocol):
    """What a notebook gives back for something shown under an id: `IPython.display.DisplayHandle`."""

    def update(self, data: Any, *, raw: bool) -> None:
        """Show something else in its place."""


class LiveView:
    """Draws a deployment anew where it was shown."""

    _latest: LiveView | None = None
    """The one that is live in this process: another that is shown takes its place."""

    def __init__(self, op: ElasticOperator, show: Callable[[dict[str, str]], Shown]) -> None:
        """Show it with `show`, and go on."""
        self._op, self._stop = op, threading.Event()
        self._shown = show(self._picture())
        if LiveView._latest is not None:
            LiveView._latest.stop()
        LiveView._latest = self
        self._thread = threading.Thread(target=self._run, name="notebook view", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Draw no longer."""
        self._stop.set()

    def join(self) -> None:
        """Wait until it draws no longer."""
        self._thread.join(timeout=10)

    def _run(self) -> None:
        looks = int(LIVE_S_MAX / DRAW_S)
        while looks and not self._stop.wait(DRAW_S):
            looks -= 1
            if self._op.driver.stopping or self._op.driver.failure is not None:
                looks = 0
            try:
                self._shown.update(self._picture(), raw=True)
            except Exception as error:  # nobody sees it any more, or the master has just ended
                log.debug("a notebook's view ends: %s", error)
                looks = 0

    def _picture(self) -> dict[str, str]:
        driver = self._op.driver
        ended = driver.stopping or driver.failure is not None
        drawn = f"<div>{escape(repr(self._op))}</div>" if ended else view(self._op)
        return {"text/html": drawn, "text/plain": repr(self._op)}


def display(op: ElasticOperator) -> None:
    """Show a deployment in the notebook that runs this, live.

    Raises:
        NotImplementedError: if there is no notebook; IPython then shows it as it shows others.
    """
    try:
        from IPython import get_ipython
        from IPython.display import display as show
    except ImportError:
        raise NotImplementedError from None
    if getattr(get_ipython(), "kernel", None) is None:
        raise NotImplementedError  # a terminal
    LiveView(op, lambda data: show(data, raw=True, display_id=True))


def draw(now: Snapshot, page: str | None = None) -> str:
    """Draw one moment; `page`: where there is more to see, without its token."""
    look = now.look
    color = {node.name: COLORS[i % len(COLORS)] for i, node in enumerate(look.nodes)}
    bars = "".join(
        f'<rect x="{WIDTH * lb / look.tasks:.1f}" width="{WIDTH * (ub - lb) / look.tasks:.1f}" '
        f'height="18" fill="{color.get(node, "#999")}"><title>{escape(node)}: tasks {lb} to {ub - 1}'
        "</title></rect>"
        for node, lb, ub in look.runs
    )
    work, sizes = look.by_node(look.work), look.by_node(look.sizes)
    rows = "".join(
        f'<tr><td><span style="color:{color[node.name]}">■</span> {escape(node.name)}</td>'
        f"<td>{escape(node.host)}</td><td>{escape(node.status)}</td>"
        f"<td>{look.owners.count(node.name)}</td><td>{work.get(node.name, 0):,}</td>"
        f"<td>{amount(sizes.get(node.name, 0))}</td></tr>"
        for node in look.nodes[:NODES_SHOWN]
    )
    more = len(look.nodes) - NODES_SHOWN
    rest = f"<tr><td colspan=6>and {more} more</td></tr>" if more > 0 else ""
    migration = look.migration
    moving = ""
    if migration is not None and migration.active:
        moving = (
            f"<br>{escape(migration.stage)}: {migration.nodes_before} → "
            f"{len(migration.target.nodes)} nodes, {migration.moved} tasks moved, "
            f"{len(migration.rounds)} rounds done"
        )
    link = f' · <a href="{escape(page)}" target="_blank">dashboard</a>' if page else ""
    return (
        f"<div><b>{escape(now.deployed.operator)}</b> on {len(look.nodes)} nodes, {look.tasks} tasks · "
        f"{now.totals['rows']:,} rows · {amount(sum(look.sizes))} bytes of state{link}{moving}"
        f'<br><svg viewBox="0 0 {WIDTH} 18" width="{WIDTH}" height="18" role="img" '
        f'aria-label="who owns which task">{bars}</svg>'
        "<table><tr><th>node</th><th>host</th><th>status</th><th>tasks</th><th>rows/s</th>"
        f"<th>state</th></tr>{rows}{rest}</table></div>"
    )
