"""Make sure that executors have this package, and the same versions of what rows cross through.

A tiny Spark task looks, on every executor that is there. Where the package is missing (a cluster on
which only the driver has it) its files are sent along as a zip, which works from an editable install as
well. Where NumPy or Arrow are missing or of other versions nothing can be sent: it is an error that
says what was found.

The tasks are the first in Python on their executors. Each starts the daemon there that nodes come from,
which takes seconds, on all at the same time; nodes need but a fork then.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meander import version
from meander.errors import InputError
from meander.spark.cluster.daemons import NODES, with_daemon
from meander.spark.cluster.executors import executors
from meander.spark.cluster.placed import placed

if TYPE_CHECKING:
    from pyspark import SparkContext

PACKAGES = ("numpy", "pyarrow", "numba")
"""What nodes import. Rows and states cross between processes as NumPy and Arrow lay them out."""


def equip(context: SparkContext) -> bool:
    """Look at the executors, and send the package if one lacks it.

    Returns:
        Whether it was sent.

    Raises:
        InputError: for other versions of Python, NumPy, Arrow, Numba or Meander there.
    """
    here, found = _looker()(), _ask(context)
    sent = any(there["meander"] == "" for there in found)
    if sent:
        context.addPyFile(str(zip_package()))
        found = _ask(context)
    for there in found:
        _check(here, there)
    return sent


def _check(here: dict[str, str], there: dict[str, str]) -> None:
    wrong = [
        f"{name}: {there[name] or 'missing'} (the driver has {here[name]})"
        for name in here
        if name != "executable" and here[name] != there[name]
    ]
    if wrong:
        listed = "".join(f"\n  {line}" for line in wrong)
        raise InputError(
            f"executors run {there['executable']}, which differs from the driver in{listed}\n"
            "Set PYSPARK_PYTHON to the same environment, or install the same versions there"
        )


def _ask(context: SparkContext) -> list[dict[str, str]]:
    """Look where Spark tasks run, one for each executor; those that come later are as these."""
    look, near = _looker(), with_daemon(context, NODES)
    places = [f"executor_{e.host}_{e.name}" for e in executors(context) if not e.leaving]
    if len(places) < 2:
        return near.parallelize([0], 1).map(lambda _: look()).collect()
    return placed(near, [(b"", place) for place in places]).map(lambda _: look()).collect()


def _looker() -> Callable[[], dict[str, str]]:
    """Make the function that looks. It is nested, so that it is pickled whole and not by name."""
    packages = PACKAGES

    def look() -> dict[str, str]:
        import importlib
        import importlib.metadata
        import sys

        found = {"python": f"{sys.version_info[0]}.{sys.version_info[1]}"}
        for package in packages:
            try:
                found[package] = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                found[package] = ""
        try:
            module: Any = importlib.import_module("meander.version")
            found["meander"] = module.__version__
        except ImportError:
            found["meander"] = ""
        return {**found, "executable": sys.executable}

    return look


def _remove(folder: str, pid: int) -> None:
    if os.getpid() == pid:  # a fork of the program ends for itself
        shutil.rmtree(folder, ignore_errors=True)


def zip_package() -> Path:
    """Write the package's files to a zip that Python can import from; it lasts as long as we do."""
    source = Path(version.__file__).parent
    folder = tempfile.mkdtemp(prefix="meander-package-")
    atexit.register(_remove, folder, os.getpid())
    target = Path(folder) / f"meander-{version.__version__}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(source.rglob("*")):
            if path.is_file() and path.suffix not in {".pyc", ".nbi", ".nbc"}:
                archive.write(path, Path("meander") / path.relative_to(source))
    return target
