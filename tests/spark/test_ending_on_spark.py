"""How a program ends that has a deployment on Spark."""

from __future__ import annotations

import subprocess
import sys

import pytest

FORGETFUL = """
import logging
import pyarrow as pa
import meander
from meander.operators import WordCount
from meander.spark.cluster.session import local
logging.basicConfig(level=logging.INFO)
spark = local("local[5,2]", extra={"spark.driver.memory": "1g"})
op = meander.deploy(spark, WordCount(), tasks=8, nodes=2)
feeder = op.feeder()
feeder.feed(pa.record_batch({"word": ["a", "b"]}))
feeder.flush()
op.rescale(3).wait()
print("fed", flush=True)
"""
END_S_MAX = 120.0
"""Ten seconds on a machine that has nothing else to do."""


def test_a_program_that_forgets_to_stop_ends() -> None:
    """And without a second life: what ends with the program is not taken for a loss."""
    with subprocess.Popen(
        [sys.executable, "-c", FORGETFUL],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as program:  # fmt: skip
        try:
            assert program.stdout is not None
            while "fed" not in (line := program.stdout.readline()):
                assert line, "it ended before"
            _, said = program.communicate(timeout=END_S_MAX)
        finally:
            program.kill()
    assert program.returncode == 0
    assert "lost {" not in said
    assert "Spark did not end" not in said


TOO_EARLY = (
    FORGETFUL
    + """
from meander.errors import DeployError
spark.stop()
try:
    feeder.feed(pa.record_batch({"word": ["c"]}))
    feeder.flush()
except DeployError as error:
    print("told:", error, flush=True)
op.stop()
"""
)


@pytest.mark.slow
def test_a_session_that_is_stopped_first_is_named_as_the_failure() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TOO_EARLY], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "told: the Spark session was stopped" in done.stdout
