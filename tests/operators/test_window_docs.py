"""The pages about windows and joins say what is true."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["windows-and-joins.md", "from-windows-and-joins.md"])
def test_the_examples_of_the_pages_run(page: str) -> None:
    scope: dict = {}
    for example in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), flags=re.DOTALL):
        exec(example, scope)
    assert "pa" in scope
