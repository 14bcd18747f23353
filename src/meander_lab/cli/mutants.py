"""`meander mutants`: break the product in one place at a time, and see which checker notices.

Exit code 1 says that a mutant survived, or fell over without being caught.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import TYPE_CHECKING

from meander.cli.arguments import positive
from meander.cli.main import OK

if TYPE_CHECKING:
    from meander_lab.mutants.hunt import Catch
    from meander_lab.mutants.mutate import Mutant

SURVIVORS = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which mutants there are and what they are let loose on."""
    add = parser.add_argument
    add("--modules", metavar="NAMES", help="modules to break, with commas (the world's)")
    add("--count", type=positive, default=60, metavar="N", help="how many mutants (60)")
    add("--seed", type=int, default=1, metavar="N", help="which mutants are drawn (1)")
    add("--only", metavar="MODULE#N", help="one mutant: its module and its number in --json")
    add("--seeds", type=positive, default=300, metavar="N", help="schedules for each (300)")
    add("--first-seed", type=int, default=0, metavar="N", help="the first of them (0)")
    add("--nodes", type=positive, default=3, metavar="N", help="nodes at the start (3)")
    add("--tasks", type=positive, default=8, metavar="M", help="tasks of the operator (8)")
    add("--seconds", type=float, default=2.0, metavar="S", help="virtual seconds of faults (2)")
    add("--world", choices=("protocol", "full"), default="protocol", help="which simulator")
    add("--trial", default="", metavar="NAME", help="the full world's operator (drawn)")
    add("--faults", metavar="NAMES", help="what may go wrong, with commas (all)")
    add("--json", action="store_true", help="answer in JSON, one mutant a line")
    add("--list", action="store_true", help="only say which mutants these are")


def run(args: argparse.Namespace) -> int:
    """Hunt mutants."""
    from meander.testing.faults import parse_faults
    from meander_lab.mutants.hunt import CAUGHT, HuntScope, hunt

    mutants = _drawn(args)
    if args.list:
        for mutant in mutants:
            print(mutant)
        return OK
    faults = parse_faults(args.faults, args.world) if args.faults else ()
    scope = HuntScope(
        args.seeds, args.nodes, args.tasks, args.seconds, args.world, args.first_seed, args.trial,
        tuple(faults),
    )  # fmt: skip
    counts: Counter[str] = Counter()
    for catch in hunt(mutants, scope):
        counts[catch.status] += 1
        print(json.dumps(catch.as_dict()) if args.json else _line(catch), flush=True)
    if not args.json:
        print(", ".join(f"{count} {status}" for status, count in sorted(counts.items())))
    return OK if set(counts) <= {CAUGHT} else SURVIVORS


def _drawn(args: argparse.Namespace) -> list[Mutant]:
    from meander_lab.mutants.mutate import MODULES, draw, mutants_of

    if args.only:
        module, _, number = args.only.partition("#")
        return [mutant for mutant in mutants_of(module) if str(mutant.number) == number]
    names = args.modules.split(",") if args.modules else MODULES[args.world]
    return draw(names, args.count, args.seed)


def _line(catch: Catch) -> str:
    if catch.by:
        return f"{catch.status} after {catch.seeds} by {catch.by}: {catch.mutant}"
    return f"{catch.status} ({catch.seeds} seeds): {catch.mutant} {catch.text}"
