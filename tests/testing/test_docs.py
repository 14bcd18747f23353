"""The example in the docs runs."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs" / "simulator.md"


def test_the_example_of_an_own_operator_comes_through():
    (example,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    found: dict[str, object] = {}
    exec(example, found)
    assert found["outcome"].counts["rescales"] == 2
