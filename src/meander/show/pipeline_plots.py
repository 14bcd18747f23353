"""Plots of the pipeline: a profile's skew and volume, a trace's volume and nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from meander.show.palette import INK, POLICY_COLOR
from meander.show.plots import new_figure, save
from meander.spark.pipeline.profile import Profile
from meander.spark.pipeline.trace import Trace

COLOR, OTHER = POLICY_COLOR["ssm"], POLICY_COLOR["storm"]


def plot_profile(profile: Profile, path: Path) -> None:
    """Draw work per slot, work and bytes per task, and the heaviest keys."""
    load, summary = profile.workload("total"), profile.facts["summary"]
    figure = new_figure(9, 7)
    volume, tasks, keys = figure.subplots(3, 1)
    volume.plot(profile.slots, profile.work_per_slot(), color=COLOR, lw=0.6)
    volume.set(ylabel="events a slot", title=f"{profile.facts['application']}: work over time")
    x = np.arange(load.tasks)
    tasks.bar(x - 0.2, load.work / max(1.0, load.work.mean()), 0.4, color=COLOR, label="work")
    tasks.bar(x + 0.2, load.size / max(1.0, load.size.mean()), 0.4, color=OTHER, label="bytes")
    tasks.axhline(1, color=INK, ls="--", lw=1)
    tasks.set(xlabel="task", ylabel="times the mean", title="how the hash spreads it")
    tasks.legend(frameon=False)
    names = [row["key"][:14] for row in summary["top"]]
    keys.bar(range(len(names)), [100 * row["share"] for row in summary["top"]], color=COLOR)
    keys.set_xticks(range(len(names)), [name.replace("$", r"\$") for name in names], rotation=60)
    keys.set(ylabel="share, %", title=f"heaviest {summary['of']}: {summary['keys']:,} in all, "
             f"Zipf slope {summary['zipf_slope']:.2f}")  # fmt: skip
    for ax in (volume, tasks, keys):
        ax.spines[["top", "right"]].set_visible(False)
    save(figure, path)


def plot_trace(trace: Trace, path: Path) -> None:
    """Draw volume and nodes over time, gaps shaded."""
    figure = new_figure(9, 4.5)
    top, bottom = figure.subplots(2, 1, sharex=True)
    top.plot(trace.slots, trace.volume, color=COLOR, lw=0.6)
    top.set(ylabel="volume a slot", title=f"{len(trace.migrations):,} migrations in "
            f"{len(trace.slots):,} slots")  # fmt: skip
    bottom.step(trace.slots, trace.nodes, where="post", color=OTHER, lw=0.8)
    bottom.set(ylabel="nodes")
    length = np.timedelta64(trace.parameters.get("slot_s") or 1, "s")
    for gap in trace.gaps:
        for ax in (top, bottom):
            ax.axvspan(gap.start, gap.start + gap.slots * length, color="#dddddd", lw=0)
    for ax in (top, bottom):
        ax.spines[["top", "right"]].set_visible(False)
    save(figure, path)
