"""How a program ends that has a deployment on Spark."""

from __future__ import annotations

import subprocess
import sys

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
END_S_MAX = 40.0
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
