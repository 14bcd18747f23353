"""`meander plan`: decide which tasks move, for one problem or for JSON lines of them.

With `--nodes`: what a rescale of a deployment that runs would do.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from rich.console import Console

from meander.cli import answers, reading
from meander.cli.arguments import add_limits, limits_of
from meander.cli.main import INFEASIBLE, OK, WRONG, complain
from meander.cli.outside import ask
from meander.cli.rescale import add_wish, preview, wish_of
from meander.errors import DeadlockError, InfeasibleError, InputError, TooLargeError
from meander.model import Plan, Problem
from meander.planning import POLICIES, plan
from meander.planning.exact.rounds import RoundLimits, rounds
from meander.runtime.store.forecast_file import read_forecast
from meander.show.plots import plot_curve, plot_front, plot_path, plot_plan

if TYPE_CHECKING:
    from meander.planning.ahead.forecast import Forecast


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander plan`."""
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="a problem as JSON; - is standard input. With "
        "--nodes: the address of a deployment, as `meander ls` has it",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="answer in JSON, one line per problem")
    parser.add_argument(
        "--policy", choices=POLICIES, metavar="NAME",
        help=f"one of {', '.join(POLICIES)} (default: ssm, or the deployment's own)",
    )  # fmt: skip
    add_wish(parser.add_argument_group("a deployment that runs", "what a rescale of it would do"))
    group = parser.add_argument_group("policy mtm", "plan with the future in mind")
    group.add_argument("--forecast", metavar="FILE", help="by meander forecast; implies the policy")
    group.add_argument("--label", help="of this migration, as 12:up or 12:06-09 (default: by n)")
    parser.add_argument(
        "--relax", action="store_true", help="solve an infeasible problem at the smallest tau"
    )
    add_limits(parser)
    parser.add_argument(
        "--pareto", action="store_true", help="show the least cost for every tau instead of a plan"
    )
    parser.add_argument(
        "--curve", action="store_true", help="show the least cost for every number of nodes instead of "
        "a plan, where a node may have as much as in this problem",
    )  # fmt: skip
    parser.add_argument(
        "--plot", type=plot_path, metavar="FILE", help="draw to a .png or .svg file"
    )
    parser.epilog = (
        'A problem: {"work": [1, 1, 2], "size": [5, 5, 9], "current": {"n1": [0, 3]}, "nodes": 2, '
        '"tau": 0.4}. Intervals are [lb, ub), tasks count from 0. With --json, "target" holds one '
        "[lb, ub] per node, or a list of them where a node holds several runs. "
        "Exit code 2: wrong input; 3: no solution. For a deployment that runs: meander plan [ADDRESS] "
        "--nodes N."
    )


def run(args: argparse.Namespace) -> int:
    """Answer every problem of the input, or ask a deployment."""
    limits = limits_of(args)
    if args.nodes is not None:
        return ask_deployment(args)
    if args.file is None or args.pause_ms is not None or args.within_s is not None:
        raise InputError("give the file of a problem, or --nodes N for a deployment that runs")
    args.policy = args.policy or "ssm"
    if (args.pareto or args.curve) and args.policy != "ssm":
        raise InputError("--pareto and --curve are of ssm: they go with no other --policy")
    if args.pareto and args.curve:
        raise InputError(
            "--pareto is for every tau, --curve for every number of nodes: ask for one"
        )
    entries: Iterable[reading.ProblemEntry] = reading.read(args.file)
    if args.plot:
        entries = _exactly_one(entries)
    count, wrong, code = 0, list[str](), OK
    for entry in entries:
        count += 1
        try:
            if entry.problem is None:
                raise InputError(entry.error)
            code = answer(entry.problem, args, limits)
        except (InputError, TooLargeError) as error:
            wrong.append(f"line {entry.line}: {error}")
            if args.json:
                say({"error": str(error), "line": entry.line}, "", True)
            else:
                complain(wrong[-1])
    if wrong and args.json:  # for people; who reads the answers has been told
        more = f" ({len(wrong)} of {count} problems are wrong; this is the first)"
        complain(wrong[0] + (more if len(wrong) > 1 else ""))
    if wrong:
        return WRONG
    return code if count == 1 else OK


def ask_deployment(args: argparse.Namespace) -> int:
    """Tell what a rescale of a deployment that runs would do."""
    told = ask(args.file, "plan", wish_of(args))
    print(answers.to_line(told) if args.json else preview(told))
    return OK


def _exactly_one(entries: Iterable[reading.ProblemEntry]) -> list[reading.ProblemEntry]:
    found = list(entries)
    if len(found) != 1:
        raise InputError(f"--plot draws one problem, but the input holds {len(found)}")
    return found


def answer(problem: Problem, args: argparse.Namespace, limits: RoundLimits) -> int:
    """Answer one problem on standard output."""
    try:
        if args.pareto:
            show_front(problem, args)
            return OK
        if args.curve:
            show_curve(problem, args)
            return OK
        found = find(problem, args)
        steps = rounds(found, limits)
    except (InfeasibleError, DeadlockError) as error:
        say(answers.of_failure(error), f"infeasible: {error}", args.json)
        return INFEASIBLE
    if args.json:
        say(answers.of_plan(found, steps, limits.pause), "", True)
    else:
        from meander.show.picture import show_plan

        show_plan(Console(highlight=False), found, steps, limits.pause)
    if args.plot:
        plot_plan(found, args.plot)
    return OK


def find(problem: Problem, args: argparse.Namespace) -> Plan:
    """Plan by the named policy, or with a forecast."""
    if args.forecast is None:
        return plan(problem, args.policy, relax=args.relax)
    from meander.planning.ahead.policy import plan_ahead

    return plan_ahead(problem, _forecast(args.forecast), args.label, relax=args.relax)


@cache
def _forecast(path: str) -> Forecast:
    """Read a forecast once, for many problems."""
    return read_forecast(path)


def show_front(problem: Problem, args: argparse.Namespace) -> None:
    """Print, and plot, the least cost for every τ."""
    from meander.planning.exact.pareto import pareto

    total = problem.workload.total_size
    points: list[dict[str, Any]] = [
        {
            "tau": answers.rounded_up(point.tau),
            "tau_exact": str(point.tau),
            "cap": point.max_load,
            "cost": point.cost,
            "cost_share": point.cost / total if total else 0.0,
        }
        for point in pareto(problem)
    ]
    if args.json:
        say({"feasible": True, "pareto": points}, "", True)
    else:
        from meander.show.picture import front_table

        Console(highlight=False).print(front_table(points, problem))
    if args.plot:
        plot_front([(p["tau"], p["cost_share"]) for p in points], float(problem.tau), args.plot)


def show_curve(problem: Problem, args: argparse.Namespace) -> None:
    """Print, and plot, the least cost for every number of nodes."""
    from meander.planning.exact.curve import node_curve

    total = problem.workload.total_size
    points: list[dict[str, Any]] = [
        {"nodes": nodes, "cost": cost, "cost_share": cost / total if total else 0.0}
        for nodes, cost in node_curve(problem).items()
    ]
    if args.json:
        say({"feasible": True, "cap": problem.cap, "curve": points}, "", True)
    else:
        from meander.show.picture import curve_table

        Console(highlight=False).print(curve_table(points, problem))
    if args.plot:
        plot_curve([(p["nodes"], p["cost_share"]) for p in points], problem.nodes, args.plot)


def say(data: dict[str, object], text: str, as_json: bool) -> None:
    """Print one answer at once: somebody may be waiting for it."""
    print(answers.to_line(data) if as_json else text, flush=True)
