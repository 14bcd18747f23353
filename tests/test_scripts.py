"""The scripts that `make` calls."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from meander.errors import InputError
from meander.spark.cluster.java import java_home

SCRIPTS = Path(__file__).parents[1] / "scripts"


def test_a_java_that_is_there_is_found_and_nothing_is_installed() -> None:
    try:
        java_home()
    except InputError:
        pytest.skip("there is no Java here for the script to find")
    command = ["sh", str(SCRIPTS / "java.sh"), sys.executable]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_a_module_that_a_script_names_is_there() -> None:
    named = (SCRIPTS / "java.sh").read_text()
    assert "meander.spark.cluster.java import java_home" in named
