"""Small files beside large ones: on this machine or wherever a URI leads. No Spark here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from meander.errors import InputError

SIGNS_OF_SPARK = {"_SUCCESS", "_temporary"}
"""One of them is in whatever directory Spark has written, or had begun to write."""


def filesystem(path: str) -> tuple[pafs.FileSystem, str]:
    """Give the file system of a path or URI, and the path inside it."""
    if "://" not in path:
        return pafs.LocalFileSystem(), str(Path(path).absolute())
    try:
        found: tuple[pafs.FileSystem, str] = pafs.FileSystem.from_uri(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be reached: {error}") from None
    return found


def check_output(path: str, *, force: bool) -> None:
    """Refuse an output directory that holds something, unless forced to replace an earlier output.

    Raises:
        InputError: when the path is a file, or a directory with something else in it.
    """
    system, inside = filesystem(path)
    kind = system.get_file_info(inside).type
    if kind == pafs.FileType.File:
        raise InputError(f"{path} is a file: the output is a directory")
    if kind != pafs.FileType.Directory:
        return
    names = {Path(found.path).name for found in system.get_file_info(pafs.FileSelector(inside))}
    if names and force and not names & SIGNS_OF_SPARK:
        raise InputError(f"{path} holds what Meander did not write: --force will not delete it")
    if names and not force:
        raise InputError(f"{path} is not empty: choose another output, or say --force")


def write_json(path: str, value: Any) -> None:
    """Write a value as indented JSON."""
    system, inside = filesystem(path)
    with system.open_output_stream(inside) as file:
        file.write((json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def read_json(path: str, kind: str) -> dict[str, Any]:
    """Read an object whose key `format` is `kind`.

    Raises:
        InputError: when it is not there, not JSON, or of another kind.
    """
    system, inside = filesystem(path)
    try:
        with system.open_input_stream(inside) as file:
            value = json.loads(file.read())
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    if not isinstance(value, dict) or value.get("format") != kind:
        raise InputError(f"{path} is not of format {kind}")
    return value
