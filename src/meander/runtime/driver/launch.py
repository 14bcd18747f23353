"""How processes are started: the interface, and children of one warm process on this machine."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from meander.errors import InputError, LaunchError
from meander.runtime.process.memory import KEEP
from meander.runtime.process.spec import ProcessExit, ProcessSpec, Reason

log = logging.getLogger(__name__)

READY_S_MAX = 120.0
"""Imports and kernels, on a machine that has other things to do."""


class Launcher(Protocol):
    """Starts processes and tells when they end. Nothing here waits for a process to do something."""

    def pickle(self, value: object, what: str) -> bytes:
        """Write what a process shall have, by value where it cannot be imported there.

        Raises:
            InputError: naming `what` cannot be written, and the cause.
        """

    def start(self, ended: Callable[[ProcessExit], None]) -> None:
        """Prepare. Every process that was launched is reported to `ended`, once, from any thread."""

    def launch(self, spec: ProcessSpec) -> None:
        """Start a process and return at once; a failure to start is an end like any other."""

    def cancel(self, name: str, incarnation: int) -> None:
        """Kill a process that does not end by itself."""

    def room(self) -> int | None:
        """Tell how many more processes can be started now; None: as many as one likes."""

    def avoid(self, host: str) -> None:
        """Start nothing on a host any more, as it is there now.

        Raises:
            InputError: if there is no other.
        """

    def close(self, patience_s: float) -> None:
        """Kill what is left, and wait for it."""


class LocalLauncher:
    """Children of a nursery on this machine (see `roles.nursery`)."""

    def __init__(self) -> None:
        self.pids: dict[tuple[str, int], int] = {}
        """Of the processes that run, by name and incarnation."""
        self._nursery: subprocess.Popen[bytes] | None = None
        self._ready = threading.Event()
        self._lock = threading.Lock()
        self._specs: dict[tuple[str, int], ProcessSpec] = {}
        self._ended: Callable[[ProcessExit], None] = lambda _: None
        self._thread: threading.Thread | None = None
        self._closing = False

    def pickle(self, value: object, what: str) -> bytes:
        """Write it so that what a script or a notebook defines goes along whole."""
        import cloudpickle

        try:
            return bytes(cloudpickle.dumps(value))
        except Exception as error:  # whatever the object's own code raises
            first = (str(error).splitlines() or [""])[0]
            raise InputError(
                f"{what} cannot be sent to nodes: {type(error).__name__}: {first}. Keep open files, "
                "connections, locks and sessions out of it and make them where it runs (`open`)"
            ) from error

    def start(self, ended: Callable[[ProcessExit], None]) -> None:
        """Start the nursery; it warms up while the caller goes on."""
        self._ended = ended
        path = os.pathsep.join(p for p in sys.path if p)
        environment = {**KEEP, **os.environ, "PYTHONPATH": path}
        self._nursery = subprocess.Popen(
            self.command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # a Ctrl-C is the driver's business
        )
        self._thread = threading.Thread(target=self._listen, name="nursery", daemon=True)
        self._thread.start()

    def command(self) -> Sequence[str]:
        """Give the command that is the nursery."""
        return [sys.executable, "-m", "meander.runtime.roles.nursery"]

    @property
    def nursery_pid(self) -> int:
        """The process that forks the others."""
        assert self._nursery is not None
        return self._nursery.pid

    def wait_ready(self) -> None:
        """Wait until children start at once.

        Raises:
            LaunchError: if the nursery ends before.
        """
        if not self._ready.wait(READY_S_MAX) or self._dead():
            raise LaunchError(
                "the process that starts nodes did not come up: run "
                "`python -m meander.runtime.roles.nursery < /dev/null` to see why"
            )

    def launch(self, spec: ProcessSpec) -> None:
        """Have a child forked."""
        self._specs[spec.name, spec.incarnation] = spec
        if not self._order({"launch": spec.json()}):
            self._report(_lost(spec, "the process that starts nodes is gone"))

    def room(self) -> int | None:
        """Tell how many more can be started: this machine has no slots to count."""
        return None

    def avoid(self, host: str) -> None:
        """Refuse: there is no other host."""
        raise InputError(f"all processes are on this machine: nobody can leave the host {host}")

    def cancel(self, name: str, incarnation: int) -> None:
        """Have a child killed."""
        self._order({"cancel": [name, incarnation]})

    def close(self, patience_s: float) -> None:
        """End the nursery, which kills its children."""
        nursery = self._nursery
        if nursery is None:
            return
        self._closing = True
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        with self._lock, suppress(OSError):
            nursery.stdin.close()
        try:
            nursery.wait(patience_s)
        except subprocess.TimeoutExpired:
            nursery.kill()
            nursery.wait()
        if self._thread is not None:
            self._thread.join(patience_s)
        nursery.stdout.close()

    def _dead(self) -> bool:
        return self._nursery is None or self._nursery.poll() is not None

    def _order(self, order: dict[str, Any]) -> bool:
        nursery = self._nursery
        if nursery is None or nursery.stdin is None:
            return False
        try:
            with self._lock:
                nursery.stdin.write(json.dumps(order).encode() + b"\n")
                nursery.stdin.flush()
        except (OSError, ValueError):
            return False
        return True

    def _listen(self) -> None:
        assert self._nursery is not None
        assert self._nursery.stdout is not None
        for line in self._nursery.stdout:
            said = json.loads(line)
            if "ready" in said:
                self._ready.set()
            elif "started" in said:
                _, name, incarnation, pid = said["started"]
                self.pids[name, incarnation] = pid
            elif "ended" in said:
                self._report(ProcessExit.parse(said["ended"]))
        self._ready.set()
        if not self._closing:
            for spec in list(self._specs.values()):
                self._report(_lost(spec, "the process that starts nodes was killed"))

    def _report(self, ended: ProcessExit) -> None:
        key = ended.name, ended.incarnation
        self.pids.pop(key, None)
        if self._specs.pop(key, None) is not None:
            self._ended(ended)


class WarmLauncher(LocalLauncher):
    """One nursery for many deployments, one after another. A context manager: leaving it ends it."""

    def __enter__(self) -> WarmLauncher:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self, ended: Callable[[ProcessExit], None]) -> None:
        """Start the nursery if there is none."""
        if self._nursery is None:
            super().start(ended)
        self._ended = ended

    def close(self, patience_s: float) -> None:
        """Kill what is left of a deployment, and wait for it; the nursery stays."""
        for name, incarnation in list(self._specs):
            self.cancel(name, incarnation)
        end = time.monotonic() + patience_s
        while self._specs and time.monotonic() < end:
            time.sleep(0.002)

    def end(self, patience_s: float = 10.0) -> None:
        """End the nursery."""
        super().close(patience_s)


def _lost(spec: ProcessSpec, why: str) -> ProcessExit:
    return ProcessExit(spec.kind, spec.name, spec.incarnation, Reason.KILLED, why)
