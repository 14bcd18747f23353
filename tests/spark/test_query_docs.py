"""The page about queries that are taken over, and given back, does what it says."""

from __future__ import annotations

import re
from pathlib import Path

from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "from-a-query-and-back.md"


def test_the_page_runs(spark: SparkSession, tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len(examples) == 6
    scope = {"spark": spark, "folder": str(tmp_path), "__name__": "page"}
    try:
        for example in examples:
            exec(example, scope)
    finally:
        if "op" in scope:
            scope["op"].stop()  # type: ignore[attr-defined]
