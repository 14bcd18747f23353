"""A Kafka broker on this machine, and Spark's connector to it: for tests and first steps.

PySpark brings no Kafka. The jars are fetched with Maven, from wherever its own configuration says,
and kept in `$XDG_CACHE_HOME/meander` (`~/.cache/meander`): the second time costs nothing.

>>> with broker() as servers:                                                    # doctest: +SKIP
...     spark = local(nodes=4, extra={"spark.jars": connector()})
...     rows = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)

`python -m meander_lab.servers.kafka` starts a broker until it is interrupted, and prints both settings.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

from meander.errors import InputError
from meander.spark.cluster.java import java_home
from meander_lab.errors import NoJarsError
from meander_lab.servers.zookeeper import LOOPBACK, free_port, wait_for_port

BROKER = "4.3.1"
"""The newest broker when this was written; it speaks with every client since 2.1."""
CLIENT = "3.9.2"
"""What Spark's connector is built with."""
POOL = "2.13.1"
CONNECTORS = (("4.2.0", "4.2.0"), ("4.2.0", "4.0.0"))
"""Versions of the connector, and of its part for tokens, that were tried with Spark 4.3. They are
taken, in this order, where the connector of the installed Spark is not to be had."""

FETCH_S_MAX = 240.0
"""Some 45 MB over a slow link."""
STOP_S_MAX = 10.0
FIRST_S_MAX = 30.0
"""How long a broker that has just begun may take to make a topic."""
LOG_LINES = 5

POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>meander</groupId><artifactId>{name}</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
ALONE = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)
"""Without what it depends on: PySpark has the rest of it."""
DEPENDENCY = """
    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}
    </dependency>"""

SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/data
num.partitions=2
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""
JVM = ("-Xms256m", "-Xmx384m", "-XX:+UseSerialGC")
"""A heap this small is collected by one thread, not by several beside all that it serves."""
GUARDED = """\
exec 3<&0
"$@" 3<&- & broker=$!
{ cat <&3 >/dev/null; kill $broker; } &
wait $broker
kill $! 2>/dev/null
"""
"""A shell that ends the broker when its own input ends, which it does with the process that writes to
it: a broker must not stay when that is killed."""
CLUSTER_ID = "bWVhbmRlci1vbi1sb29wYg"
"""Any 16 bytes: the broker lives as long as its block."""


# ---------------------------------------------------------------------- the broker


class LocalBroker:
    """A broker on loopback. A context manager: leaving it ends it, and removes what it has kept.

    One process is broker and controller (KRaft); topics are made when they are first used.
    """

    def __init__(self) -> None:
        """Prepare a place for it.

        Raises:
            NoJarsError: if there is no way to fetch it.
        """
        jars, java = broker_jars(), str(java_home() / "bin" / "java")
        self._run = [java, *JVM, "-cp", f"{jars}/*"]
        self._folder = Path(tempfile.mkdtemp(prefix="meander-kafka-"))
        self._settings, self._log = self._folder / "server.properties", self._folder / "log"
        self._port = controller = free_port()
        while controller == self._port:
            controller = free_port()
        self._settings.write_text(
            SETTINGS.format(
                folder=self._folder, host=LOOPBACK, port=self._port, controller=controller
            )
        )
        self.address = f"{LOOPBACK}:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> LocalBroker:
        settings = str(self._settings)
        form = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", settings]
        with self._log.open("wb") as out:
            subprocess.run([*self._run, *form], stdout=out, stderr=out, check=False)
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            _end(self._process)
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, with all that it had before, and wait until it listens.

        Raises:
            InputError: with the end of its log, if it does not.
        """
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                ["sh", "-c", GUARDED, "sh", *self._run, "kafka.Kafka", str(self._settings)],
                stdin=subprocess.PIPE, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        wait_for_port(self._process, self._port, self._log, "Kafka")

    def kill(self) -> None:
        """Kill it as it stands, and wait until its port is free; `start` brings it back."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        _end(self._process)
        with suppress(ConnectionError):
            while True:
                socket.create_connection((LOOPBACK, self._port), timeout=1).close()
                time.sleep(0.05)


@contextmanager
def broker() -> Iterator[str]:
    """Run a broker on loopback while the block lasts; gives its `host:port`.

    Raises:
        NoJarsError: if there is no way to fetch it.
        InputError: with the end of its log, if it does not start.
    """
    with LocalBroker() as made:
        yield made.address


