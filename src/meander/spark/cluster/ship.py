"""Make sure that executors have this package, and the same versions of what rows cross through.

A tiny Spark task looks. Where the package is missing (a cluster on which only the driver has it) its
files are sent along as a zip, which works from an editable install as well. Where NumPy or Arrow
are missing or of other versions nothing can be sent: it is an error that says what was found.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meander import version
from meander.errors import InputError
from meander.spark.cluster.daemons import QUERIES, with_daemon

if TYPE_CHECKING:
    from pyspark import SparkContext

PACKAGES = ("numpy", "pyarrow", "numba")
"""What nodes import. Rows and states cross between processes as NumPy and Arrow lay them out."""


def equip(context: SparkContext) -> bool:
    """Look at an executor, and send the package if it lacks it.

    Returns:
        Whether it was sent.

    Raises:
        InputError: for other versions of Python, NumPy, Arrow, Numba or Meander there.
    """
    here, there = _looker()(), _ask(context)
    sent = there["meander"] == ""
    if sent:
        context.addPyFile(str(zip_package()))
        there = _ask(context)
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
    return sent


def _ask(context: SparkContext) -> dict[str, str]:
    """Look where a Spark task runs; the daemon that this starts is that of queries and reads."""
    look, near = _looker(), with_daemon(context, QUERIES)
    found: dict[str, str] = near.parallelize([0], 1).map(lambda _: look()).collect()[0]
    return found


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


def zip_package() -> Path:
    """Write the package's files to a zip that Python can import from; it lasts as long as we do."""
    source = Path(version.__file__).parent
    folder = tempfile.mkdtemp(prefix="meander-package-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = Path(folder) / f"meander-{version.__version__}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(source.rglob("*")):
            if path.is_file() and path.suffix not in {".pyc", ".nbi", ".nbc"}:
                archive.write(path, Path("meander") / path.relative_to(source))
    return target
