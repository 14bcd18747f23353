"""A Spark Standalone cluster on this machine: a Master and Workers, on loopback or on hosts (`hosts`).

It is started from the pip package (`spark-class`), on ports that the system chooses, and is a real
cluster: executors are processes of their own that come and go, which `local[N]` never shows.

>>> with cluster(workers=2, cores=2) as place:                                   # doctest: +SKIP
...     spark = meander.spark.cluster.session.local(place.master)
>>> with hosts(4) as four, across(four, cores=4) as place:                        # doctest: +SKIP
...     four[2].kill(); four[2].start(); place.start_worker(four[2].address)

Every process started here is a child of this one, in a process group of its own, and is ended with
it: by `stop`, by leaving the block, or at the end of the interpreter. (If this process is killed with
-9 the cluster stays: Spark's daemons have no parent to miss. Then
`kill` the pids in `StandaloneCluster.pids`.)
"""

from __future__ import annotations

import atexit
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from meander.errors import InputError
from meander.spark.cluster.java import java_home
from meander_lab.hosts.hosts import Hosts

LOOPBACK = "127.0.0.1"
START_S_MAX = 60.0
"""A JVM on a busy small machine takes some seconds to say its address."""
STOP_S_MAX = 10.0
"""A Worker first ends its executors."""
EXECUTORS_S_MAX = 120.0
"""How long a session across hosts waits for them all, on a busy machine."""
POLL_S = 0.05
LOG_LINES = 5
"""The end of a log that goes into an error."""

RETRIES = {"spark.deploy.maxExecutorRetries": "-1"}
"""By default an application is given up after ten executors that died; here they are killed."""

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


class Place(NamedTuple):
    """Where a daemon runs."""

    address: str
    command: Callable[[Sequence[str]], Sequence[str]]
    """Makes of a command one that runs there."""


HERE = Place(LOOPBACK, lambda order: order)


class _Daemon(NamedTuple):
    process: subprocess.Popen[bytes]
    log: Path


