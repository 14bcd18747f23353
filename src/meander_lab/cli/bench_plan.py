"""`meander bench plan`: `ssm` against the paper's algorithm and a MILP, on the same instances.

Times are kernel times: compiled code on arrays that are ready, called in a compiled loop, the
median of several batches. For ssm that is everything (feasibility, boundaries, matching), for the
paper's algorithm the table of Figure 7 alone, without trace-back; for the MILP it is HiGHS alone,
without building the program. `ssm_call_us` is the whole call from Python. Each side that ran must
give the same cost.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from meander.cli.compare import readable_time
from meander.cli.main import OK
from meander.cli.timing import median_s, medians_s
from meander.errors import TooLargeError
from meander.model import Problem
from meander.planning.instances import instance

TAUS = ("0.1", "0.2", "0.4", "1.2")
TAU_OF_MEANS = 0.4
"""Geometric means are taken over τ up to this: at 1.2 the problem nearly vanishes."""
MILP_S_MAX = 20.0
MILP_S_MAX_QUICK = 2.0
PAPER_STEPS_MAX = 10**9
"""The paper's algorithm does some 6·10⁷ steps a second: beyond this it would take minutes."""
BIG = 10**6


class Size(NamedTuple):
    """Tasks, nodes before, nodes after."""

    m: int
    n: int
    target: int


