"""The nursery: one warm process that forks the others. `python -m meander.runtime.roles.nursery`.

It imports and compiles once, and starts neither gRPC nor a thread, so a child is ready in
milliseconds and shares its memory. It takes orders on its standard input, one JSON object a line,
and answers on its standard output:

    {"launch": spec}            → {"started": [kind, name, incarnation, pid]} … {"ended": exit}
    {"cancel": [name, incarnation]}

At the end of its input, which is also what the death of its parent looks like, it kills its children
and ends. A child holds the reading end of a pipe whose writing end only the nursery has: when the
nursery dies, for any reason, the child notices and ends. So no process outlives the driver.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from typing import Any

from meander.errors import MeanderError
from meander.runtime.clients.driver_client import renewed
from meander.runtime.process.spec import ProcessExit, ProcessSpec, Reason
from meander.runtime.process.warm import calm_grpc, settle_heap, warm_up
from meander.runtime.roles.entry import run_feeder, run_node, run_server, run_sink

log = logging.getLogger(__name__)


class Child:
    """A process that was forked."""

    def __init__(self, spec: ProcessSpec, pid: int, words: int) -> None:
        self.spec, self.pid, self.words = spec, pid, words
        self.heard = b""


class Nursery:
    """Forks children and watches them."""

    def __init__(self) -> None:
        self.children: dict[int, Child] = {}
        """By the file descriptor of their last words."""
        self.selector = selectors.DefaultSelector()
        self.life_read, self.life_write = os.pipe()
        self._input = b""

    def run(self) -> None:
        """Serve until the input ends."""
        warm_up()
        settle_heap()
        self.say({"ready": os.getpid()})
        self.selector.register(0, selectors.EVENT_READ)
        try:
            while self._turn():
                pass
        finally:
            for child in self.children.values():
                _kill(child.pid)
            for child in self.children.values():
                os.waitpid(child.pid, 0)

    def say(self, what: dict[str, Any]) -> None:
        """Write one answer."""
        os.write(1, json.dumps(what).encode() + b"\n")

    def _turn(self) -> bool:
        for key, _ in self.selector.select():
            if key.fd == 0:
                data = os.read(0, 1 << 20)
                if not data:
                    return False
                *lines, self._input = (self._input + data).split(b"\n")
                for line in lines:
                    self._order(json.loads(line))
            else:
                self._hear(self.children[key.fd])
        return True

    def _order(self, order: dict[str, Any]) -> None:
        if "launch" in order:
            self._fork(ProcessSpec.parse(order["launch"]))
        elif "cancel" in order:
            for child in self.children.values():
                if [child.spec.name, child.spec.incarnation] == order["cancel"]:
                    _kill(child.pid)

    def _fork(self, spec: ProcessSpec) -> None:
        ends = list[int]()
        try:
            ends += os.pipe()
            pid = os.fork()
        except OSError as error:  # none is left here: no reason to end all the others
            for fd in ends:
                os.close(fd)
            self.say({"ended": _ended(spec, f"it could not be forked: {error}").json()})
            return
        read, write = ends
        if pid == 0:
            os.close(read)
            self._be(spec, write)
        os.close(write)
        self.children[read] = Child(spec, pid, read)
        self.selector.register(read, selectors.EVENT_READ)
        self.say({"started": [spec.kind, spec.name, spec.incarnation, pid]})

    def _be(self, spec: ProcessSpec, words: int) -> None:
        """Be the child; never returns."""
        try:
            self.selector.close()
            os.close(self.life_write)
            for fd in self.children:
                os.close(fd)
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(2, 1)
            threading.Thread(target=self._watch, daemon=True).start()
            os.write(words, run(spec).json().encode())
        finally:
            os._exit(0)

    def _watch(self) -> None:
        os.read(self.life_read, 1)
        os._exit(3)

    def _hear(self, child: Child) -> None:
        data = os.read(child.words, 1 << 16)
        child.heard += data
        if data:
            return
        self.selector.unregister(child.words)
        os.close(child.words)
        del self.children[child.words]
        _, status = os.waitpid(child.pid, 0)
        self.say({"ended": _last_words(child) or _silent(child, status).json()})


def run(spec: ProcessSpec) -> ProcessExit:
    """Be what a spec says."""
    calm_grpc()
    entries = {"node": run_node, "server": run_server, "feeder": run_feeder, "sink": run_sink}
    return entries[spec.kind](_at_work(spec))


def _at_work(spec: ProcessSpec) -> ProcessSpec:
    """Exchange the certificate that came with a spec for one to work with, which is short-lived."""
    if not spec.credentials.secure:
        return spec
    try:
        return replace(spec, credentials=renewed(spec.master, spec.credentials))
    except MeanderError as error:  # what came with it is good, too
        log.warning("%s has no certificate of its own yet: %s", spec.name, error)
        return spec


def _last_words(child: Child) -> str:
    """Give what a child said of its end; nothing if it was killed before it was done saying it."""
    try:
        return ProcessExit.parse(child.heard.decode()).json()
    except (ValueError, KeyError, TypeError):
        return ""


def _silent(child: Child, status: int) -> ProcessExit:
    spec, code = child.spec, os.waitstatus_to_exitcode(status)
    how = f"killed by signal {-code}" if code < 0 else f"ended with code {code}"
    return _ended(spec, how, pid=child.pid)


def _ended(spec: ProcessSpec, how: str, **facts: int) -> ProcessExit:
    return ProcessExit(spec.kind, spec.name, spec.incarnation, Reason.KILLED, how, facts=facts)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    logging.basicConfig(
        level=os.environ.get("MEANDER_LOG", "WARNING"),
        format="%(asctime)s %(process)d %(name)s %(levelname)s %(message)s",
        stream=sys.stderr,
    )
    Nursery().run()