class StandaloneCluster:
    """The processes of one cluster."""

    def __init__(
        self,
        master: Place,
        workers: Sequence[Place],
        cores: int,
        memory: str,
        settings: Mapping[str, str] = RETRIES,
    ) -> None:
        """Start a Master and its Workers, with settings of Spark.

        Raises:
            InputError: with the end of the log of what did not start.
        """
        self.home = Path(tempfile.mkdtemp(prefix="meander-standalone-"))
        (self.home / "log4j2.properties").write_text(LOGGING)
        file = self.home / "spark.properties"
        file.touch(0o600)  # there may be a secret among them
        file.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        self.session = dict(RETRIES)
        """What a session there needs to be set to."""
        self._places = {place.address: place for place in workers}
        self._size = ("--cores", str(cores), "--memory", memory)
        self._daemons: list[_Daemon] = []
        atexit.register(self.stop)
        try:
            leader = self._start(master, MASTER)
            self.master = self._wait_for(leader, r"Starting Spark master at (spark://\S+)")
            started = [self._worker(place) for place in workers]
            for daemon in started:
                self._wait_for(daemon, r"(Successfully registered with master)")
        except BaseException:
            self.stop()
            raise

    def start_worker(self, address: str) -> None:
        """Start a Worker again whose host was down. Returns at once."""
        self._worker(self._places[address])

    def _worker(self, place: Place) -> _Daemon:
        work = ("--work-dir", str(self.home / "work"))
        return self._start(place, WORKER, *work, *self._size, self.master)

    @property
    def pids(self) -> tuple[int, ...]:
        """The Master's process and those of the Workers."""
        return tuple(daemon.process.pid for daemon in self._daemons)

    def stop(self) -> None:
        """End all processes, Workers first; they end their executors. Can be called twice."""
        atexit.unregister(self.stop)
        for process, _ in reversed(self._daemons):
            _signal(process, signal.SIGTERM)
        limit = time.monotonic() + STOP_S_MAX
        for process, _ in self._daemons:
            try:
                process.wait(max(0.0, limit - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal(process, signal.SIGKILL)
                process.wait()
        self._daemons.clear()
        shutil.rmtree(self.home, ignore_errors=True)

    def _start(self, place: Place, main: str, *arguments: str) -> _Daemon:
        """Start one daemon in its own process group."""
        log = self.home / f"{main.rpartition('.')[2].lower()}-{len(self._daemons)}.log"
        listens = ("--host", place.address, "--port", "0", "--webui-port", "0")
        settings = ("--properties-file", str(self.home / "spark.properties"))
        order = [str(_spark_home() / "bin" / "spark-class"), main, *listens, *settings, *arguments]
        with log.open("wb") as out:
            process = subprocess.Popen(
                place.command(order),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=self._environment(place.address),
                start_new_session=True,
            )
        self._daemons.append(_Daemon(process, log))
        return self._daemons[-1]

    def _environment(self, address: str) -> dict[str, str]:
        logging = f"-Dlog4j2.configurationFile={(self.home / 'log4j2.properties').as_uri()}"
        return {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(_spark_home()),
            "SPARK_LOCAL_IP": address,  # the web pages too, which would listen everywhere
            "SPARK_DAEMON_JAVA_OPTS": logging,
            "SPARK_DAEMON_MEMORY": "512m",
        }

    def _wait_for(self, daemon: _Daemon, pattern: str) -> str:
        """Read a log until it says what is wanted.

        Raises:
            InputError: when the process ended, or it took too long.
        """
        limit = time.monotonic() + START_S_MAX
        while True:
            ended = daemon.process.poll() is not None
            text = daemon.log.read_text(encoding="utf-8", errors="replace")
            if found := re.search(pattern, text):
                return found.group(1)
            if ended or time.monotonic() > limit:
                last = "\n  ".join(text.splitlines()[-LOG_LINES:])
                raise InputError(f"Spark's {daemon.log.stem} did not start:\n  {last}")
            time.sleep(POLL_S)


@contextmanager
def cluster(workers: int = 2, cores: int = 2, memory: str = "2g") -> Iterator[StandaloneCluster]:
    """Run a cluster while the block lasts.

    Args:
        workers: Worker processes.
        cores: slots that each Worker offers; more than the machine has is fine.
        memory: what each Worker may give to executors.
    """
    with _running(StandaloneCluster(HERE, [HERE] * workers, cores, memory)) as started:
        yield started


@contextmanager
def across(hosts: Hosts, cores: int = 4, memory: str = "1g") -> Iterator[StandaloneCluster]:
    """Run a cluster across hosts while the block lasts: a Master on the first, a Worker on each other.

    Nobody can read or use its channels: they have a secret, and AES. Whoever starts a session there
    must be on the first host (`hosts.inside`), and needs `StandaloneCluster.session`.

    Args:
        hosts: two at least.
        cores: slots that each Worker offers; more than the machine has is fine.
        memory: what each Worker may give to executors.
    """
    first, *others = (Place(host.address, host.command) for host in hosts)
    if not others:
        raise InputError("a cluster across hosts needs two at least: the first has the driver")
    secret = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secrets.token_hex(32),
        "spark.network.crypto.enabled": "true",
    }
    with _running(
        StandaloneCluster(first, others, cores, memory, {**RETRIES, **secret})
    ) as started:
        started.session |= {**secret, **_all_of(len(others) * cores)}
        started.session |= {
            "spark.driver.host": first.address, "spark.driver.bindAddress": first.address,
        }  # fmt: skip
        yield started


def _all_of(cores: int) -> dict[str, str]:
    """Have a session wait for all executors, so that the first nodes can be spread over them.

    Spark knows how many there will be from `spark.cores.max`, and must not keep to it: a host that
    comes back has an executor while the one that died still counts.
    """
    return {
        "spark.cores.max": str(8 * cores),
        "spark.scheduler.minRegisteredResourcesRatio": "0.125",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{EXECUTORS_S_MAX:.0f}s",
    }


@contextmanager
def _running(started: StandaloneCluster) -> Iterator[StandaloneCluster]:
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
