"""A clean process that forks for Spark's Python workers, which cannot do so themselves.

A worker that has served a task may have used gRPC, and a fork after that hangs. So our daemon forks
this one process before any worker: warm as the daemon is, without a thread. A worker sends it one end
of a pair of sockets; it forks a child, which reads there what to do, and writes what comes of it.

    worker ──socket──► forks          (a byte, and the child's end of the pair)
    worker ──request─► child ──words──► worker ◄── how it ended ── forks

    the child dies     forks says how, and the worker reads the end
    the worker dies    forks kills the child
    it cannot fork     (no process or descriptor is left) the worker's line breaks: it does it itself
    forks dies         children die with it (on Linux by the kernel), and workers read the end
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

PR_SET_PDEATHSIG = 1
HEAD_BYTES = 8
END = b"\0"
"""Between a child's words and how it ended."""
NO_FORKS = "the process that forks was lost"

Say = Callable[[bytes], None]
"""Writes to whoever asked for the child, at once."""

_DESK: list[socket.socket] = []
"""The workers' end, which they inherit from the daemon; empty where another daemon is used."""


class Heard(NamedTuple):
    """What came of a child."""

    words: bytes
    how: str


class ForkedChild(NamedTuple):
    """A child, as the process knows it that forked it."""

    pid: int
    line: socket.socket
    """To the worker."""
    life: int
    """Ends with the child."""


def open_desk() -> None:
    """Start the process; in the daemon, before its first worker."""
    ours, theirs = socket.socketpair()
    daemon = os.getpid()
    if os.fork() == 0:
        theirs.close()
        _guarded(lambda: Forks(ours).run(daemon))
    ours.close()
    _DESK.append(theirs)


def run(function: str, argument: str) -> Heard | None:
    """Have a function run in a child; None if nobody here can fork, or not now.

    Args:
        function: `module:name`; it is given the argument and a way to say something at once, and what
            it returns are the child's last words.
        argument: a text.
    """
    if not _DESK:
        return None
    ours, theirs = socket.socketpair()
    with ours:
        try:
            with theirs:
                rights = array.array("i", [theirs.fileno()])
                _DESK[0].sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            limits = resource.getrlimit(resource.RLIMIT_AS)
            order = {"function": function, "argument": argument, "path": sys.path, "limits": limits}
            request = json.dumps({**order, "files": files_of_spark()}).encode()
            ours.sendall(len(request).to_bytes(HEAD_BYTES, "big") + request)
            with ours.makefile("rb") as line:
                words, end, how = line.read().rpartition(END)
        except OSError:
            return None
        return Heard(words, how.decode()) if end else Heard(how, NO_FORKS)


class Forks:
    """The process that forks."""

    def __init__(self, desk: socket.socket) -> None:
        self._desk = desk
        self._children: dict[int, ForkedChild] = {}
        """By both of their descriptors."""
        self._poll = select.poll()

    def run(self, parent: int) -> None:
        """Fork and watch, until nobody can ask any more."""
        os.setpgid(0, 0)  # a Ctrl-C is the driver's business
        die_with(parent)
        self._poll.register(self._desk, select.POLLIN)
        while True:
            for fd, _ in self._poll.poll():
                child = self._children.get(fd)
                if fd == self._desk.fileno():
                    if not self._fork():
                        return
                elif child is not None and fd == child.life:
                    self._bury(child)
                elif child is not None:  # the worker has hung up
                    self._poll.unregister(fd)
                    os.kill(child.pid, signal.SIGKILL)

    def _fork(self) -> bool:
        data, fds, *_ = socket.recv_fds(self._desk, 1, 1)
        if not data:
            return False
        if not fds:  # no descriptor was left for it here: the kernel has closed it
            return True
        line = socket.socket(fileno=fds[0])
        try:
            self._add(line)
        except OSError:  # no process or descriptor is left: no reason to end all the others
            line.close()
            traceback.print_exc()
        return True

    def _add(self, line: socket.socket) -> None:
        read, write = os.pipe()
        try:
            me, pid = os.getpid(), os.fork()
        except OSError:
            os.close(read)
            os.close(write)
            raise
        if pid == 0:
            _guarded(lambda: self._be(line, me))
        os.close(write)
        child = ForkedChild(pid, line, read)
        self._children.update({read: child, line.fileno(): child})
        self._poll.register(read, select.POLLIN)
        self._poll.register(line, 0)  # a hang-up is told in any case

    def _be(self, line: socket.socket, parent: int) -> None:
        """Be the child."""
        die_with(parent)
        self._desk.close()
        for other in set(self._children.values()):
            other.line.close()
            os.close(other.life)
        with line.makefile("rb") as file:
            order = json.loads(file.read(int.from_bytes(file.read(HEAD_BYTES), "big")))
        sys.path[:] = order["path"]  # what Spark sent along for this application
        find_files_of_spark(order["files"])
        resource.setrlimit(resource.RLIMIT_AS, tuple(order["limits"]))
        module, _, name = order["function"].partition(":")
        function: Any = getattr(import_module(module), name)
        line.sendall(function(order["argument"], line.sendall).encode())

    def _bury(self, child: ForkedChild) -> None:
        """Say how a child ended."""
        _, status = os.waitpid(child.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        how = f"killed by signal {-code}" if code < 0 else f"ended with code {code}"
        del self._children[child.life], self._children[child.line.fileno()]
        with suppress(KeyError):
            self._poll.unregister(child.line)
        self._poll.unregister(child.life)
        os.close(child.life)
        with child.line, suppress(OSError):
            child.line.sendall(END + how.encode())


def files_of_spark() -> str | None:
    """Tell where Spark puts files (`addFile`) for this worker; None: nobody here can know."""
    from pyspark import SparkFiles

    return SparkFiles._root_directory if SparkFiles._is_running_on_worker else None


def find_files_of_spark(folder: str | None) -> None:
    """Have `SparkFiles.get` find them, as in the worker."""
    if folder is not None:
        from pyspark import SparkFiles

        SparkFiles._root_directory, SparkFiles._is_running_on_worker = folder, True


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, where it can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before that
            os._exit(3)


def _guarded(body: Callable[[], None]) -> NoReturn:
    """Be a forked process: nothing of the one before goes on in it."""
    code = 1
    try:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.close(null)
        body()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stderr.flush()
        os._exit(code)
