"""A node's answers on Flight: requests run their scripts in Flight's threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyarrow import flight

from meander.runtime.clients.carrier import StepRunner
from meander.runtime.process.script import Ask, FetchRows, run
from meander.runtime.roles.answers import Answer, NodeAnswers
from meander.runtime.wire.transport import Transport


def serve(answers: NodeAnswers, transport: Transport) -> None:
    """Have a transport answer requests from now on."""
    for name, answer in answers.facts.items():
        transport.actions[name] = _facts(answer)
    for name, answer in answers.tables.items():
        transport.answers[name] = _rows(answer)


def _facts(answer: Answer) -> Callable[[Mapping[str, Any]], Any]:
    return lambda fields: run(answer(fields), _carry_out)


def _rows(answer: Answer) -> Callable[[Mapping[str, Any]], flight.RecordBatchStream]:
    return lambda fields: flight.RecordBatchStream(run(answer(fields), _carry_out))


def _nobody(step: Ask | FetchRows) -> Any:
    raise AssertionError(f"an answer of a node asks others: {step}")


_carry_out = StepRunner(_nobody, _nobody)
