"""Where the command line begins: finds the command, loads only its module, keeps the exit codes.

A command is a row of `COMMANDS` and a module with two functions:
`add_arguments(parser)` and `run(args) -> int`. `--help` lists the rows and imports none of them.
What measures Meander is a package of its own with a registry like this one (`meander_lab.cli`): its
commands are here where it is installed.

Exit codes
  0  done
  1  what was checked does not hold: a count is wrong (`bench`, `chaos`), a schedule failed (`sim`)
  2  wrong usage or input, or it could not go on: one line on standard error says what
  3  the problem was understood and has no solution
  130, 141  interrupted; nobody reads the output any more
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Final, NamedTuple, NoReturn

from meander.runtime.process.memory import keep_arrow
from meander.version import __version__

OK: Final = 0
INEXACT: Final = 1
WRONG: Final = 2
INFEASIBLE: Final = 3
INTERRUPTED: Final = 130
UNREAD: Final = 141


class CliCommand(NamedTuple):
    """One row of the registry."""

    name: str
    help: str
    module: str


COMMANDS: Final = (
    CliCommand("plan", "decide which tasks move, for one problem or many", "meander.cli.plan"),
    CliCommand("compare", "all policies on one problem, side by side", "meander.cli.compare"),
    CliCommand("profile", "raw events to work and state per slot and task", "meander.cli.profile"),
    CliCommand("trace", "volumes per slot to nodes and migrations", "meander.cli.trace"),
    CliCommand("mtm", "a trace to the matrix of where n goes next", "meander.cli.mtm"),
    CliCommand("forecast", "project migration costs into a file", "meander.cli.forecast"),
    CliCommand("evaluate", "replay a trace with every policy", "meander.cli.evaluate"),
    CliCommand("generate", "made-up streams of any size", "meander.cli.generate"),
    CliCommand("sim", "the migration protocol under faults, by seeds", "meander.cli.sim"),
    CliCommand("run", "an operator on a stream, rescaled while it flows", "meander.cli.run"),
    CliCommand("ls", "what runs on this machine", "meander.cli.ls"),
    CliCommand("status", "where a deployment stands", "meander.cli.status"),
    CliCommand("rescale", "another number of nodes for what runs", "meander.cli.rescale"),
    CliCommand("vacate", "have nodes or a host of what runs leave", "meander.cli.vacate"),
    CliCommand("stop", "end a deployment that runs", "meander.cli.stop"),
    CliCommand("doctor", "what is wrong with this machine, and what to do", "meander.cli.doctor"),
    CliCommand("completion", "complete commands in your shell", "meander.cli.completion"),
    CliCommand("checkpoint", "look into a checkpoint: ls, verify, show", "meander.cli.checkpoint"),
    CliCommand("demo", "a stream on Spark, rescaled while it flows", "meander.cli.demo"),
)


LAB: Final = "meander_lab"
LAB_COMMANDS: Final = ("bench", "experiment", "chaos", "mutants", "soak")
"""What the laboratory has, so that whoever lacks it is told where they are."""


def commands() -> tuple[CliCommand, ...]:
    """List the commands that there are."""
    if find_spec(LAB) is None:
        return COMMANDS
    lab = import_module(f"{LAB}.cli")
    instead = {row.name: row for row in lab.INSTEAD}
    return (*(instead.get(row.name, row) for row in COMMANDS), *lab.COMMANDS)


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaint is one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where to read on."""
        self.exit(WRONG, f"{self.prog}: {message} (see {self.prog} --help)\n")


def build_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """Build the parser; only the command that `argv` names gets its arguments."""
    parser = Parser(prog="meander", description="Elastic stateful streaming: what to move and how.")
    parser.add_argument("--version", action="version", version=f"meander {__version__}")
    add_commands(parser, commands(), argv)
    return parser


def add_commands(
    parser: argparse.ArgumentParser, commands: Sequence[CliCommand], argv: Sequence[str]
) -> None:
    """Give a parser its commands; a command within a command is added the same way."""
    named = first_word(argv)
    rows = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    for name, text, module in commands:
        row = rows.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        if name == named:
            command = import_module(module)
            row.set_defaults(run=command.run, argv=argv[argv.index(name) + 1 :], parser=row)
            command.add_arguments(row)


def first_word(argv: Sequence[str]) -> str | None:
    """Find the command that is named."""
    return next((word for word in argv if not word.startswith("-")), None)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code."""
    argv = sys.argv[1:] if argv is None else list(argv)
    keep_arrow()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that lacks a character shows another
            stream.reconfigure(errors="replace")
    try:
        code = _run(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        # Nobody reads on. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:  # a full disk, say
        what = error.strerror or str(error)
        complain(what if error.filename is None else f"{error.filename}: {what}")
        _flush_what_can_be()
        return WRONG
    return code


def _flush_what_can_be() -> None:
    """Write what was printed, or let it go: Python would complain once more when it flushes at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(argv: Sequence[str]) -> int:
    named = first_word(argv)
    if named in LAB_COMMANDS and find_spec(LAB) is None:
        complain(f"`meander {named}` is part of meander-lab: pip install meander-lab")
        return WRONG
    try:
        args, unknown = build_parser(argv).parse_known_args(argv)
        if unknown:  # the command complains, so that its own help is named
            args.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    except SystemExit as stop:  # argparse has printed help, version or complaint
        return int(stop.code or 0)
    from meander.errors import MeanderError

    try:
        return int(args.run(args))
    except MeanderError as error:
        complain(str(error))
        return WRONG


def say(text: str) -> None:
    """Tell what is going on, beside the results."""
    print(text, file=sys.stderr, flush=True)


def complain(message: str) -> None:
    """Put one line on standard error."""
    print(f"meander: {' '.join(message.split())}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
