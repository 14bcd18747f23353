"""One colour per method, everywhere: on paper (light) and on a dark page.

Light: Okabe and Ito's colours, which also colour-blind readers can tell apart, and two greys. Dark: the
same hues, lighter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

POLICY_COLOR: Final = {
    "ssm": "#0072B2",
    "ssm-paper": "#56B4E9",
    "simple-ssm": "#A6CEE3",
    "storm": "#D55E00",
    "storm-matched": "#E69F00",
    "flink": "#CC79A7",
    "consistent-hash": "#009E73",
    "bounded-hash": "#7FBF7B",
    "redist": "#999999",
    "hash ring to ring": "#00553E",
    "mtm:n": "#B8860B",
    "mtm:direction": "#8C564B",
    "mtm:slot": "#6A3D9A",
    "hindsight": "#333333",
    "restart": "#A50026",
    "live": "#0072B2",
    "live-budget": "#009E9E",
    "storm-live": "#D55E00",
    "exact": "#0072B2",
    "PMC": "#0072B2",
    "candidates": "#B8860B",
}
DARK_COLOR: Final = {
    "ssm": "#58A6FF",
    "ssm-paper": "#9CD3FF",
    "storm": "#FF8C42",
    "flink": "#E8A6CB",
    "consistent-hash": "#3DD6A5",
    "redist": "#B0B0B0",
    "mtm:n": "#E3B341",
    "mtm:direction": "#D2A08E",
    "mtm:slot": "#C297FF",
    "hindsight": "#E6EDF3",
    "restart": "#FF6B6B",
    "live": "#58A6FF",
    "live-budget": "#56D4DD",
    "storm-live": "#FF8C42",
    "exact": "#58A6FF",
    "PMC": "#58A6FF",
    "candidates": "#E3B341",
}
NAME: Final = {
    "ssm": "single-step",
    "ssm-paper": "single-step as in the paper",
    "mtm:n": "MTM-aware, n",
    "mtm:direction": "MTM-aware, direction",
    "mtm:slot": "MTM-aware, slot",
    "consistent-hash": "consistent hashing",
    "redist": "Redist",
    "storm": "Storm",
    "flink": "Flink's ranges",
    "hindsight": "in hindsight",
    "restart": "restart",
    "live": "live",
    "live-budget": "live, pause budget",
    "storm-live": "Storm's plan, live",
    "exact": "all partitions (PMC)",
    "PMC": "all partitions (PMC)",
    "candidates": "candidates",
}
INK: Final = "#333333"


@dataclass(frozen=True)
class Theme:
    """How a figure looks on one kind of page."""

    name: str
    paper: str
    ink: str
    faint: str
    colors: dict[str, str]

    def color(self, method: str) -> str:
        """Give the colour of a method; ink for what is none."""
        return self.colors.get(method, self.ink)


LIGHT: Final = Theme("light", "#ffffff", INK, "#cccccc", POLICY_COLOR)
DARK: Final = Theme("dark", "#0d1117", "#d0d7de", "#3d444d", {**POLICY_COLOR, **DARK_COLOR})
THEMES: Final = (LIGHT, DARK)


def name_of(method: str) -> str:
    """Name a method as the figures do."""
    return NAME.get(method, method)
