"""The arguments of `meander run frequent-patterns`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from meander.cli.arguments import positive
from meander.cli.sources import length
from meander.errors import InputError

if TYPE_CHECKING:
    from meander.run.apps import FindPatterns

TOP = "top:"
DEFAULTS: dict[str, Any] = {
    "window": 90, "threshold": 15, "size": 2, "words_max": 20, "dictionary": None,
    "stop_words": None, "drain_window": False,
}  # fmt: skip


def add_patterns(parser: argparse.ArgumentParser) -> None:
    """Add which patterns there are, and when they are frequent."""
    group = parser.add_argument_group("frequent-patterns")
    group.add_argument(
        "--window", type=length, metavar="LENGTH", help="of event time, as 90s or 2h (default: 90s)"
    )
    group.add_argument(
        "--threshold", type=_count, metavar="N", help="frequent is what comes more often (15)"
    )
    group.add_argument("--size", type=positive, metavar="K", help="most words in a pattern (2)")
    group.add_argument(
        "--words-max", type=positive, metavar="K", help="most words taken of a tweet (20)"
    )
    group.add_argument(
        "--dictionary", metavar="FILE|top:N",
        help="the only words to take: listed in FILE, or the N most frequent ones of the input",
    )  # fmt: skip
    group.add_argument(
        "--stop-words", metavar="FILE|none", help="words to leave out (default: a built-in list)"
    )
    group.add_argument(
        "--drain-window", action="store_true", default=None,
        help="let the window empty at the end of the input; its last content stays otherwise",
    )  # fmt: skip


def _count(text: str) -> int:
    """Read a whole number of at least 0."""
    return 0 if text == "0" else positive(text)


def refuse_patterns(args: argparse.Namespace) -> None:
    """Refuse what only frequent patterns understand.

    Raises:
        InputError: naming the argument.
    """
    for name in DEFAULTS:
        if getattr(args, name) is not None:
            said = f"--{name.replace('_', '-')}"
            raise InputError(f"{said} is for frequent-patterns; {args.operator} has no use for it")


def patterns_of(args: argparse.Namespace) -> FindPatterns:
    """Make the application of the arguments.

    Raises:
        InputError: for a list of words that cannot be read, or too many patterns of a tweet.
    """
    from meander.operators.patterns.rules import STOP_WORDS, PatternRules, read_words
    from meander.run.apps import FindPatterns

    given = {
        name: default if getattr(args, name) is None else getattr(args, name)
        for name, default in DEFAULTS.items()
    }
    stop_words = STOP_WORDS
    if given["stop_words"] is not None:
        none = given["stop_words"] == "none"
        stop_words = frozenset() if none else read_words(given["stop_words"])
    dictionary, top_words = frozenset[str](), 0
    if given["dictionary"] is not None and given["dictionary"].startswith(TOP):
        top_words = _top(given["dictionary"])
    elif given["dictionary"] is not None:
        dictionary = read_words(given["dictionary"])
    if dictionary and not dictionary - stop_words:
        raise InputError(f"{given['dictionary']} holds stop words only: say --stop-words none")
    rules = PatternRules(given["window"], given["size"], given["words_max"], stop_words, dictionary)
    return FindPatterns(rules, given["threshold"], top_words, given["drain_window"])


def _top(text: str) -> int:
    try:
        return positive(text.removeprefix(TOP))
    except argparse.ArgumentTypeError:
        raise InputError(f"--dictionary {text}: write top:N, for example top:5000") from None
