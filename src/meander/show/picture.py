"""Plans in a terminal: intervals before and after as bars, what moves, and a table of the nodes.

Works without colour (every interval begins with a bar and bears its name where it fits), in 80
columns, and through a pipe.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from meander.model import Assignment, NodeId, Plan, Problem, Round
from meander.planning.exact.phases import makespan
from meander.planning.exact.rounds import PauseBudget

LABEL = 8
"""Columns for the words before the bars."""
NODES_SHOWN = 16
ROUNDS_SHOWN = 12
POINTS_SHOWN = 24
INK = ("cyan", "magenta", "yellow", "green", "blue", "red", "bright_black")
"""One after the other for neighbouring nodes; the names tell them apart."""


def show_plan(
    console: Console, plan: Plan, rounds: Sequence[Round], pause: PauseBudget | None = None
) -> None:
    """Print all there is to say about a plan."""
    console.print(summary(plan), soft_wrap=True)
    console.print()
    for line in bars(plan, console.width):
        console.print(line, no_wrap=True, overflow="crop")
    console.print()
    console.print(node_table(plan))
    if plan.moves:
        console.print()
        console.print(round_table(rounds, pause))


def summary(plan: Plan) -> str:
    """Say in a few lines what the plan costs and whether it keeps the caps."""
    problem = plan.problem
    proof = " (proven least)" if plan.optimal else ""
    verdict = "within the caps" if plan.within_caps else "over a cap"
    lines = [
        f"{plan.policy}: {len(problem.current.nodes)} → {problem.nodes} nodes, "
        f"{problem.workload.tasks} tasks, tau {float(problem.tau):g}",
        f"moves {len(plan.moves)} tasks, {amount(plan.cost)} = {plan.cost_share:.1%} "
        f"of the state{proof}",
        f"busiest node {amount(plan.max_load)} of at most {amount(problem.cap)} work, "
        f"{plan.imbalance:.2f} times the mean: {verdict}",
    ]
    for word, nodes in (("joining", plan.joining), ("leaving", plan.leaving)):
        if nodes:
            lines.append(f"{word}: {_few(nodes)}")
    if plan.note:
        lines.append(f"note: {plan.note}")
    return "\n".join(lines)


def bars(plan: Plan, width: int) -> list[Text]:
    """Draw who owns which tasks, before and after, and which of them move."""
    tasks, room = plan.problem.workload.tasks, max(10, width - LABEL - 2)
    cells = tasks * (room // tasks) if tasks <= room else room
    ink = _inks(plan)
    edges = np.arange(cells + 1) * tasks // cells
    lines = [_line("tasks", Text(f"0{str(tasks).rjust(cells - 1)}"))]
    lines += [
        _line(word, _bar(a, edges, ink))
        for word, a in (("before", plan.problem.current), ("after", plan.target))
    ]
    return [*lines, _line("moves", _moving(plan, edges, ink))]


def _line(word: str, bar: Text) -> Text:
    return Text(word.ljust(LABEL)).append_text(bar)


def _bar(a: Assignment, edges: np.ndarray, ink: dict[NodeId, str]) -> Text:
    """Draw one segment per run, with its node's name where there is room."""
    bar, cells = Text(), len(edges) - 1
    starts = np.searchsorted(edges[:-1], [run.lb for run in a.runs])
    ends = [*starts[1:].tolist(), cells]
    for run, start, end in zip(a.runs, starts.tolist(), ends, strict=True):
        width = end - start
        if width > 0:
            name = run.node if len(run.node) < width else ""
            bar.append(f"│{name}".ljust(width)[:width], style=f"black on {ink[run.node]}")
    return bar.append("│")


def _moving(plan: Plan, edges: np.ndarray, ink: dict[NodeId, str]) -> Text:
    """Mark cells whose tasks all move, some of them, or none."""
    moved = np.zeros(plan.problem.workload.tasks + 1, dtype=np.int64)
    for move in plan.moves:
        moved[move.task + 1] = 1
    before = np.cumsum(moved)
    bar = Text()
    for lb, next_lb in pairwise(edges.tolist()):
        ub = max(next_lb, lb + 1)
        count = int(before[ub] - before[lb])
        mark = "█" if count == ub - lb else "▒" if count else "·"
        bar.append(mark, style=ink[plan.target.owner(lb)] if count else "bright_black")
    return bar


def _inks(plan: Plan) -> dict[NodeId, str]:
    nodes = dict.fromkeys((*plan.problem.current.nodes, *plan.target.nodes))
    return {node: INK[i % len(INK)] for i, node in enumerate(nodes)}


