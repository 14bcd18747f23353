"""One colour per method or application, everywhere: on paper (light) and on a dark page.

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
    "mtm:n": "#8C6D31",
    "mtm:direction": "#8C564B",
    "mtm:slot": "#6A3D9A",
    "mtm-paper": "#B8860B",
    "ahead": "#C2185B",
    "hindsight": "#333333",
    "restart": "#A50026",
    "live": "#0072B2",
    "live-budget": "#009E9E",
    "storm-live": "#D55E00",
    "storm-budget": "#7A3E00",
    "exact": "#0072B2",
    "PMC": "#0072B2",
    "spark": "#E66101",
    "candidates": "#B8860B",
    "sweeps": "#0072B2",
    "sweeps_plain": "#B8860B",
    "word-count": "#0072B2",
    "frequent-patterns": "#D55E00",
}
DARK_COLOR: Final = {
    "ssm": "#58A6FF",
    "ssm-paper": "#9CD3FF",
    "storm": "#FF8C42",
    "flink": "#E8A6CB",
    "consistent-hash": "#3DD6A5",
    "redist": "#B0B0B0",
    "mtm:n": "#C8A24A",
    "mtm:direction": "#D2A08E",
    "mtm:slot": "#C297FF",
    "mtm-paper": "#E3B341",
    "ahead": "#FF7EB6",
    "hindsight": "#E6EDF3",
    "restart": "#FF6B6B",
    "live": "#58A6FF",
    "live-budget": "#56D4DD",
    "storm-live": "#FF8C42",
    "storm-budget": "#FFC08A",
    "exact": "#58A6FF",
    "PMC": "#58A6FF",
    "spark": "#FF9F5A",
    "candidates": "#E3B341",
    "sweeps": "#58A6FF",
    "sweeps_plain": "#E3B341",
    "word-count": "#58A6FF",
    "frequent-patterns": "#FF8C42",
}
NAME: Final = {
    "ssm": "single-step",
    "ssm-paper": "single-step as in the paper",
    "mtm-paper": "MTM-aware, the paper's",
    "ahead": "ahead",
    "mtm:n": "MTM-aware with a trial",
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
    "storm-budget": "Storm's plan, pause budget",
    "exact": "all partitions",
    "PMC": "all partitions",
    "spark": "all partitions, on Spark",
    "sweeps": "ours",
    "sweeps_plain": "as in Figure 9",
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
        """Give the colour of a method or an application; ink for what is none."""
        return self.colors.get(method, self.ink)


LIGHT: Final = Theme("light", "#ffffff", INK, "#cccccc", POLICY_COLOR)
DARK: Final = Theme("dark", "#0d1117", "#d0d7de", "#3d444d", {**POLICY_COLOR, **DARK_COLOR})
THEMES: Final = (LIGHT, DARK)


def name_of(method: str) -> str:
    """Name a method as the figures do."""
    return NAME.get(method, method)
