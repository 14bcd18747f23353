"""What runs inside a launched process: a node, a state server, a feeder, a writer of a sink.

Each entry point takes a spec and gives a `ProcessExit`; it raises nothing for what the world can do
(no master, a wrong token, an operator that fails), so that whoever launched it need not tell a
failure of the machine room from one of the program. In order:

  1. warm up: imports and kernels, so that no tuple pays for them;
  2. find the own address (that of a connection to the master), listen, keep the socket;
  3. register, serve, until the machine ends, the driver is gone, or somebody sends stop.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from meander.errors import EndedError, ModuleMissingError, OperatorError
from meander.operators.base import Operator
from meander.operators.topology import Topology, check_deployable
from meander.runtime.process.source import SourceShare
from meander.runtime.process.spec import ProcessExit, ProcessSpec, Reason
from meander.runtime.process.warm import calm_grpc, settle_heap, warm_up
from meander.runtime.roles.answers import NodeAnswers
from meander.runtime.roles.assembly import make_node, make_server
from meander.runtime.roles.host import ProcessHost
from meander.runtime.roles.node_service import serve
from meander.runtime.roles.partition_feeds import PartitionFeeds
from meander.runtime.roles.sinking import write_outputs
from meander.runtime.store.answering import DurableStore
from meander.runtime.store.durable import FileStore, NoStore, StoreWorker
from meander.runtime.store.spill import DiskSpill
from meander.runtime.wire.credentials import LOOPBACK

log = logging.getLogger(__name__)
D = TypeVar("D", bound=Operator[Any] | Topology)

TRACE_CHARS_MAX = 8000
REACH_S_MAX = 10.0
"""How long one try to reach the master may take …"""
REACH_AGAIN_S = 0.5
"""… and how long after it the next one begins."""


# --------------------------------------------------------------------------- entry points


def run_node(spec: ProcessSpec, gone: Callable[[], bool] = lambda: False) -> ProcessExit:
    """Be a node until dismissed; `gone` says that whoever launched us is no more."""

    def body() -> tuple[Reason, str]:
        operator, host = load_operator(spec.operator), local_host(spec)
        parts = make_node(spec, operator, host, StoreWorker(_store(spec)))
        place = ProcessHost(parts.common, host)
        answers = NodeAnswers(parts, place.transport)
        serve(answers, place.transport)
        _announce(place)
        try:
            return place.serve(gone)
        finally:
            facts.update(metrics=answers.measured())
            trace = parts.adapter.work.trace
            if trace.chunks_max:
                facts.update(trace.last_words())
            close_operator(operator)

    facts = dict[str, Any]()
    return _guarded(spec, body, facts)


def _announce(place: ProcessHost) -> None:
    """Have a node that is sent SIGTERM say that it is taken away, rather than end at once."""

    def hear(_: int, __: Any) -> None:
        place.noticed = True

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, hear)


def run_server(spec: ProcessSpec, gone: Callable[[], bool] = lambda: False) -> ProcessExit:
    """Be the state server of a host until nobody needs it."""

    def body() -> tuple[Reason, str]:
        spill = DiskSpill(spec.settings.spill_bytes_max)
        return ProcessHost(make_server(spec, instance(spec), spill), local_host(spec)).serve(gone)

    return _guarded(spec, body)


def run_feeder(spec: ProcessSpec, gone: Callable[[], bool] = lambda: False) -> ProcessExit:
    """Feed the partitions of a source that are this process's, to their end."""

    def body() -> tuple[Reason, str]:
        source, options = pickle.loads(spec.source)
        return PartitionFeeds(
            SourceShare.parse(source),
            spec,
            lambda: load_operator(spec.operator),
            close_operator,
            {"host": local_host(spec), **options},
        ).run(gone)

    return _guarded(spec, body)


