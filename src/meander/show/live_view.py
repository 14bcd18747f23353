"""The live picture of a run: nodes and what they own, throughput, latency, the migration.

On a terminal it is drawn in place; anywhere else it is a plain line every few seconds. It goes to
standard error, so that standard output holds results only.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from meander.run.loop import Scene
from meander.show.plots import NODE_COLORS

LINE_S = 2.0
"""Between two plain lines."""
CURVE = "▁▂▃▄▅▆▇█"
HISTORY = 60
"""Points of the small curves."""


class View:
    """A context manager; `show` draws a scene, `say` prints a line above the picture."""

    def __init__(self, title: str, *, quiet: bool = False) -> None:
        self._title, self._quiet = title, quiet
        self._console = Console(stderr=True, highlight=False)
        self._live: Live | None = None
        self._rates: list[float] = []
        self._slowest: list[float] = []
        self._spoke_at = 0.0
        self._colors: dict[str, str] = {}

    def __enter__(self) -> View:
        if sys.stderr.isatty() and not self._quiet:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """Print a line."""
        if not self._quiet:
            self._console.print(text, soft_wrap=True)

    def show(self, scene: Scene) -> None:
        """Draw what is going on."""
        self._rates = [*self._rates, scene.rows_s][-HISTORY:]
        self._slowest = [*self._slowest, scene.latency["max_ms"]][-HISTORY:]
        if self._live is not None:
            self._live.update(self.picture(scene), refresh=True)
        elif time.monotonic() - self._spoke_at >= LINE_S:
            self._spoke_at = time.monotonic()
            self.say(line(scene))

    def picture(self, scene: Scene) -> Panel:
        """Compose the picture."""
        figures = Table.grid(padding=(0, 2))
        figures.add_row(
            f"{scene.noun} a second", f"[bold]{scene.rows_s:>10,.0f}[/bold]", curve(self._rates)
        )
        latency = " / ".join(f"{scene.latency[n]:.0f}" for n in ("p50_ms", "p99_ms", "max_ms"))
        figures.add_row(
            "latency, p50 / p99 / max", f"[bold]{latency} ms[/bold]", curve(self._slowest)
        )
        figures.add_row(
            f"{scene.noun} so far", f"{scene.rows:>10,}", f"{max(0.0, scene.at_s):.0f} s"
        )
        state = Text(scene.migration or "steady", style="bold yellow" if scene.migration else "dim")
        return Panel(
            Group(figures, Text(), self._tasks(scene.owners), Text(), state), title=self._title
        )

    def _tasks(self, owners: tuple[str, ...]) -> Table:
        """Draw one bar per node, over all tasks."""
        table = Table.grid(padding=(0, 1))
        for node in dict.fromkeys(owners):
            style = self._color(node)
            bar = Text()
            for owner in owners:
                bar.append("█" if owner == node else "·", style if owner == node else "dim")
            table.add_row(node, bar, f"{owners.count(node)} tasks")
        return table

    def _color(self, node: str) -> str:
        if node not in self._colors:
            self._colors[node] = NODE_COLORS[len(self._colors) % len(NODE_COLORS)]
        return self._colors[node]


def curve(values: list[float]) -> str:
    """Draw values as a line of blocks.

    >>> curve([0, 1, 2, 4])
    '▁▂▄█'
    """
    top = max(values, default=0.0) or 1.0
    return "".join(CURVE[min(7, int(7 * value / top))] for value in values)


def line(scene: Scene) -> str:
    """Say a scene in one line."""
    latency = scene.latency
    nodes = len(set(scene.owners))
    told = f"; {scene.migration}" if scene.migration else ""
    return (
        f"{max(0.0, scene.at_s):5.1f} s  {nodes} nodes  {scene.rows_s:>9,.0f} {scene.noun}/s  latency "
        f"p50 {latency['p50_ms']:.0f} p99 {latency['p99_ms']:.0f} max {latency['max_ms']:.0f} ms{told}"
    )
