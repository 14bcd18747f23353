"""Where a run writes: a folder of its own, and nothing that is not its own is touched."""

from __future__ import annotations

import shutil
from pathlib import Path

from meander.errors import InputError

WRITTEN = ("state", "patterns", "changes", "report.json", "report.html")
"""What a run writes, and what --force replaces."""


def prepare(output: Path, *, force: bool = False) -> None:
    """Make the output directory, before anything expensive and when the input is known to be good.

    Args:
        output: where.
        force: whether an earlier run there is removed.

    Raises:
        InputError: if it holds something, or cannot be made.
    """
    if force:
        clear(output)
    try:
        output.mkdir(parents=True, exist_ok=True)
        if any(output.iterdir()):
            raise InputError(f"{output} is not empty: choose another output, or say --force")
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error.strerror}") from None


def clear(output: Path) -> None:
    """Remove an earlier run, and nothing else.

    Raises:
        InputError: if the directory holds something else.
    """
    if not output.is_dir():
        return
    others = sorted(p.name for p in output.iterdir() if p.name not in WRITTEN)
    if others:
        raise InputError(f"{output} holds {others[0]}, which no run wrote: --force keeps it")
    shutil.rmtree(output)
