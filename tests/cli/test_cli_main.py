from __future__ import annotations

import errno
import json
import subprocess
import sys
from typing import Any

import pytest
from cli_kit import TABLE3

from meander import __version__
from meander.cli import main as door
from meander.cli.main import COMMANDS
from meander_lab.cli import COMMANDS as LAB_COMMANDS

RUN = [sys.executable, "-m", "meander.cli.main"]


def test_help_lists_every_command(meander) -> None:
    said = meander("--help")
    assert said.code == 0
    for command in (*COMMANDS, *LAB_COMMANDS):
        assert command.name in said.out
        assert command.help.split()[0] in said.out


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from meander.cli.main import main; main(['--help']);"
        "heavy = {'numpy', 'numba', 'scipy', 'matplotlib', 'rich', 'pyspark'} & set(sys.modules);"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_without_the_laboratory_its_commands_are_one_line(
    meander, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {command.name for command in LAB_COMMANDS} == set(door.LAB_COMMANDS)
    monkeypatch.setattr(door, "LAB", "meander_lab_that_is_not_installed")
    for command in LAB_COMMANDS:
        said = meander(command.name, "--help")
        assert (said.code, said.out) == (2, "")
        assert said.err.count("\n") == 1
        assert "pip install meander-lab" in said.err
    listed = meander("--help").out
    assert not any(command.help in listed for command in LAB_COMMANDS)
    assert all(command.name in listed for command in COMMANDS)


@pytest.mark.parametrize(
    "words", [["plan"], ["compare"], ["bench"], ["bench", "plan"], ["bench", "routing"], ["demo"]]
)
def test_every_command_has_help(meander, words: list[str]) -> None:
    said = meander(*words, "--help")
    assert said.code == 0
    assert f"usage: meander {' '.join(words)}" in said.out


def test_the_version_is_the_packages(meander) -> None:
    assert meander("--version").out == f"meander {__version__}\n"


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["bench"], ["bench", "nonsense"], ["--frob"]])
def test_wrong_commands_are_one_line(meander, argv: list[str]) -> None:
    said = meander(*argv)
    assert said.code == 2
    assert said.out == ""
    assert said.err.count("\n") == 1


def test_a_reader_that_leaves_early_is_no_error() -> None:
    many = "\n".join([json.dumps(TABLE3)] * 2000)
    with subprocess.Popen(
        [*RUN, "plan", "-", "--json"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(json.dumps(TABLE3) + "\n")
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        try:
            process.stdin.write(many)
            process.stdin.close()
        except BrokenPipeError:
            pass
        assert process.wait() == 141
        assert process.stderr.read() == ""


def test_a_full_disk_is_one_line(meander, monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [*RUN, "completion", "bash"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (2, "meander: No space left on device\n")

    def no_room(_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", "out/report.json")

    monkeypatch.setattr("meander.cli.plan.run", no_room)
    said = meander("plan", "-")
    assert said.code == 2
    assert said.err == "meander: out/report.json: No space left on device\n"


def test_exit_codes_reach_the_shell() -> None:
    heavy = TABLE3 | {"work": [1] * 19 + [99]}
    for data, code in (({}, 2), (heavy, 3)):
        done = subprocess.run(
            [*RUN, "plan", "-", "--json"], input=json.dumps(data).encode(),
            capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == code
        assert b"Traceback" not in done.stderr