def run_sink(spec: ProcessSpec, gone: Callable[[], bool] = lambda: False) -> ProcessExit:
    """Write outputs to a sink until told to end."""
    return _guarded(spec, lambda: write_outputs(pickle.loads(spec.source), spec, gone))


def _guarded(
    spec: ProcessSpec,
    body: Callable[[], tuple[Reason, str]],
    facts: Mapping[str, Any] | None = None,
) -> ProcessExit:
    """Turn whatever happens into an exit; `facts` are read at the end."""
    trace = ""
    try:
        calm_grpc()
        warm_up()
        settle_heap()
        reason, detail = body()
    except OperatorError as error:
        reason, detail, trace = Reason.OPERATOR_FAILED, str(error), traceback.format_exc()
    except ModuleMissingError as error:
        reason, detail = Reason.MODULE_MISSING, error.module
    except EndedError as ended:
        reason, detail, trace = Reason(ended.reason), ended.detail, ended.trace
    except ConnectionError as error:
        reason, detail = Reason.DRIVER_LOST, str(error)
    except Exception as error:
        reason, detail = Reason.CRASHED, f"{type(error).__name__}: {error}"
        trace = traceback.format_exc()
    return ProcessExit(
        spec.kind, spec.name, spec.incarnation, reason, detail, trace[-TRACE_CHARS_MAX:],
        {"pid": os.getpid(), **(facts or {})},
    )  # fmt: skip


def load_operator(pickled: bytes) -> Operator[Any] | Topology:
    """Unpickle an operator that came on a trusted channel, and prepare it.

    Raises:
        ModuleMissingError: if this process lacks a module that it is made of.
        OperatorError: saying what is wrong with it.
    """
    try:
        found: Operator[Any] | Topology = pickle.loads(pickled)
        return opened(found)
    except ModuleNotFoundError as error:
        raise ModuleMissingError(error.name or str(error)) from error
    except OperatorError:
        raise
    except Exception as error:
        raise _not_made(error) from error


def opened(operator: D) -> D:
    """Prepare an operator, or several, for work in this process.

    Raises:
        ModuleNotFoundError: if this process lacks a module that it needs.
        OperatorError: saying what is wrong with it.
    """
    try:
        check_deployable(operator)
        operator.open()
    except ModuleNotFoundError:
        raise
    except Exception as error:
        raise _not_made(error) from error
    return operator


def _not_made(error: Exception) -> OperatorError:
    why = f"it cannot be made in this process: {type(error).__name__}: {error}"
    return OperatorError("the operator", 0, (0, 1), why)


def close_operator(operator: Operator[Any] | Topology) -> None:
    """Have an operator undo what it did to open; the process ends, whatever it says to that."""
    try:
        operator.close()
    except Exception:
        log.warning("%s raised when it was closed", operator.name, exc_info=True)


def instance(spec: ProcessSpec) -> str:
    """Name a process unlike any other."""
    return f"{spec.name}/{spec.generation}/{spec.incarnation}/{os.getpid()}/{time.time_ns()}"


def local_host(spec: ProcessSpec) -> str:
    """Tell which address to listen on: the one from which the master is reached.

    Raises:
        ConnectionError: if it cannot be reached.
    """
    if spec.host:
        return spec.host
    host, port = spec.master.rsplit(":", 1)
    if host in (LOOPBACK, "localhost"):
        return LOOPBACK
    end = time.monotonic() + spec.settings.launch_s_max
    while True:
        try:
            with socket.create_connection((host, int(port)), timeout=REACH_S_MAX) as connection:
                return str(connection.getsockname()[0])
        except ConnectionError:  # the host is there, and no master
            raise
        except OSError as error:  # no way there: a cable may be put back
            if time.monotonic() >= end:
                raise ConnectionError(f"no way to the master at {spec.master}: {error}") from error
            time.sleep(REACH_AGAIN_S)


def _store(spec: ProcessSpec) -> DurableStore:
    return FileStore(spec.store) if spec.store else NoStore()
