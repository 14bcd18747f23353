"""What the tests of the docs share: blocks of code by page, and which test runs which."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = (*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md")

BY_THEIR_PAGE = (
    "from-a-query-and-back", "from-transform-with-state", "from-windows-and-joins", "kafka",
    "operators", "simulator", "streaming", "windows-and-joins", "write-an-operator",
)  # fmt: skip
"""Pages with a test of their own, which runs every block but those that are marked `notest`."""
LOCALLY = ("autoscaler", "checkpoints", "dashboard", "days", "topologies")
"""Pages whose blocks are run by `test_docs_code.py`, all of them, with names that they do not make."""
ON_SPARK = ("frequent-patterns", "pipeline", "spark")
"""The same, by `spark/test_docs_on_spark.py`, which runs blocks marked `notest` of other pages, too."""
ELSEWHERE = {
    ("chaos", 0): "needs root and network namespaces: tests/hosts calls the same",
    ("from-a-query-and-back", 7): "needs a broker: test_source_partitions.py exports likewise",
    ("kafka", 0): "needs a broker: tests/kafka/test_kafka_direct.py calls the same",
    ("kafka", 1): "needs a schema registry: tests/runtime/test_avro.py calls the same",
    ("kafka", 5): "needs a broker: tests/kafka/test_kafka.py calls the same",
    ("kafka", 6): "needs a broker: it is the fixture of tests/kafka",
}
"""Blocks that no test runs as they stand, and why."""


class Block(NamedTuple):
    """One block of Python."""

    page: str
    number: int
    """Among the blocks of its page."""
    alone: bool
    """Whether it is marked `notest`: the test of its page leaves it out."""
    code: str


def blocks() -> list[Block]:
    """Find all blocks of Python in the docs."""
    return [
        Block(page.stem, number, bool(mark), code)
        for page in PAGES
        for number, (mark, code) in enumerate(
            re.findall(
                r"^```python( notest)?\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE
            )
        )
    ]


def run(
    page: str, scope: dict[str, Any], *numbers: int, instead: dict[str, str] | None = None
) -> None:
    """Run blocks of a page, one after another: those that are named, or all.

    Args:
        page: its name.
        scope: what they find, and where they leave what they make.
        numbers: which, in the order in which they are run.
        instead: what stands for a name that only the reader has, as an address.
    """
    found = {block.number: block.code for block in blocks() if block.page == page}
    for number in numbers or tuple(found):
        code = found[number]
        for before, after in (instead or {}).items():
            code = code.replace(before, after)
        exec(compile(code, f"{page}.md, block {number}", "exec"), scope)
