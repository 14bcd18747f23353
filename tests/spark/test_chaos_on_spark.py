"""A short chaos on Spark, in a process of its own: local[N,F], a Standalone cluster, a sink."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

COMMAND = "import sys; from meander.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.slow
@pytest.mark.parametrize(
    "where", [("--master", "local[10,4]"), ("--master", "standalone"), ("--sink",)], ids=" ".join
)
def test_counts_are_right_whatever_is_harmed_on_spark(where: tuple[str, ...]) -> None:
    wish = ["chaos", "--seconds", "25", "--seed", "4", "--nodes", "3", "--feeders", "2"]
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *wish, *where, "--json"],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["exact"]
    assert min(report["kills"], report["rescales"]) > 0
    assert report["rows"] == 25 * 20 * 2 * 500
