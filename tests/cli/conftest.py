"""A command line in this process: what it printed, and its exit code."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_kit import TABLE3, Said

from meander.cli.main import main


@pytest.fixture
def meander(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Said]:
    def call(*argv: object, stdin: str | bytes = b"") -> Said:
        raw = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
        code = main([str(word) for word in argv])
        return Said(code, *capsys.readouterr())

    return call


@pytest.fixture
def problem(tmp_path: Path) -> Callable[..., Path]:
    """Write a problem, the paper's Table 3 with changes; a key set to None is left out."""

    def write(**changes: Any) -> Path:
        data = {k: v for k, v in (TABLE3 | changes).items() if v is not None}
        path = tmp_path / "problem.json"
        path.write_text(json.dumps(data))
        return path

    return write
