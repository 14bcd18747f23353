"""The tutorial runs as it is written."""

import re
from pathlib import Path

from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "streaming.md"


def test_the_tutorial_runs(spark: SparkSession, tmp_path: Path) -> None:
    scope: dict = {"spark": spark}
    # Paths of the tutorial are relative; Spark's are to where its JVM was started.
    for example in re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL):
        here = re.sub(r'"(texts|updates|checkpoint(?:-updates)?)"', rf'"{tmp_path}/\1"', example)
        exec(here, scope)
    assert scope["report"].nodes == 3
    rows = spark.read.parquet(f"{tmp_path}/updates").collect()
    last = {row["word"]: max(r["count"] for r in rows if r["word"] == row["word"]) for row in rows}
    assert last == {
        "to": 2,
        "be": 2,
        "or": 1,
        "not": 1,
        "that": 1,
        "is": 1,
        "the": 1,
        "question": 1,
    }
