"""What a deployment is: every option with its meaning, default and check, in this one place.

`Deployment` is the value; `DeployOptions` names the options for type checkers and editors; `described`
shows them in the `help()` of a function that takes them.
"""

from __future__ import annotations

import difflib
import inspect
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from meander.errors import InputError
from meander.operators.base import Operator, check_operator
from meander.planning.ahead.forecast import Forecast
from meander.protocol.settings import Settings
from meander.runtime.process.outputs import ROWS_MAX
from meander.runtime.process.spec import live_settings
from meander.runtime.wire.credentials import LOOPBACK
from meander.wiring import Planners

Tell = Callable[[str, Mapping[str, Any]], None]
"""Hears what happens: a word for it, and its facts."""


class DeployOptions(TypedDict, total=False):
    """The options of a deployment by name and type; `Deployment` says what each means."""

    checkpoint: str | Path | None
    checkpoint_s: float
    host: str
    policy: str
    forecast: Forecast | str | Path | None
    tau: Fraction | float
    settings: Settings | None
    registration_s_max: float
    zookeeper: str | None
    output_rows_max: int
    tls: bool | None
    insecure: bool
    tell: Tell | None


@dataclass(frozen=True)
class Deployment:
    """One operator, and how it shall run.

    Attributes:
        operator: what every node runs.
        tasks: m, the number of partitions of its keys; it cannot change later.
        nodes: how many to start with.
        checkpoint: a folder that all nodes and the driver can reach, as a path or a URI that Arrow
            knows (`file:`, `hdfs:`, `s3:`, …). If it holds a checkpoint, the operator goes on from
            there, with any number of nodes. With it a lost node costs nothing but time; without
            it the state of its tasks is lost, and said to be.
        checkpoint_s: how often what has changed is written there; what a micro-batch changed is
            written when it commits.
        host: the address that the master listens on; nodes listen on the one they reach it from.
        policy: which planner decides what moves.
        forecast: for the policy `mtm`: a file that `meander forecast` wrote.
        tau: how uneven the load may be.
        settings: of the protocol; None: those for real ground (`live_settings`).
        registration_s_max: how long to wait for the first nodes.
        zookeeper: `host:port[,…]`: put new tables up there instead of sending them to everybody.
        output_rows_max: rows of outputs that each task keeps until they are read; the oldest go then.
        tls: encrypt connections, with certificates on both sides; None: beyond loopback.
        insecure: listen beyond loopback without TLS; a warning says what that gives up.
        tell: hears what happens: losses, migrations.
    """

    operator: Operator[Any]
    tasks: int = 64
    nodes: int = 4
    checkpoint: str | Path | None = None
    checkpoint_s: float = 1.0
    host: str = LOOPBACK
    policy: str = "ssm"
    forecast: Forecast | str | Path | None = None
    tau: Fraction | float = Fraction(1, 5)
    settings: Settings | None = None
    registration_s_max: float = 120.0
    zookeeper: str | None = None
    output_rows_max: int = ROWS_MAX
    tls: bool | None = None
    insecure: bool = False
    tell: Tell | None = None
    planners: Planners = field(init=False, repr=False, compare=False)
    """Those that this deployment has, `mtm` among them if there is a forecast."""

    @classmethod
    def of(
        cls, operator: Operator[Any], tasks: int, nodes: int, options: Mapping[str, Any]
    ) -> Deployment:
        """Take the options of a caller.

        Raises:
            InputError: for an option that there is not, or a value that cannot be.
        """
        for name in options:
            if name not in OPTIONS:
                near = difflib.get_close_matches(name, OPTIONS, 1)
                raise InputError(
                    f"there is no option {name!r}"
                    + (f": did you mean {near[0]!r}?" if near else f": say {', '.join(OPTIONS)}")
                )
        return cls(operator, tasks, nodes, **options)

    def __post_init__(self) -> None:
        check_operator(self.operator)
        check_whole("tasks", self.tasks)
        check_whole("nodes", self.nodes, self.tasks)
        if self.checkpoint is not None:
            _check_kind("checkpoint", self.checkpoint, (str, os.PathLike), "a path or a URI")
        _check_seconds("checkpoint_s", self.checkpoint_s)
        _check_kind("host", self.host, str, "an address of this machine")
        _check_kind("policy", self.policy, str, "the name of a planner")
        if not _is_number(self.tau) or self.tau < 0:
            raise InputError(f"tau is a number from 0 on, not {self.tau!r}")
        _check_kind("settings", self.settings, (Settings, type(None)), "a Settings, or None")
        _check_seconds("registration_s_max", self.registration_s_max)
        _check_kind("zookeeper", self.zookeeper, (str, type(None)), "host:port[,…], or None")
        check_whole("output_rows_max", self.output_rows_max)
        _check_kind("tls", self.tls, (bool, type(None)), "True, False, or None")
        _check_kind("insecure", self.insecure, bool, "True or False")
        if self.tell is not None and not callable(self.tell):
            raise InputError(
                f"tell is a function of what happened and its facts, not {self.tell!r}"
            )
        forecast = self.forecast
        if isinstance(forecast, str | Path):
            forecast = Forecast.load(forecast)
        _check_kind("forecast", forecast, (Forecast, type(None)), "a file or a Forecast")
        planners = Planners(self.tasks, forecast, lambda: time.gmtime().tm_hour)
        planners.check(self.policy)
        object.__setattr__(self, "planners", planners)

    @property
    def folder(self) -> str | None:
        """Where checkpoints go, as a text."""
        return None if self.checkpoint is None else os.fspath(self.checkpoint)

    @property
    def unevenness(self) -> Fraction:
        """Tau as it was written: 0.2 is a fifth."""
        return self.tau if isinstance(self.tau, Fraction) else Fraction(str(self.tau))

    def protocol(self) -> Settings:
        """Give the settings of the protocol."""
        every_s = self.checkpoint_s if self.checkpoint else 0.0
        return self.settings or live_settings(self.tasks, checkpoint_s=every_s)


OPTIONS = tuple(DeployOptions.__annotations__)
"""Their names."""

F = TypeVar("F", bound=Callable[..., Any])


def described(function: F) -> F:
    """Show the options of a deployment in a function's signature and documentation."""
    plain = inspect.signature(function)
    own = [p for p in plain.parameters.values() if p.kind is not p.VAR_KEYWORD]
    defaults = {f.name: f.default for f in fields(Deployment)}
    kinds = DeployOptions.__annotations__
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name],
                          annotation=kinds[name].__forward_arg__)
        for name in OPTIONS
    ]  # fmt: skip
    function.__signature__ = plain.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
    meanings = inspect.cleandoc(Deployment.__doc__ or "").partition("Attributes:\n")[2]
    at = meanings.index("    checkpoint:")
    function.__doc__ = f"{inspect.getdoc(function)}\n\nOptions:\n{meanings[at:]}"
    return function


# --------------------------------------------------------------------------- checks


def check_whole(name: str, value: Any, most: int | None = None) -> None:
    """Refuse what is no whole number from 1 to a limit.

    Raises:
        InputError: saying what would be right.
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or value < 1 or (most is not None and value > most):
        span = "from 1 on" if most is None else f"from 1 to {most}"
        raise InputError(f"{name} is a whole number {span}, not {value!r}")


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def _check_seconds(name: str, value: Any) -> None:
    if not _is_number(value) or value <= 0:
        raise InputError(f"{name} is a number of seconds above 0, not {value!r}")


def _check_kind(name: str, value: Any, kind: Any, right: str) -> None:
    if not isinstance(value, kind):
        raise InputError(f"{name} is {right}, not {value!r}")
