"""What must be alike in all processes of a deployment: rows and states cross between them."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version

WIRE = 1
"""Raised with every change of the wire format."""


@cache
def versions() -> dict[str, str]:
    """Name the versions that peers compare.

    >>> sorted(versions())
    ['meander', 'numpy', 'pyarrow', 'python', 'wire']
    """
    found = {"python": ".".join(platform.python_version_tuple()[:2]), "wire": str(WIRE)}
    for package in ("meander", "numpy", "pyarrow"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # shipped as files
            found[package] = "unknown"
    return found
