"""PySpark's own tests of transformWithState, unchanged, on `meander.processor`: where they can be had.

They are in Spark's source, and in no package. `MEANDER_SPARK_TESTS` names its folder `python/`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs" / "from-transform-with-state.md"
FILES = "pyspark/sql/tests/pandas/streaming"
SCENARIOS = 74
METADATA = "ask for `state-metadata`, and for batches and changes in Spark's own state files"
RED = {
    f"variable/{form}/transform_with_{test}": METADATA
    for form in ("pandas", "row")
    for test in ("list_state_metadata", "value_state_metadata")
}
"""What is not green, and why; the page on coming from transformWithState says the same."""


@pytest.mark.slow
def test_spark_s_own_tests_are_green_but_for_those_that_ask_for_its_files() -> None:
    folder = os.environ.get("MEANDER_SPARK_TESTS", "")
    if not (Path(folder) / FILES).is_dir():
        pytest.skip("no tests of Spark: set MEANDER_SPARK_TESTS to python/ of its source")
    done = subprocess.run(
        [sys.executable, str(HERE / "spark_own.py"), folder],
        capture_output=True, text=True, timeout=3600, check=False,
    )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = {line["test"]: line["wrong"] for line in lines if line["wrong"] is not None}
    assert len(lines) == SCENARIOS, done.stderr[-3000:]
    assert wrong.keys() == RED.keys(), {name: wrong.get(name) for name in wrong.keys() ^ RED.keys()}


def test_the_page_says_how_many_are_green_and_why_others_are_not() -> None:
    page = " ".join(DOCS.read_text().split())
    assert f"{SCENARIOS - len(RED)} of its {SCENARIOS} scenarios" in page
    for name, why in RED.items():
        assert name.rpartition("/")[2] in page
        assert why in page
