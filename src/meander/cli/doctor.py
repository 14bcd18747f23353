"""`meander doctor`: what is wrong with this machine for Meander, and what to do about each."""

from __future__ import annotations

import argparse
import os
import resource
import secrets
import socket
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from meander.cli.answers import to_line
from meander.cli.arguments import positive, spark_master
from meander.cli.main import OK
from meander.errors import InputError, MeanderError

WRONG_FOUND = 1
"""Exit code when something must be mended."""
GOOD, POOR, BAD = "good", "poor", "bad"
NODE_BYTES = 400 * 2**20
"""What a node takes before it has any state, with what it shares counted once."""
FILES_MIN = 4096
EXTRAS = {
    "dashboard": ("starlette", "uvicorn", "prometheus_client"),
    "kafka": ("confluent_kafka",),
    "otel": ("opentelemetry",),
    "s3": ("obstore",),
    "zookeeper": ("kazoo",),
}
"""The modules of each, as in `pyproject.toml`."""


class Finding(NamedTuple):
    """One thing that was looked at."""

    what: str
    state: str
    """`good`; `poor`: it works, but not as well as it could; `bad`: it does not work."""
    said: str
    do: str = ""
    """What to do; empty: nothing."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander doctor`."""
    parser.add_argument("--nodes", type=positive, default=4,
                        help="as many as you want (default: 4)")  # fmt: skip
    parser.add_argument("--checkpoint", metavar="DIR", help="a folder, or a URI that Arrow knows")
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS",
                        help="where the master shall listen (default: 127.0.0.1)")  # fmt: skip
    parser.add_argument("--spark", nargs="?", type=spark_master, const="", metavar="MASTER",
                        help="also start a session and look at it (takes seconds)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object a finding")


def run(args: argparse.Namespace) -> int:
    """Look at everything, and print what was found."""
    found = list(examine(args.nodes, args.host, args.checkpoint, args.spark))
    if args.json:
        for finding in found:
            print(to_line(finding._asdict()))
    else:
        _show(found)
    return WRONG_FOUND if any(finding.state == BAD for finding in found) else OK


def examine(nodes: int, host: str, checkpoint: str | None, spark: str | None) -> Iterator[Finding]:
    """Look at one thing after another."""
    yield _python()
    yield _java()
    yield _cores(nodes)
    yield _memory(nodes)
    yield _files()
    yield _network(host)
    yield from _extras()
    if checkpoint is not None:
        yield _checkpoint(checkpoint)
    if spark is not None:
        yield _session(spark or None, nodes)


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("Python", GOOD, version)


def _java() -> Finding:
    from meander.spark.cluster.java import java_home

    try:
        return Finding("Java", GOOD, str(java_home()))
    except InputError as error:
        said, _, advice = str(error).partition(": ")
        return Finding("Java", BAD, said, advice)


def _cores(nodes: int) -> Finding:
    cores = len(os.sched_getaffinity(0))
    said = f"{cores} for {nodes} nodes"
    if cores < nodes:
        advice = "nodes will share cores: fewer nodes may be as fast, or run on more executors"
        return Finding("cores", POOR, said, advice)
    return Finding("cores", GOOD, said)


def memory_of(text: str) -> int:
    """Read the bytes that are available from what Linux tells.

    >>> memory_of("MemAvailable: 4 kB")
    4096
    """
    for line in text.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _memory(nodes: int) -> Finding:
    try:
        free = memory_of(Path("/proc/meminfo").read_text(encoding="ascii"))
    except OSError:
        return Finding("memory", POOR, "cannot be told here", "see that each node has 400 MB")
    said = f"{free / 2**30:.1f} GiB available"
    if free < nodes * NODE_BYTES:
        advice = f"{nodes} nodes take some {nodes * NODE_BYTES / 2**30:.1f} GiB before any state"
        return Finding("memory", POOR, said, advice)
    return Finding("memory", GOOD, said)


def _files() -> Finding:
    most, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    said = f"{most} may be open"
    if 0 <= most < FILES_MIN:
        limit = "ulimit -n 4096" if hard < 0 or hard >= FILES_MIN else "raise the hard limit"
        return Finding("files", POOR, said, f"with many nodes this is too few: {limit}")
    return Finding("files", GOOD, said)


def _network(host: str) -> Finding:
    try:
        with socket.create_server((host, 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection((host, port), timeout=5):
                pass
    except OSError as error:
        advice = "give an address of this machine that all hosts of the cluster can reach"
        return Finding("network", BAD, f"{host}: {error.strerror or error}", advice)
    return Finding("network", GOOD, f"{host} can be listened on and reached from here")


def _extras() -> Iterator[Finding]:
    for extra, modules in EXTRAS.items():
        missing = [name for name in modules if find_spec(name) is None]
        if missing:
            advice = f"if you want it: pip install 'meander[{extra}]'"
            yield Finding(extra, POOR, f"{', '.join(missing)} not installed", advice)
        else:
            yield Finding(extra, GOOD, "installed")


def _checkpoint(where: str) -> Finding:
    from meander.runtime.store.filesystem import open_files

    advice = "give a folder that all nodes and the driver can reach and write to"
    probe, data = f"doctor/probe-{secrets.token_hex(8)}", b"may be deleted"
    try:
        files = open_files(where)
        files.prepare()
        files.publish(probe, data)
        try:
            found = files.read(probe)
        finally:
            files.delete([probe])
    except MeanderError as error:
        return Finding("checkpoint", BAD, str(error), advice)
    except Exception as error:  # each store has its own
        return Finding("checkpoint", BAD, f"{where}: {error}", advice)
    if found != data:
        return Finding("checkpoint", BAD, f"{where}: what is written cannot be read", advice)
    return Finding("checkpoint", GOOD, f"{where} can be written to from here")


def _session(master: str | None, nodes: int) -> Finding:
    from meander.spark.cluster import session_check
    from meander.spark.pipeline.feeding import session

    try:
        with session(master, nodes) as spark:
            found = session_check.check(spark, nodes)
    except MeanderError as error:
        return Finding("Spark", BAD, str(error), "change the session's settings as it says")
    slots = "as many slots as needed" if found.slots is None else f"{found.slots} slots"
    if found.notes:
        return Finding("Spark", POOR, slots, "; ".join(found.notes))
    return Finding("Spark", GOOD, slots)


def _show(found: list[Finding]) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    signs = {GOOD: "[green]✓[/green]", POOR: "[yellow]![/yellow]", BAD: "[red]✗[/red]"}
    for what, state, said, do in found:
        console.print(f"{signs[state]} {what:<11} {escape(said)}", soft_wrap=True)
        if do:
            console.print(f"{'':<14}→ {escape(do)}", soft_wrap=True)
