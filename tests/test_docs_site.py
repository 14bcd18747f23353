"""The docs as a site: built as `make docs` builds it, where every warning is an error."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(
    tmp_path: Path,
) -> None:
    pytest.importorskip("mkdocs", reason="MkDocs is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False,
                          env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, timeout=300)  # fmt: skip
    assert said.returncode == 0, said.stdout + said.stderr
    for page in tmp_path.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="?(https?://[^" >]+)', text)
        assert loaded == [], page.name
        assert "```" not in text, f"{page.name} has a block of code that is shown as text"
    assert "ElasticOperator" in (tmp_path / "api.html").read_text(encoding="utf-8")


def test_every_page_is_in_the_navigation() -> None:
    named = set(re.findall(r"^ +- ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {page.name for page in (ROOT / "docs").glob("*.md")}
    assert pages <= named
    assert all((ROOT / "docs" / name).exists() or (ROOT / name).exists() for name in named)
