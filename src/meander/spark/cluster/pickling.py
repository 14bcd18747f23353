"""What goes to executors is pickled as Spark pickles closures."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from meander.errors import InputError


def dumps(value: object, what: str) -> bytes:
    """Pickle as Spark pickles closures: what a script or a notebook defines goes along whole.

    Raises:
        InputError: naming `what` could not be pickled, and the cause.
    """
    from pyspark import cloudpickle

    write: Any = cloudpickle.dumps
    try:
        return bytes(write(value))
    except Exception as error:  # cloudpickle lets through whatever the object's own code raises
        raise InputError(
            f"{what} cannot be sent to Spark's executors: {short(error)}. Keep files, connections, "
            "locks and sessions out of it and make them where it runs (`open`)"
        ) from error


def send_whole(module: ModuleType) -> None:
    """Have what a module defines go along whole: executors need not have the module."""
    from pyspark import cloudpickle

    register: Any = cloudpickle.register_pickle_by_value
    register(module)


def short(error: BaseException) -> str:
    """Say what an error is, in a line."""
    first = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"
