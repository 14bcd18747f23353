"""Two distributions: the product, and what measures it. What each holds, and what each needs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from email import message_from_string
from pathlib import Path
from zipfile import ZipFile

import pytest

import meander

ROOT = Path(__file__).parents[1]
LAB = ROOT / "packaging" / "lab"
BROUGHT = {
    "py4j": "pyspark", "llvmlite": "numba", "markupsafe": "jinja2", "markdown_it": "markdown-it-py",
    "prometheus_client": "prometheus-client", "confluent_kafka": "confluent-kafka",
    "opentelemetry": "opentelemetry-api",
}  # fmt: skip
"""What comes with another, or under another name."""
THERE = {"IPython"}
"""What is only used where it is there already."""


def wheel(project: Path, where: Path) -> ZipFile:
    """Build without a network and without an environment of its own."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(where)]
    subprocess.run(command, cwd=project, check=True, capture_output=True, timeout=300)
    (found,) = where.glob("*.whl")
    return ZipFile(found)


def holds(found: ZipFile) -> tuple[set[str], str]:
    """Give the files of a wheel, and its metadata."""
    names = set(found.namelist())
    (metadata,) = (n for n in names if n.endswith(".dist-info/METADATA"))
    return {n for n in names if ".dist-info/" not in n}, found.read(metadata).decode()


def sources(package: str) -> set[str]:
    """Name the files of a package as they are in the repository."""
    folder = ROOT / "src" / package
    files = (p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return {str(p.relative_to(ROOT / "src")) for p in files}


def needs(metadata: str) -> Iterator[str]:
    for line in message_from_string(metadata).get_all("Requires-Dist", []):
        yield re.split(r"[^A-Za-z0-9_-]", line)[0]


def imported(package: str) -> set[str]:
    """Name what a package imports that is neither its own nor Python's."""
    found = set[str]()
    for file in (ROOT / "src" / package).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
    return {BROUGHT.get(name, name) for name in found - {package} - THERE - sys.stdlib_module_names}


@pytest.mark.parametrize(("package", "project"), [("meander", ROOT), ("meander_lab", LAB)])
def test_a_wheel_holds_its_package_and_says_what_it_needs(
    package: str, project: Path, tmp_path: Path
) -> None:
    with wheel(project, tmp_path) as found:
        files, metadata = holds(found)
    assert files == sources(package)
    assert set(needs(metadata)) == imported(package)
    assert message_from_string(metadata)["Version"] == meander.__version__


def test_the_laboratory_goes_with_the_product_of_its_version() -> None:
    told = tomllib.loads((LAB / "pyproject.toml").read_text())["project"]
    assert f"meander=={meander.__version__}" in told["dependencies"]


def test_no_two_test_files_have_one_name() -> None:
    """pytest imports them by it: of two only one is collected, in whichever process meets both."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert {name: count for name, count in names.items() if count > 1} == {}