SIZES = (
    Size(64, 10, 8), Size(64, 16, 12), Size(1024, 64, 72),
    Size(10**4, 256, 300), Size(10**5, 1000, 1100), Size(10**6, 1000, 1100),
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander bench plan`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="m up to 1024, short MILP time limit")
    parser.add_argument(
        "--sizes", type=size, nargs="+", metavar="M,N,N2", help="other sizes, as 64,10,8"
    )


def size(text: str) -> Size:
    """Read a size such as 64,10,8."""
    parts = text.split(",")
    if len(parts) != 3 or not all(
        p.isascii() and p.isdigit() and 0 < int(p) <= 10**7 for p in parts
    ):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form M,N,N2 (such as 64,10,8)")
    m, n, target = map(int, parts)
    if max(n, target) > m:
        raise argparse.ArgumentTypeError(f"{text!r} has more nodes than tasks")
    return Size(m, n, target)


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    sizes = args.sizes or (s for s in SIZES if not args.quick or s.m <= 1024)
    limit, turns = (MILP_S_MAX_QUICK, 1) if args.quick else (MILP_S_MAX, 3)
    _warm()
    rows = []
    for m, n, target in sizes:
        for tau in TAUS:
            print(f"m = {m}, {n} → {target}, tau {tau} …", file=sys.stderr, flush=True)
            rows.append(measure(instance(m, n, target, tau), limit, turns))
    report = {"rows": rows, "summary": summarise(rows)}
    if args.json:
        print(json.dumps(report))
    else:
        show(report)
    return OK


def _warm() -> None:
    """Compile, or load from the cache, before anything is timed."""
    print("compiling kernels …", file=sys.stderr, flush=True)
    tiny = instance(16, 3, 4, "0.4")
    _ssm_kernel(tiny)(1)
    _paper_kernel(tiny)(1)


def measure(problem: Problem, milp_s_max: float, turns: int) -> dict[str, Any]:
    """Time every side on one instance and compare their costs."""
    from meander.planning.exact.ssm import ssm

    ssm_s, paper_s, paper_cost, paper_why = _time_kernels(problem, turns)
    ssm_cost, call_s = ssm(problem).cost, median_s(lambda: ssm(problem), 0.1 * turns)
    milp_s, milp_cost, milp_why = _time_milp(problem, milp_s_max)
    others = [cost for cost in (paper_cost, milp_cost) if cost is not None]
    return {
        "m": problem.workload.tasks,
        "n": len(problem.current.nodes),
        "target": problem.nodes,
        "tau": float(problem.tau),
        "ssm_us": ssm_s * 1e6,
        "paper_us": None if paper_s is None else paper_s * 1e6,
        "milp_us": None if milp_s is None else milp_s * 1e6,
        "speedup": None if paper_s is None else paper_s / ssm_s,
        "agree": all(cost == ssm_cost for cost in others) if others else None,
        "cost": ssm_cost,
        "cost_share": ssm_cost / problem.workload.total_size,
        "ssm_call_us": call_s * 1e6,
        "paper_reason": paper_why,
        "milp_reason": milp_why,
        "agree_reason": None if others else "no other side can run here",
    }


def _ssm_kernel(problem: Problem) -> Callable[[int], Any]:
    import numpy as np

    from meander.planning.exact.feasible import cap_of, memory_of
    from meander.planning.exact.match import run_bounds
    from meander.planning.kernels.layers import CELLS_MAX
    from meander.planning.kernels.repeat import repeat_ssm
    from meander.planning.kernels.ssm import LAYERS_MAX

    load = problem.workload
    ready = (
        load.work_prefix, load.size_prefix, cap_of(problem), memory_of(problem),
        run_bounds(problem.current), np.empty(0, dtype=np.int64), problem.nodes,
        CELLS_MAX, LAYERS_MAX,
    )  # fmt: skip
    return lambda count: repeat_ssm(count, *ready)


def _paper_kernel(problem: Problem) -> Callable[[int], Any]:
    from meander.planning.exact.feasible import cap_of, memory_of
    from meander.planning.exact.match import run_bounds
    from meander.planning.kernels.repeat import repeat_paper

    load = problem.workload
    ready = (
        load.size_prefix, load.work_prefix, run_bounds(problem.current),
        cap_of(problem), memory_of(problem), min(problem.nodes, load.tasks),
    )  # fmt: skip
    return lambda count: repeat_paper(count, *ready)


def _time_kernels(
    problem: Problem, turns: int
) -> tuple[float, float | None, int | None, str | None]:
    """Time ssm and the paper's algorithm in turns; give the paper's cost, or why it cannot run."""
    from meander.planning.rivals.paper import solve_figure7

    m, ours = problem.workload.tasks, _ssm_kernel(problem)
    if m * m * problem.nodes > PAPER_STEPS_MAX:
        why = f"the paper's algorithm takes m²·n′ = {m * m * problem.nodes:.0e} steps at m = {m:,}"
        return medians_s([ours], turns)[0], None, None, why
    ssm_s, paper_s = medians_s([ours, _paper_kernel(problem)], turns)
    return ssm_s, paper_s, problem.workload.total_size - solve_figure7(problem)[0], None


def _time_milp(
    problem: Problem, limit_s: float
) -> tuple[float | None, int | None, str | None]:  # fmt: skip
    from meander_lab.bench.milp import Milp

    try:
        program = Milp(problem)
    except TooLargeError as error:
        return None, None, str(error)
    start = time.perf_counter()
    cost = program.solve(limit_s)
    taken = time.perf_counter() - start
    if cost is None:
        return None, None, f"HiGHS did not finish within {limit_s:g} s"
    return taken, cost, None


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Give the geometric means of the speed-up per size, and what was promised about `ssm`."""
    means = []
    for m, n, target in dict.fromkeys((r["m"], r["n"], r["target"]) for r in rows):
        same = [r for r in rows if (r["m"], r["n"], r["target"]) == (m, n, target)]
        ratios = [r["speedup"] for r in same if r["speedup"] and r["tau"] <= TAU_OF_MEANS]
        means.append({
            "m": m, "n": n, "target": target, "speedup": _geometric_mean(ratios),
            "ssm_us_max": max(r["ssm_us"] for r in same),
        })  # fmt: skip
    small = [r["ssm_call_us"] for r in rows if r["m"] == 64]
    big = any(r["m"] == BIG for r in rows)
    return {
        "speedup_means": means,
        "speedup_over_tau_up_to": TAU_OF_MEANS,
        "ssm_call_us_max_at_m_64": max(small, default=None),
        "peak_mib_at_m_1000000": _peak_mib() if big else None,
        "all_agree": all(r["agree"] is not False for r in rows),
    }


def _geometric_mean(values: Iterable[float]) -> float | None:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else None


def _peak_mib() -> float | None:
    """Plan for a million tasks in a process of its own and ask what memory it took at most."""
    code = (
        "from meander.planning.instances import instance\n"
        "from meander.planning import plan\n"
        f"plan(instance({BIG}, 1000, 1100, '0.2'))\n"
        "print(next(l.split()[1] for l in open('/proc/self/status') if l.startswith('VmHWM')))"
    )
    try:
        answer = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        return int(answer.stdout) / 1024
    except (OSError, ValueError, subprocess.CalledProcessError):  # no /proc: not Linux
        return None


def show(report: dict[str, Any]) -> None:
    """Print a table, then the summary."""
    table = Table(box=None, pad_edge=False)
    for column in ("m", "n→n′", "tau", "moves", "ssm", "paper", "MILP", "paper/ssm", "agree"):
        table.add_column(column, justify="right", no_wrap=True)
    for r in report["rows"]:
        times = ("–" if r[k] is None else readable_time(r[k]) for k in ("paper_us", "milp_us"))
        speedup = "–" if r["speedup"] is None else f"{r['speedup']:,.0f}×"
        agree = "–" if r["agree"] is None else "yes" if r["agree"] else "NO"
        table.add_row(
            f"{r['m']:,}", f"{r['n']}→{r['target']}", f"{r['tau']:g}",
            f"{r['cost_share']:.1%}", readable_time(r["ssm_us"]), *times, speedup, agree,
        )  # fmt: skip
    console = Console(highlight=False)
    console.print(table)
    summary = report["summary"]
    for mean in summary["speedup_means"]:
        if mean["speedup"]:
            console.print(
                f"m = {mean['m']:,}, {mean['n']} → {mean['target']}: "
                f"{mean['speedup']:,.0f}× as fast as the paper's "
                f"(geometric mean, tau ≤ {TAU_OF_MEANS})"
            )
    if summary["ssm_call_us_max_at_m_64"]:
        call = summary["ssm_call_us_max_at_m_64"]
        console.print(f"a call from Python at m = 64 takes at most {call:.0f} µs")
    if summary["peak_mib_at_m_1000000"]:
        console.print(f"a million tasks: {summary['peak_mib_at_m_1000000']:,.0f} MiB at most")
    for why in dict.fromkeys(r[k] for r in report["rows"] for k in ("paper_reason", "milp_reason")):
        if why:
            console.print(f"– : {why}", soft_wrap=True)
