"""What `import meander` offers, and what it costs."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import meander
from meander import errors

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def test_every_name_is_there() -> None:
    for name in meander.__all__:
        assert getattr(meander, name) is not None
        assert name in dir(meander)
    assert meander.testing.check is not None
    with pytest.raises(AttributeError, match="no attribute 'deploy_loca'"):
        meander.deploy_loca  # type: ignore[attr-defined]  # noqa: B018


def test_every_error_is_there() -> None:
    raised = {
        name
        for name, it in vars(errors).items()
        if isinstance(it, type) and issubclass(it, Exception)
    }
    assert raised <= set(meander.__all__)


def test_to_import_it_loads_little() -> None:
    heavy = ["pyspark", "numba", "pyarrow", "numpy", "scipy", "matplotlib"]
    code = f"import sys, meander; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_version_is_the_one_of_the_distribution() -> None:
    assert meander.__version__ == tomllib.loads(PROJECT.read_text())["project"]["version"]
