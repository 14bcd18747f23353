"""Where a figure comes from: which commit, which code, which machine."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]
"""The package that runs."""
LAB = SOURCE.parent / "meander_lab"
"""The laboratory beside it, where it is installed."""


@cache
def commit() -> str:
    """Name the commit of the source tree that runs, `dirty-` when it has changes.

    Outside of a work tree it is the version.
    """
    try:
        head, status = (
            subprocess.run(
                ["git", "-C", str(SOURCE), *words], capture_output=True, text=True, check=True,
                timeout=10,
            ).stdout.strip()
            for words in (("rev-parse", "--short", "HEAD"), ("status", "--porcelain", "-uno"))
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        from meander.version import __version__

        return f"version-{__version__}"
    return f"dirty-{head}" if status else head


@cache
def code() -> str:
    """Fingerprint the source files themselves.

    A commit that touches only the docs leaves what was measured valid, and two states of a dirty
    tree differ: so this, and not the commit, decides whether a cell must be measured again.
    """
    digest = sha256()
    for path in _sources():
        digest.update(str(path.relative_to(SOURCE.parent)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _sources() -> Iterator[Path]:
    """The files that can change a measurement; how it is drawn and judged cannot."""
    for root in (SOURCE, LAB):
        for path in sorted(root.rglob("*.py")):
            inside = path.relative_to(root).parts
            if inside[0] != "cli" and not (inside[0] == "experiments" and path.stem in DRAWN):
                yield path


DRAWN = frozenset({
    "canvas", "plots", "plots_live", "links_text", "claims", "claims_examples",
    "claims_links", "claims_live", "claims_planning", "claims_reasons", "claims_rest", "verdicts",
    "noise", "thresholds", "abstract", "report", "page", "columns", "runner", "registry", "tables",
})  # fmt: skip
"""Modules of `meander_lab.experiments` that measure nothing."""


@cache
def machine() -> str:
    """Describe the machine in a line."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores of {_processor()}, {memory:.0f} GiB, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}"
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    found = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(found, platform.processor() or platform.machine())
