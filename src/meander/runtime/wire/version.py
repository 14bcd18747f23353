"""What must be alike in all processes of a deployment: rows and states cross between them."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import version

from meander.version import __version__

WIRE = 4
"""Raised with every change of the wire format."""
REQUEST_BYTES_MAX = 16 * 2**20
"""What a request may have; one that names a million tasks has about 10 MiB."""


@cache
def versions() -> dict[str, str]:
    """Name the versions that peers compare.

    >>> sorted(versions())
    ['meander', 'numpy', 'pyarrow', 'python', 'wire']
    """
    python = ".".join(platform.python_version_tuple()[:2])
    # Meander may be there as files only, sent along by the launcher, without an installation.
    found = {"python": python, "wire": str(WIRE), "meander": __version__}
    return found | {package: version(package) for package in ("numpy", "pyarrow")}
