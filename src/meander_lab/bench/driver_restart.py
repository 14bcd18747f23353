"""The application dies and comes back: what `meander bench restart` measures.

    fill the state │ stream │ SIGKILL │ the same program, on its checkpoint │ stream │ SIGKILL … counts

The driver is killed with its JVM, without a word. Its nodes fence themselves and end, on Spark with
their executors. Whoever watches over an application starts it again at once, and so does this bench.
What is measured is from the death until the first batch is applied that a checkpoint may lack, and
where that time goes:

    process_s     a new Python process is there
    session_s     Spark's session: a JVM, and executors on the other hosts
    prepare_s     what is there of a checkpoint is looked at, executors get what they need
    launch_s      the driver claims the checkpoint, and all nodes have come
    restore_s     nodes have read the states of their tasks, and state servers are there
    return_s      the session knows the operator by name, and `deploy` returns
    first_row_s   a feeder finds where to go on, and its first row is applied
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from meander.errors import MeanderError
from meander_lab.bench.driver_app import FINISH
from meander_lab.hosts.hosts import Hosts
from meander_lab.servers.standalone import across

CORES: Final = 8
"""Slots of each Worker."""
ORDER: Final = (sys.executable, "-m", "meander_lab.bench.driver_app")
END_S_MAX: Final = 60.0
PHASES: Final = (
    "process_s", "session_s", "prepare_s", "launch_s", "restore_s", "return_s", "first_row_s",
)  # fmt: skip

Say = Callable[[str], None]


class RestartWish(NamedTuple):
    """What is measured."""

    state_mb: float = 1024.0
    nodes: int = 6
    tasks: int = 64
    times: int = 3
    stream_s: float = 4.0
    """Between the beginning of the stream and a death."""
    seed: int = 1


class App:
    """One life of the application."""

    def __init__(self, wish: Mapping[str, Any], log: Path) -> None:
        """Start it."""
        self._log, self.fed = log, 0
        """The last batch that it has fed, as far as it was heard."""
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                ORDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, text=True,
                start_new_session=True,
            )  # fmt: skip
        self._write(json.dumps(wish))

    def hear(self, what: str) -> dict[str, Any]:
        """Wait until it says that it has reached something; give what it says.

        Raises:
            MeanderError: with the end of its log, if it ends before.
        """
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told: dict[str, Any] = json.loads(line)
            if told["what"] == "feeding":
                self.fed = told["number"]
            if told["what"] == what:
                return told
        last = "\n  ".join(self._log.read_text(errors="replace").splitlines()[-5:])
        raise MeanderError(f"the application ended before it was {what}:\n  {last}")

    def finish(self, number: int) -> dict[str, Any]:
        """Have it end by itself, once it has fed a batch; give its verdict."""
        self._write(f"{FINISH} {number}")
        told = self.hear("ended")
        self._process.wait(END_S_MAX)
        self._close()
        return told

    def kill(self) -> float:
        """Kill it with its JVM, without a word; give when."""
        at = time.time()
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            with suppress(MeanderError, ValueError):  # of the last line there may be a part
                self.hear("nothing more")
        self._close()
        return at

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):  # of a line that nobody has read
                pipe.close()

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


def restart(wish: RestartWish, hosts: Hosts | None, say: Say) -> dict[str, Any]:
    """Fill, and then kill and start again so many times; on hosts, if there are some."""
    with (
        tempfile.TemporaryDirectory(prefix="meander-restart-") as folder,
        _asked(wish, hosts, Path(folder)) as asked,
    ):
        say(f"{wish.state_mb:g} MiB on {wish.nodes} nodes …")
        log = Path(folder, "log")
        app, runs, fed = App(asked, log), list[dict[str, Any]](), 0
        try:
            size = app.hear("filled")["state_bytes"]
            for _ in range(wish.times):
                time.sleep(wish.stream_s)
                died_s = app.kill()
                fed = max(fed, app.fed)
                app = App(asked, log)
                runs.append(_phases(app, died_s))
                say(f"back after {runs[-1]['seconds']:.1f} s")
            told = app.finish(fed)
        finally:
            app.kill()
    seconds = [run["seconds"] for run in runs]
    return {
        "exact": not told["lost"] and not told["duplicated"], "lost": told["lost"],
        "duplicated": told["duplicated"], "state_bytes": size,
        "hosts": None if hosts is None else len(hosts), "nodes": wish.nodes, "tasks": wish.tasks,
        "runs": runs, "seconds_max": max(seconds, default=None),
    }  # fmt: skip


@contextmanager
def _asked(wish: RestartWish, hosts: Hosts | None, folder: Path) -> Iterator[dict[str, Any]]:
    """Give what the application is told; start a cluster across hosts, if there are some."""
    told: dict[str, Any] = {
        "state_mb": wish.state_mb, "nodes": wish.nodes, "tasks": wish.tasks, "seed": wish.seed,
        "checkpoint": str(folder / "checkpoint"), "master": None,
    }  # fmt: skip
    if hosts is None:
        yield told
        return
    first = hosts[1].address
    os.environ["SPARK_LOCAL_IP"] = first  # of the driver's JVM
    with across(hosts, CORES) as cluster:
        yield {**told, "master": cluster.master, "session": cluster.session, "host": first}


def _phases(app: App, died_s: float) -> dict[str, Any]:
    """Wait until a new life takes rows, and tell what took how long."""
    marks = [died_s, app.hear("begun")["at_s"], app.hear("session")["at_s"]]
    serving = app.hear("serving")
    began_s = serving["served_s"] - serving["serving_s"]
    taking = app.hear("taking")
    marks += [began_s, began_s + serving["registered_s"], serving["served_s"]]
    marks += [serving["at_s"], taking["at_s"]]
    spans = {name: b - a for name, (a, b) in zip(PHASES, pairwise(marks), strict=True)}
    return {"seconds": taking["at_s"] - died_s, **spans, "generation": serving["generation"]}
