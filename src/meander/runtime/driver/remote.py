"""What a deployment does for whoever has its credentials, from outside (status, plan, rescale, stop …).

They are answered where the driver answers everything else, on Flight (`service`), and carried out by
the object that users hold: what holds for the program, holds here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from pyarrow import flight

from meander.errors import InputError, MeanderError
from meander.runtime.driver.look import Look, look
from meander.runtime.driver.totals import MEASURES

if TYPE_CHECKING:
    from meander.runtime.driver.elastic import ElasticOperator

BY = "the command line"


def open_remote(op: ElasticOperator) -> None:
    """Answer from now on."""
    answers: dict[str, Callable[[ElasticOperator, Mapping[str, Any]], Any]] = {
        "status": status, "plan": plan, "rescale": rescale, "vacate": vacate,
        "migration": migration, "end": end,
    }  # fmt: skip
    assert op.driver.transport is not None
    for name, answer in answers.items():
        op.driver.transport.actions[name] = partial(_answered, answer, op)


def _answered(
    answer: Callable[[ElasticOperator, Mapping[str, Any]], Any],
    op: ElasticOperator,
    fields: Mapping[str, Any],
) -> Any:
    try:
        return answer(op, fields)
    except (MeanderError, KeyError, TypeError, ValueError) as error:
        raise flight.FlightServerError(str(error)) from None


def status(op: ElasticOperator, _: Mapping[str, Any]) -> dict[str, Any]:
    """Tell where things stand, with the load of every node."""
    driver = op.driver
    found: Look = driver.ask(look)
    work, sizes, counts = (
        found.by_node(amounts) for amounts in (found.work, found.sizes, (1,) * found.tasks)
    )
    told, metrics = op.status(), op.metrics()
    return {
        **told,
        "operator": driver.operator.name, "run": driver.run, "tasks": driver.tasks,
        "policy": driver.core.policy, "generation": driver.generation,
        "nodes": [
            {"node": n.name, "host": n.host, "status": n.status, "tasks": counts.get(n.name, 0),
             "work": work.get(n.name, 0), "bytes": sizes.get(n.name, 0)}
            for n in found.nodes
        ],
        "saved_s": found.saved_s,
        "metrics": {name: metrics[name] for name in MEASURES},
    }  # fmt: skip


def plan(op: ElasticOperator, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Tell what a rescale would do."""
    found = op.plan(**{name: value for name, value in fields.items() if value is not None})
    return {
        "nodes": found.plan.problem.nodes, "policy": found.plan.policy,
        "moves": len(found.moves), "tasks": found.plan.problem.workload.tasks,
        "bytes": found.bytes_moved, "state_bytes": found.plan.problem.workload.total_size,
        "rounds": found.rounds, "pause_s": found.pause_s, "duration_s": found.duration_s,
        "too_large": len(found.too_large), "conflict": found.conflict,
        "optimal": found.plan.optimal, "note": found.plan.note,
    }  # fmt: skip


def rescale(op: ElasticOperator, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Head for another number of nodes."""
    return {"migration": op.rescale(**_wanted(fields)).number}


def vacate(op: ElasticOperator, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Have nodes leave."""
    return {"migration": op.vacate(**_wanted(fields)).number}


def migration(op: ElasticOperator, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Tell what became of a rescale by the number it began with: others may carry it on.

    Raises:
        InputError: if nobody has asked for it.
    """
    number = int(fields["number"])
    found = op.driver.core.rescales.of(number)
    if found is None:
        raise InputError(f"nobody has asked for migration {number}")
    over = found.over  # first: then the rest is the last word
    error, facts = found.error, found.facts if over else None
    told = None if error is None else str(error)
    return {"over": over, "stage": found.stage, "error": told, "facts": facts}


def _wanted(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"by": BY, **{name: value for name, value in fields.items() if value is not None}}


def end(op: ElasticOperator, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Stop the deployment, once this is answered."""
    op.driver.check()
    op.driver.aside(partial(op.stop, float(fields.get("drain_s_max", 5.0))))
    return {}
