"""A ZooKeeper on this machine, from the jars that come with PySpark: for tests and first steps.

>>> with server() as hosts:                                                      # doctest: +SKIP
...     meander.deploy(spark, WordCount(), zookeeper=hosts)
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from meander.errors import InputError
from meander.spark.cluster.java import java_home

MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
LOOPBACK = "127.0.0.1"
START_S_MAX = 180.0
"""A JVM on a busy small machine."""
STOP_S_MAX = 5.0
LOG_LINES = 5
SETTINGS = """\
dataDir={folder}/data
clientPort={port}
clientPortAddress={host}
admin.enableServer=false
tickTime=1000
"""


@contextmanager
def server() -> Iterator[str]:
    """Run a ZooKeeper on loopback while the block lasts; gives its `host:port`.

    Raises:
        InputError: with the end of its log, if it does not start.
    """
    import pyspark

    folder, port = Path(tempfile.mkdtemp(prefix="meander-zookeeper-")), free_port()
    (folder / "zoo.cfg").write_text(SETTINGS.format(folder=folder, port=port, host=LOOPBACK))
    jars = str(Path(pyspark.__file__).parent / "jars" / "*")
    java = str(java_home() / "bin" / "java")
    command = [java, "-Xmx128m", "-cp", jars, MAIN, str(folder / "zoo.cfg")]
    try:
        with (
            (folder / "log").open("wb") as log,
            subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True) as process,
        ):
            try:
                wait_for_port(process, port, folder / "log", "ZooKeeper")
                yield f"{LOOPBACK}:{port}"
            finally:
                process.terminate()
                try:
                    process.wait(STOP_S_MAX)
                except subprocess.TimeoutExpired:
                    process.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def wait_for_port(
    process: subprocess.Popen[bytes], port: int, log: Path, name: str, host: str = LOOPBACK
) -> None:
    """Wait until a process that was started listens.

    Raises:
        InputError: with the end of its log, if it does not.
    """
    limit = time.monotonic() + START_S_MAX
    while process.poll() is None and time.monotonic() < limit:
        try:
            socket.create_connection((host, port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    last = "\n  ".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
    raise InputError(f"{name} did not start:\n  {last}")


def free_port(host: str = LOOPBACK) -> int:
    """Find a port, for servers that cannot be asked to choose one themselves."""
    with socket.create_server((host, 0)) as probe:
        return int(probe.getsockname()[1])
