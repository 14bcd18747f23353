"""The page about operators says what is true."""

import re
from pathlib import Path

from meander.operators import KeyedAggregate

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"


def test_the_examples_of_the_page_run() -> None:
    scope: dict = {}
    for example in re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL):
        exec(example, scope)
    assert scope["sales"].layout.result_schema.names == [
        "shop",
        *("sales", "turnover", "mean", "latest"),
    ]
    assert issubclass(scope["WordCount"], KeyedAggregate)
    assert scope["WordCount"]().layout.result_schema.names == ["word", "count"]