def create_topic(servers: str, topic: str, partitions: int) -> None:
    """Make a topic, or give one that is there more partitions; wait until it is known."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewPartitions, NewTopic

    admin = AdminClient({"bootstrap.servers": servers})
    there = topic in admin.list_topics(timeout=FIRST_S_MAX).topics
    if there:
        made = admin.create_partitions([NewPartitions(topic, partitions)])
    else:
        made = admin.create_topics([NewTopic(topic, partitions, 1)])
    made[topic].result(FIRST_S_MAX)
    end = time.monotonic() + FIRST_S_MAX
    while len(admin.list_topics(topic, timeout=FIRST_S_MAX).topics[topic].partitions) < partitions:
        if time.monotonic() > end:
            raise TimeoutError(f"the broker at {servers} does not tell of the topic {topic}")
        time.sleep(0.05)  # made, and not yet told to whoever answers


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(STOP_S_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


# ---------------------------------------------------------------------- the jars


def broker_jars() -> Path:
    """Give the directory with the broker's jars, fetching them if need be.

    Raises:
        NoJarsError: if they are not there and Maven cannot get them.
    """
    return _fetch(f"kafka-{BROKER}", [[("org.apache.kafka", "kafka_2.13", BROKER, "")]])


def connector() -> str:
    """Give Spark's connector to Kafka, as the setting `spark.jars` wants it.

    It is the one of the installed Spark where that is published, else one that works with it.

    Raises:
        NoJarsError: if no version is to be had.
    """
    installed, name = version("pyspark"), "kafka-0-10_2.13"
    choices = [
        [
            ("org.apache.spark", f"spark-sql-{name}", sql, ALONE),
            ("org.apache.spark", f"spark-token-provider-{name}", tokens, ALONE),
            ("org.apache.kafka", "kafka-clients", CLIENT, ALONE),
            ("org.apache.commons", "commons-pool2", POOL, ALONE),
        ]
        for sql, tokens in ((installed, installed), *CONNECTORS)
    ]
    folder = _fetch(f"spark-{installed}-kafka", choices)
    return ",".join(sorted(str(jar) for jar in folder.glob("*.jar")))


def cache() -> Path:
    """Give the directory that fetched jars are kept in."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "meander"


def _fetch(name: str, choices: Sequence[Sequence[tuple[str, str, str, str]]]) -> Path:
    """Give the directory of that name in the cache, with the first choice that can be had.

    Raises:
        NoJarsError: with what Maven says of the first choice.
    """
    folder, first = cache() / name, None
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    for artifacts in choices:
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.parent) as scratch:
            try:
                jars = _maven(name, artifacts, Path(scratch))
            except NoJarsError as error:
                first = first or error
                continue
            try:
                jars.rename(folder)  # whole or not at all
            except OSError:
                if not folder.is_dir():  # else somebody was faster
                    raise
            return folder
    assert first is not None
    raise first


def _maven(name: str, artifacts: Sequence[tuple[str, str, str, str]], scratch: Path) -> Path:
    """Have Maven put the jars, and what they need, into a directory; gives it."""
    maven = shutil.which("mvn")
    if maven is None:
        raise NoJarsError(f"{name} is fetched with Maven, and there is no mvn on the path")
    pom, jars = scratch / "pom.xml", scratch / "jars"
    dependencies = "".join(DEPENDENCY.format(*artifact) for artifact in artifacts)
    pom.write_text(POM.format(name=name, dependencies=dependencies))
    command = [
        maven, "--quiet", "--batch-mode", "--strict-checksums", "-f", str(pom),
        "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}",
    ]  # fmt: skip
    env = {**os.environ, "JAVA_HOME": str(java_home())}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=FETCH_S_MAX, env=env, check=False
        )
    except subprocess.TimeoutExpired:
        raise NoJarsError(f"Maven did not get {name} within {FETCH_S_MAX:.0f} s") from None
    if done.returncode:
        told = [line for line in done.stdout.splitlines() if "ERROR" in line]
        raise NoJarsError(f"Maven cannot get {name}: {told[0] if told else done.stderr.strip()}")
    return jars


def main() -> int:
    """Run a broker until it is interrupted."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        jars = connector()
        with broker() as servers:
            sys.stdout.write(f"kafka.bootstrap.servers={servers}\nspark.jars={jars}\n")
            sys.stdout.flush()
            while True:
                time.sleep(3600)
    except KeyboardInterrupt:
        return 0
    except InputError as error:
        sys.stderr.write(f"meander: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
