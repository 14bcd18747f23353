"""The options of `format("meander")`, by what they are for. One that nobody knows is refused.

Spark does not look at the options of a data source, and hands some of its own over with them. Names
are compared as Spark does: without regard to case.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from meander.errors import InputError

EVERYWHERE: Final = ("operator", "token")
SINK: Final = ("nullKeys", "commitTimeout", "words", "cut", "input")
STREAM_SINK: Final = (*EVERYWHERE, *SINK)
BATCH_SINK: Final = (*EVERYWHERE, *SINK, "query", "batch", "rows", "watermark")
OUTPUTS: Final = (*EVERYWHERE, "read", "startingOffsets", "failOnDataLoss", "release", "output")
STATE: Final = (*EVERYWHERE, "read", "timeout", "of", "whole")

SPARKS: Final = frozenset({"checkpointlocation", "queryname", "path", "paths"})
"""Options that Spark takes and hands on; those of its own making begin with two underscores."""


def is_true(text: str | None) -> bool:
    """Read an option that is on or off, as Spark does.

    >>> is_true("True"), is_true("false"), is_true(None)
    (True, False, False)
    """
    return text is not None and text.lower() == "true"


def check_options(given: Iterable[str], known: tuple[str, ...], what: str) -> None:
    """Refuse an option that nobody would look at.

    >>> check_options(["nulKeys"], STREAM_SINK, "a streaming write")
    Traceback (most recent call last):
    meander.errors.InputError: a streaming write has no option 'nulKeys' (did you mean nullKeys?): \
it has operator, token, nullKeys, commitTimeout, words, cut, input

    Raises:
        InputError: naming it, the nearest that there is, and all of them.
    """
    spelled = {name.lower(): name for name in known}
    for name in given:
        if name.lower() in spelled or name.lower() in SPARKS or name.startswith("__"):
            continue
        near = get_close_matches(name.lower(), spelled, 1)
        meant = f" (did you mean {spelled[near[0]]}?)" if near else ""
        raise InputError(f"{what} has no option {name!r}{meant}: it has {', '.join(known)}")
