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
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from fractions import Fraction
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from meander.autoscale.options import Autoscale
from meander.errors import InputError
from meander.operators import letters
from meander.operators.base import Operator
from meander.operators.collecting import collecting
from meander.operators.topology import Topology, check_deployable
from meander.planning.ahead.forecast import Forecast
from meander.planning.ahead.learner import DAY_S
from meander.protocol.master.groups import Groups, Wanted
from meander.protocol.settings import Settings
from meander.runtime.driver.extras import load_page
from meander.runtime.process.outputs import ROWS_MAX
from meander.runtime.process.spec import live_settings
from meander.runtime.store.forecast_file import read_forecast
from meander.runtime.wire.credentials import LOOPBACK
from meander.wiring import Planners

LANE_CHUNKS = 4
"""A task of a topology takes no more rows when it has sent so many chunks, for each task that there is,
which are not durable."""

Tell = Callable[[str, Mapping[str, Any]], None]
"""Hears what happens: a word for it, and its facts."""
TOKEN_CHARACTERS_MIN = 16
"""Of a dashboard's token: fewer can be guessed."""


class DeployOptions(TypedDict, total=False):
    """The options of a deployment by name and type; `Deployment` says what each means."""

    checkpoint: str | Path | None
    checkpoint_s: float
    host: str
    policy: str
    forecast: Forecast | str | Path | None
    slot_s: float
    tau: Fraction | float
    settings: Settings | None
    registration_s_max: float
    zookeeper: str | None
    output_rows_max: int
    tls: bool | None
    insecure: bool
    autoscale: Autoscale | None
    tell: Tell | None
    dashboard: bool | Dashboard
    initial_state: Any
    initial_watermark: datetime | None
    on_error: str


@dataclass(frozen=True)
class Dashboard:
    """The page of a deployment: where it is, and what whoever has its link may do there.

    >>> Dashboard(port=8787, rescale=True)
    Dashboard(port=8787, rescale=True, state=False)

    Attributes:
        port: on 127.0.0.1; 0: one that is free.
        rescale: whether the page offers to rescale.
        state: whether the page shows states by their key.
        token: what the first link holds, without space around it; None: a new one for every
            deployment.
    """

    port: int = 0
    rescale: bool = False
    state: bool = False
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        whole = isinstance(self.port, int) and not isinstance(self.port, bool)
        if not whole or not 0 <= self.port < 2**16:
            raise InputError(f"port is a number from 0 to 65535, not {self.port!r}")
        if self.token is None:
            return
        token = self.token.strip()  # a file that one is read from ends with a line's end
        object.__setattr__(self, "token", token)
        if len(token) < TOKEN_CHARACTERS_MIN:
            raise InputError(f"a token has at least {TOKEN_CHARACTERS_MIN} characters")
        if not (token.isascii() and token.isprintable()):
            raise InputError("a token has printable ASCII characters alone: no header takes others")


