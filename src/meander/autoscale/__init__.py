"""WHEN to rescale, and to how many nodes. Pure: no clock, socket, thread or file anywhere below.

    Signals, once a second ──► Autoscaler ──► a Decision with its reasons, or None

The very same `Autoscaler` decides in a deployment (`runtime.driver.autoscaling`) and in the
laboratory's simulation (`meander_lab.autoscale`), where it is compared with what others do.

| file | what |
| --- | --- |
| `options` | what a user asks for (`Autoscale`) |
| `signals` | what is measured (`Signals`), and how it is read off counters (`Meter`) |
| `demand`, `season` | what will come: level, trend, season, and how sure that is |
| `times` | how long a rescale takes |
| `split` | how evenly n nodes can share the work: the exact plan's busiest node |
| `rental` | when fewer nodes are enough: a rule with a bound |
| `cures` | what more nodes cannot cure |
| `decisions` | what was decided, why, and from which numbers |
| `autoscaler` | all of it together: begin here |
"""

from __future__ import annotations

from meander.autoscale.autoscaler import Autoscaler
from meander.autoscale.decisions import Action, Decision
from meander.autoscale.options import Autoscale
from meander.autoscale.season import Season
from meander.autoscale.signals import Signals

__all__ = ["Action", "Autoscale", "Autoscaler", "Decision", "Season", "Signals"]
