"""A Spark Standalone cluster on this machine: a Master and Workers, all on loopback.

It is started from the pip package (`spark-class`), on ports that the system chooses, and is a real
cluster: executors are processes of their own that come and go, which `local[N]` never shows.

>>> with cluster(workers=2, cores=2) as place:                                   # doctest: +SKIP
...     spark = meander.spark.cluster.session.local(place.master)

Every process started here is a child of this one, in a process group of its own, and is ended with
it: by `stop`, by leaving the block, or at the end of the interpreter. (If this process is killed with
-9 the cluster stays: Spark's daemons have no parent to miss. Then
`kill` the pids in `StandaloneCluster.pids`.)
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from meander.errors import InputError
from meander.spark.cluster.java import java_home

LOOPBACK = "127.0.0.1"
START_S_MAX = 60.0
"""A JVM on a busy small machine takes some seconds to say its address."""
STOP_S_MAX = 10.0
"""A Worker first ends its executors."""
POLL_S = 0.05
LOG_LINES = 5
"""The end of a log that goes into an error."""

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
LOGGING = """\
rootLogger.level = info
rootLogger.appenderRef.stdout.ref = stdout
appender.stdout.type = Console
appender.stdout.name = stdout
appender.stdout.target = SYSTEM_OUT
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = %m%n%ex
"""
"""Messages alone, so that the address can be read from them whatever the user's own set-up is."""


class StandaloneCluster:
    """The processes of one cluster."""

    def __init__(self, workers: int, cores: int, memory: str) -> None:
        """Start a Master and its Workers.

        Raises:
            InputError: with the end of the log of what did not start.
        """
        self.home = Path(tempfile.mkdtemp(prefix="meander-standalone-"))
        (self.home / "log4j2.properties").write_text(LOGGING)
        self._processes: list[subprocess.Popen[bytes]] = []
        atexit.register(self.stop)
        try:
            log = self._start("master", MASTER, "--host", LOOPBACK, "--port", "0")
            self.master = self._wait_for(log, r"Starting Spark master at (spark://\S+)")
            size = ("--cores", str(cores), "--memory", memory)
            where = ("--host", LOOPBACK, "--port", "0", "--work-dir", str(self.home / "work"))
            logs = [
                self._start(f"worker-{i}", WORKER, *where, *size, self.master)
                for i in range(workers)
            ]
            for log in logs:
                self._wait_for(log, r"(Successfully registered with master)")
        except BaseException:
            self.stop()
            raise

    @property
    def pids(self) -> tuple[int, ...]:
        """The Master's process and those of the Workers."""
        return tuple(process.pid for process in self._processes)

    def stop(self) -> None:
        """End all processes, Workers first; they end their executors. Can be called twice."""
        atexit.unregister(self.stop)
        for process in reversed(self._processes):
            _signal(process, signal.SIGTERM)
        limit = time.monotonic() + STOP_S_MAX
        for process in self._processes:
            try:
                process.wait(max(0.0, limit - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal(process, signal.SIGKILL)
                process.wait()
        self._processes.clear()
        shutil.rmtree(self.home, ignore_errors=True)

    def _start(self, name: str, main: str, *arguments: str) -> Path:
        """Start one daemon in its own process group; give its log."""
        log = self.home / f"{name}.log"
        command = [
            str(_spark_home() / "bin" / "spark-class"),
            main,
            *arguments,
            "--webui-port",
            "0",
        ]
        with log.open("wb") as out:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=self._environment(),
                start_new_session=True,
            )
        self._processes.append(process)
        return log

    def _environment(self) -> dict[str, str]:
        logging = f"-Dlog4j2.configurationFile={(self.home / 'log4j2.properties').as_uri()}"
        # By default an application is given up after ten executors that died; here they are killed.
        patience = "-Dspark.deploy.maxExecutorRetries=-1"
        return {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(_spark_home()),
            "SPARK_LOCAL_IP": LOOPBACK,  # the web pages too, which would listen everywhere
            "SPARK_DAEMON_JAVA_OPTS": f"{logging} {patience}",
            "SPARK_DAEMON_MEMORY": "512m",
        }

    def _wait_for(self, log: Path, pattern: str) -> str:
        """Read a log until it says what is wanted.

        Raises:
            InputError: when a process ended, or it took too long.
        """
        limit = time.monotonic() + START_S_MAX
        while True:
            ended = any(process.poll() is not None for process in self._processes)
            text = log.read_text(encoding="utf-8", errors="replace")
            if found := re.search(pattern, text):
                return found.group(1)
            if ended or time.monotonic() > limit:
                last = "\n  ".join(text.splitlines()[-LOG_LINES:])
                raise InputError(f"Spark's {log.stem} did not start:\n  {last}")
            time.sleep(POLL_S)


@contextmanager
def cluster(workers: int = 2, cores: int = 2, memory: str = "2g") -> Iterator[StandaloneCluster]:
    """Run a cluster while the block lasts.

    Args:
        workers: Worker processes.
        cores: slots that each Worker offers; more than the machine has is fine.
        memory: what each Worker may give to executors.
    """
    started = StandaloneCluster(workers, cores, memory)
    try:
        yield started
    finally:
        started.stop()


def _spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal a daemon alone (its group leader): Workers end their executors in good order."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            process.send_signal(number)