@dataclass(frozen=True)
class Deployment:
    """One operator, or a topology of several, and how they shall run.

    Attributes:
        operator: what every node runs.
        tasks: m, the number of partitions of its keys; it cannot change later. A topology says it
            itself.
        nodes: how many to start with; of a topology with groups, shared out by tasks, or by group.
        checkpoint: a folder that all nodes and the driver can reach, as a path or a URI that Arrow
            knows (`file:`, `hdfs:`, `s3:`, …). If it holds a checkpoint, the operator goes on from
            there, with any number of nodes. With it a lost node costs nothing but time; without
            it the state of its tasks is lost, and said to be.
        checkpoint_s: how often what has changed is written there; what a micro-batch changed is
            written when it commits.
        host: the address that the master listens on; nodes listen on the one they reach it from.
        policy: which planner decides what moves: `ssm`, the cheapest next migration; `ahead`, which
            learns from this deployment's days and plans for those to come; `mtm`, or a rival's.
        forecast: for the policy `mtm`: a file that `meander forecast` wrote.
        slot_s: for the policy `ahead`: how long the slots are that it learns by; a day has a whole
            number of them.
        tau: how uneven the load may be.
        settings: of the protocol; None: those for real ground (`live_settings`).
        registration_s_max: how long to wait for the first nodes.
        zookeeper: `host:port[,…]`: put new tables up there instead of sending them to everybody.
        output_rows_max: rows of outputs that each task keeps until they are read; the oldest go then.
        tls: encrypt connections, with certificates on both sides; None: beyond loopback.
        insecure: listen beyond loopback without TLS; a warning says what that gives up.
        autoscale: rescale by itself, within these limits; None: when somebody says so.
        tell: hears what happens: losses, migrations, what the autoscaler decides.
        dashboard: a page to watch it, on this machine only; its address is printed. A `Dashboard`
            says more. It needs `meander[dashboard]`.
        initial_state: rows of a state to begin with: the keys, and columns as `state()` shows them or
            as the operator's `adopted_schema` has them. An Arrow table; on Spark also a DataFrame,
            which its tasks read. A checkpoint that is there already goes before it.
        initial_watermark: the event time up to which that state has seen everything, with a zone.
        on_error: "raise" ends everything when an operator raises; "collect" sets the rows aside that
            make it raise: they come out with the columns `error` and `error_row`, which the output
            has then, and what they did is undone (`operators.collecting` has the price).
    """

    operator: Operator[Any] | Topology
    tasks: int = 64
    nodes: int | Mapping[str, int] = 4
    checkpoint: str | Path | None = None
    checkpoint_s: float = 1.0
    host: str = LOOPBACK
    policy: str = "ssm"
    forecast: Forecast | str | Path | None = None
    slot_s: float = 3600.0
    tau: Fraction | float = Fraction(1, 5)
    settings: Settings | None = None
    registration_s_max: float = 120.0
    zookeeper: str | None = None
    output_rows_max: int = ROWS_MAX
    tls: bool | None = None
    insecure: bool = False
    autoscale: Autoscale | None = None
    tell: Tell | None = None
    dashboard: bool | Dashboard = False
    initial_state: Any = None
    initial_watermark: datetime | None = None
    on_error: str = "raise"
    planners: Planners = field(init=False, repr=False, compare=False)
    """Those that this deployment has, `mtm` among them if there is a forecast."""
    topology: Topology = field(init=False, repr=False, compare=False)
    """Of one operator, or as it was given."""
    groups: Groups = field(init=False, repr=False, compare=False)
    """Which operators have nodes of their own."""
    wanted: Wanted = field(init=False, repr=False, compare=False)
    """How many nodes each group has to start with; `nodes` is their sum."""

    @classmethod
    def of(
        cls,
        operator: Operator[Any] | Topology,
        tasks: int,
        nodes: int | Mapping[str, int],
        options: Mapping[str, Any],
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
        check_deployable(self.operator)
        check_whole("tasks", self.tasks)
        if self.on_error not in letters.MODES:
            known = " or ".join(map(repr, letters.MODES))
            raise InputError(f"on_error is {known}, not {self.on_error!r}")
        if self.on_error == "collect":
            object.__setattr__(self, "operator", _collecting(self.operator))
        topology = Topology.of(self.operator, self.tasks)
        object.__setattr__(self, "topology", topology)
        object.__setattr__(self, "tasks", topology.tasks_in_all)
        self._place(topology)
        if self.checkpoint is not None:
            _check_kind("checkpoint", self.checkpoint, (str, os.PathLike), "a path or a URI")
        _check_seconds("checkpoint_s", self.checkpoint_s)
        _check_host(self.host)
        _check_kind("policy", self.policy, str, "the name of a planner")
        if not _is_number(self.tau) or self.tau < 0:
            raise InputError(f"tau is a number from 0 on, not {self.tau!r}")
        _check_kind("settings", self.settings, (Settings, type(None)), "a Settings, or None")
        _check_seconds("registration_s_max", self.registration_s_max)
        _check_kind("zookeeper", self.zookeeper, (str, type(None)), "host:port[,…], or None")
        check_whole("output_rows_max", self.output_rows_max)
        _check_kind("tls", self.tls, (bool, type(None)), "True, False, or None")
        _check_kind("insecure", self.insecure, bool, "True or False")
        if self.autoscale is not None:
            self.check_autoscale(self.autoscale)
        if self.tell is not None and not callable(self.tell):
            raise InputError(
                f"tell is a function of what happened and its facts, not {self.tell!r}"
            )
        _check_kind("dashboard", self.dashboard, (bool, Dashboard), "True, False, or a Dashboard")
        if self.dashboard:
            load_page()
        if self.initial_state is not None:
            _check_initial(topology)
        mark = self.initial_watermark
        if mark is not None and (not isinstance(mark, datetime) or mark.tzinfo is None):
            raise InputError(f"initial_watermark is a datetime with a zone, not {mark!r}")
        forecast = self.forecast
        if isinstance(forecast, str | Path):
            forecast = read_forecast(forecast)
        _check_kind("forecast", forecast, (Forecast, type(None)), "a file or a Forecast")
        _check_slot(self.slot_s)
        planners = Planners(
            self.tasks, forecast, lambda: time.gmtime().tm_hour, topology.ends,
            together=topology.together, slot_s=self.slot_s, tau=self.unevenness,
        )  # fmt: skip
        planners.check(self.policy)
        object.__setattr__(self, "planners", planners)

    def _place(self, topology: Topology) -> None:
        """Tell which operators have nodes of their own, and how many each group begins with."""
        groups, nodes = Groups(topology.ends, topology.group_numbers, topology.together), self.nodes
        if isinstance(nodes, Mapping):
            wanted = check_groups(groups, nodes)
            if missing := [name for name in groups.operators if name not in wanted]:
                raise InputError(f"nodes says nothing of {missing[0]!r}: each group needs some")
        else:
            check_whole("nodes", nodes, self.tasks)
            groups.check(nodes)
            wanted = groups.shared(nodes, [1] * self.tasks)
        object.__setattr__(self, "groups", groups)
        object.__setattr__(self, "wanted", wanted)
        object.__setattr__(self, "nodes", sum(wanted.values()))

    @property
    def folder(self) -> str | None:
        """Where checkpoints go, as a text."""
        return None if self.checkpoint is None else os.fspath(self.checkpoint)

    def check_autoscale(self, options: Autoscale) -> None:
        """Refuse limits that cannot be, and groups: it knows of one load.

        Raises:
            InputError: saying why.
        """
        _check_kind("autoscale", options, (Autoscale,), "an Autoscale, or None")
        options.check_tasks(self.tasks)
        if self.groups.several:
            raise InputError("a topology with groups is not autoscaled: rescale each as it needs")

    @property
    def unevenness(self) -> Fraction:
        """Tau as it was written: 0.2 is a fifth."""
        return self.tau if isinstance(self.tau, Fraction) else Fraction(str(self.tau))

    def protocol(self) -> Settings:
        """Give the settings of the protocol."""
        every_s = self.checkpoint_s if self.checkpoint else 0.0
        if self.settings is not None:
            return self.settings
        found = live_settings(self.tasks, checkpoint_s=every_s)
        if self.topology.edges:  # what one chunk makes may go to every task of another operator
            most = max(found.loop_chunks_max, LANE_CHUNKS * self.tasks)
            found = replace(found, loop_chunks_max=most)
        return found


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


def check_groups(groups: Groups, nodes: Mapping[str, int]) -> Wanted:
    """Refuse numbers of nodes for groups that there are not, or that cannot have so many.

    Raises:
        InputError: saying what would be right.
    """
    for group, count in nodes.items():
        if not groups.several or group not in groups.operators:
            known = ", ".join(groups.operators) if groups.several else "none"
            raise InputError(f"there is no group {group!r}: there are {known}")
        check_whole(f"nodes of {group}", count, groups.tasks_of(group))
    return {group: int(count) for group, count in nodes.items()}


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def _check_seconds(name: str, value: Any) -> None:
    if not _is_number(value) or value <= 0:
        raise InputError(f"{name} is a number of seconds above 0, not {value!r}")


def _check_slot(slot_s: Any) -> None:
    _check_seconds("slot_s", slot_s)
    if slot_s > DAY_S or DAY_S % slot_s:
        raise InputError(f"slot_s divides a day of {DAY_S} s, as 3600 does, not {slot_s!r}")


def _collecting(operator: Operator[Any] | Topology) -> Operator[Any] | Topology:
    """Have rows set aside, whichever operator they make raise."""
    if isinstance(operator, Topology):
        found = operator.operators.items()
        return replace(operator, operators={name: collecting(one) for name, one in found})
    return collecting(operator)


def _check_initial(topology: Topology) -> None:
    if len(topology.parts) > 1:
        raise InputError("a topology takes no initial state: which of its operators would?")
    operator = topology.parts[0].operator
    if operator.adopted_schema is None:
        raise InputError(f"{operator.name} takes no initial state: it has no adopted_schema")


def _check_host(host: Any) -> None:
    what = "an address of this machine"
    _check_kind("host", host, str, what)
    if host in ("", "0", "0.0.0.0", "::", "[::]"):
        raise InputError(
            f"host is {what} that all processes reach, for example its own one in the cluster's "
            f"network, not {host!r}, which is told to them and says nothing"
        )
    if ":" in host:
        raise InputError(
            f"host is {what}, a name or an IPv4 address without a port, not {host!r}: for this "
            "machine alone it is 127.0.0.1"
        )


def _check_kind(name: str, value: Any, kind: Any, right: str) -> None:
    if not isinstance(value, kind):
        raise InputError(f"{name} is {right}, not {value!r}")
