"""The examples as a new user runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("sessions", "user0: 3 clicks from 00:00:00"),
        ("top_k", "shop19: item"),
        ("running_join", "274 orders were paid"),
    ],
)
def test_an_example_runs_by_itself(name: str, line: str) -> None:
    script = EXAMPLES / f"{name}.py"
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert line in done.stdout


def test_every_example_is_listed() -> None:
    text = (EXAMPLES / "README.md").read_text()
    assert all(path.name in text for path in EXAMPLES.glob("*.py"))