def node_table(plan: Plan) -> RenderableType:
    """List the nodes: what each owns before and after, its work, and what it sends and receives."""
    table = Table(box=None, pad_edge=False)
    for column in ("node", "before", "after"):
        table.add_column(column, no_wrap=True)
    for column in ("work", "of cap", "state", "sends", "receives"):
        table.add_column(column, justify="right")
    sends: dict[NodeId, int] = defaultdict(int)
    receives: dict[NodeId, int] = defaultdict(int)
    for _, source, target, size in plan.moves:
        sends[source] += size
        receives[target] += size
    nodes = list(dict.fromkeys((*plan.target.nodes, *plan.leaving)))
    cap = plan.problem.cap
    old, new = _owned(plan.problem.current), _owned(plan.target)
    for node in nodes[:NODES_SHOWN]:
        work = plan.loads.get(node, 0)
        table.add_row(
            node, old.get(node, "joins"), new.get(node, "leaves"), amount(work),
            f"{work / cap:.0%}" if cap else "", amount(plan.sizes.get(node, 0)),
            amount(sends[node]), amount(receives[node]),
        )  # fmt: skip
    if len(nodes) > NODES_SHOWN:
        table.add_row("…", f"{len(nodes) - NODES_SHOWN} more")
    return table


def round_table(rounds: Sequence[Round], pause: PauseBudget | None) -> RenderableType:
    """List the rounds: how much each moves, and how long its busiest link needs."""
    title = "1 round" if len(rounds) == 1 else f"{len(rounds)} rounds"
    table = Table(box=None, pad_edge=False)
    table.add_column(title, no_wrap=True)
    for column in ("tasks", "bytes", "busiest link", *(["pause"] if pause else [])):
        table.add_column(column, justify="right")
    table.add_column("")
    for k, round_ in enumerate(rounds[:ROUNDS_SHOWN], 1):
        longest = makespan(round_.moves)
        remark = "larger than the limits" if round_.oversized else ""
        table.add_row(
            str(k), str(len(round_.moves)), amount(round_.size), amount(longest),
            *([f"{pause.predict_ms(longest):.1f} ms"] if pause else []),
            "full nodes swap" if round_.exchange else remark,
        )  # fmt: skip
    if len(rounds) > ROUNDS_SHOWN:
        table.add_row("…")
    return table


def front_table(points: Sequence[dict[str, Any]], problem: Problem) -> RenderableType:
    """List the corners of the Pareto front; a long one is thinned out."""
    table = Table(
        box=None, pad_edge=False, title="the least cost for every tau", title_justify="left"
    )
    for column in ("tau from", "cap", "cost", "of the state"):
        table.add_column(column, justify="right")
    table.add_column("")
    here = max((i for i, p in enumerate(points) if p["tau"] <= problem.tau), default=-1)
    step = -(-len(points) // POINTS_SHOWN)
    for i, p in enumerate(points):
        if i % step == 0 or i in (here, len(points) - 1):
            mark = f"← tau {float(problem.tau):g}" if i == here else ""
            share = f"{p['cost_share']:.1%}"
            table.add_row(f"{p['tau']:.4f}", amount(p["cap"]), amount(p["cost"]), share, mark)
    if step > 1:
        table.add_row("", "", "", "", f"{len(points)} in all: see --json")
    return table


def curve_table(points: Sequence[dict[str, Any]], problem: Problem) -> RenderableType:
    """List the least cost by the number of nodes; with more than the last it stays."""
    table = Table(
        box=None, pad_edge=False, title_justify="left",
        title="the least cost for every number of nodes",
    )  # fmt: skip
    for column in ("nodes", "cost", "of the state"):
        table.add_column(column, justify="right")
    table.add_column("")
    last = len(points) - 1
    for i, p in enumerate(points):
        here = p["nodes"] == problem.nodes or (i == last and p["nodes"] < problem.nodes)
        mark = f"← {problem.nodes} nodes" if here else ""
        more = " or more" if i == last else ""
        share = f"{p['cost_share']:.1%}"
        table.add_row(f"{p['nodes']}{more}", amount(p["cost"]), share, mark)
    return table


def amount(value: int) -> str:
    """Write a number so that it can be read: exact while it is short.

    >>> amount(1234), amount(12_345_678)
    ('1,234', '12.3 M')
    """
    for size, unit in ((10**18, "E"), (10**15, "P"), (10**12, "T"), (10**9, "G"), (10**6, "M")):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:,}"


def _owned(a: Assignment) -> dict[NodeId, str]:
    runs: dict[NodeId, list[str]] = {node: [] for node in a.nodes}
    for lb, ub, node in a.runs:
        runs[node].append(f"[{lb}, {ub})")
    return {
        node: "idle" if not own else own[0] if len(own) == 1 else f"{len(own)} runs"
        for node, own in runs.items()
    }


def _few(nodes: Sequence[NodeId]) -> str:
    shown = ", ".join(nodes[:8])
    return shown if len(nodes) <= 8 else f"{shown} and {len(nodes) - 8} more"
