"""Where τ cannot be met: the same problem at the smallest τ that can. One way, for all planners."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from meander.errors import InfeasibleError
from meander.model import Plan, Problem


def relaxed(solve: Callable[[Problem], Plan], problem: Problem) -> Plan:
    """Solve a problem; if no assignment meets τ, at the smallest that is feasible, and note it.

    Raises:
        InfeasibleError: if no τ helps: the memory cap alone is too small.
    """
    try:
        return solve(problem)
    except InfeasibleError as error:
        if error.tau_min is None:
            raise
        found = solve(replace(problem, tau=error.tau_min))
        note = f"relaxed from tau {problem.tau} to {error.tau_min}: {error.why}"
        return replace(found, note=f"{note}; {found.note}" if found.note else note)
