"""An S3 server on this machine: for tests, measurements and first steps.

It is `versitygw`, which serves buckets that are folders of a disk. Chosen because it checks signatures,
keeps its objects when it is stopped, keeps to `If-None-Match` also among requests that come at once (a
lock around check and publish), and is built from Go's module proxy in two minutes. moto (PyPI) keeps
objects in memory, MinIO takes far longer to build, S3Mock (Maven) wants a JVM for each server.

It is built once, with whatever Go and proxy this machine has, and kept in `$XDG_CACHE_HOME/meander`.

>>> with server() as s3:                                                         # doctest: +SKIP
...     s3.bucket("checkpoints")
...     meander.deploy(spark, WordCount(), checkpoint=s3.address("checkpoints/words"))

`python -m meander_lab.servers.s3` starts one until it is interrupted, and prints what clients need.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from meander.errors import InputError
from meander_lab.errors import NoServerError
from meander_lab.servers.kafka import cache
from meander_lab.servers.zookeeper import LOOPBACK, free_port, wait_for_port

MODULE = "github.com/versity/versitygw/cmd/versitygw"
VERSION = "v1.8.0"
BUILD_S_MAX = 580.0
"""Two minutes of two cores, and some 100 MB to fetch."""
STOP_S_MAX = 1.0
"""It waits for clients that have not hung up."""


class S3:
    """A server that can be stopped and started again; its objects stay."""

    def __init__(self, program: Path, folder: Path, host: str = LOOPBACK) -> None:
        self.host, self.port, self.folder = host, free_port(host), folder
        self.key, self.secret = secrets.token_hex(8), secrets.token_hex(16)
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """Give what clients call."""
        return f"http://{self.host}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """Give what the environment of clients must have."""
        return {"AWS_ACCESS_KEY_ID": self.key, "AWS_SECRET_ACCESS_KEY": self.secret}

    def address(self, path: str) -> str:
        """Give the address of a folder in a bucket, as `deploy` takes it."""
        return f"s3://{path}?endpoint={self.endpoint}&region=us-east-1"

    def bucket(self, name: str) -> None:
        """Make a bucket."""
        (self.folder / "buckets" / name).mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        """Start, and wait until it listens.

        Raises:
            InputError: with the end of its log, if it does not start.
        """
        log, buckets = self.folder / "log", self.folder / "buckets"
        buckets.mkdir(exist_ok=True)
        command = [str(self._program), "--port", f"{self.host}:{self.port}", "--quiet"]
        root = {"ROOT_ACCESS_KEY_ID": self.key, "ROOT_SECRET_ACCESS_KEY": self.secret}
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [*command, "--keep-alive", "posix", str(buckets)],
                stdout=out, stderr=out, start_new_session=True, env={**os.environ, **root},
            )  # fmt: skip
        wait_for_port(self._process, self.port, log, "versitygw", self.host)

    def stop(self) -> None:
        """Stop; nobody answers at its port then."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


@contextmanager
def server(host: str = LOOPBACK) -> Iterator[S3]:
    """Run an S3 server while the block lasts, on loopback, or on an address of this host's.

    Raises:
        NoServerError: if its program cannot be had.
        InputError: with the end of its log, if it does not start.
    """
    found, folder = program(), Path(tempfile.mkdtemp(prefix="meander-s3-"))
    s3 = S3(found, folder, host)
    try:
        s3.start()
        yield s3
    finally:
        s3.stop()
        shutil.rmtree(folder, ignore_errors=True)


def program() -> Path:
    """Give the server's program, building it if need be: by one process, the others wait.

    Raises:
        NoServerError: if it is not there and cannot be built.
    """
    folder = cache() / f"versitygw-{VERSION}"
    found = folder / "versitygw"
    if found.exists():
        return found
    go = shutil.which("go")
    if go is None:
        raise NoServerError("versitygw is built with Go, and there is no go on the path")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            _build(go, found)
    return found


def _build(go: str, found: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".build-", dir=found.parent) as scratch:
        try:
            done = subprocess.run(
                [go, "install", f"{MODULE}@{VERSION}"],
                capture_output=True, text=True, timeout=BUILD_S_MAX, check=False,
                env={**os.environ, "GOBIN": scratch, "CGO_ENABLED": "0"},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise NoServerError(f"Go did not build versitygw within {BUILD_S_MAX:.0f} s") from None
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
            raise NoServerError(f"Go cannot build versitygw: {last}")
        (Path(scratch) / "versitygw").rename(found)  # whole or not at all


def main() -> int:
    """Run a server until it is interrupted."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with server() as s3:
            s3.bucket("checkpoints")
            lines = [f"export {name}={value}" for name, value in s3.environment.items()]
            sys.stdout.write("\n".join([*lines, f"# {s3.address('checkpoints/folder')}", ""]))
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
