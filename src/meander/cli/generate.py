"""`meander generate`: streams of any size, the same on every machine."""

from __future__ import annotations

import argparse

from meander.cli.main import CliCommand, add_commands

KINDS = (
    CliCommand(
        "tweets", "tweets with Zipf words, a daily wave and bursts", "meander.cli.generate_tweets"
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what can be generated as commands of their own."""
    add_commands(parser, KINDS, parser.get_default("argv"))


def run(args: argparse.Namespace) -> int:
    """Not reached: a kind is required and brings its own `run`."""
    raise NotImplementedError
