"""An operator of one's own, named on the command line: `MODULE:NAME`."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from meander.errors import InputError

if TYPE_CHECKING:
    from meander.operators.base import Operator


def operator_of(text: str) -> Operator[Any]:
    """Make the operator that `MODULE:NAME` names: a class, a function that makes one, or a value.

    The module is found as Python finds it, or beside whoever calls; it goes to the nodes whole, so they
    need not have it. What it imports of its own they must have.

    >>> operator_of("meander.operators:WordCount").name
    'WordCount'

    Raises:
        InputError: saying what is wrong with it.
    """
    from meander.operators.base import Operator
    from meander.spark.cluster.pickling import send_whole

    named = re.fullmatch(r"([\w.]+):(\w+)", text)
    if named is None:
        raise InputError(
            f"{text!r} names no operator: write MODULE:NAME, for example my_counts:MyOperator"
        )
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = import_module(named[1])
        found = getattr(module, named[2])
        made = found if isinstance(found, Operator) else found()
    except Exception as error:  # whatever the user's own code raises
        raise InputError(f"{text} cannot be made: {type(error).__name__}: {error}") from None
    if not isinstance(made, Operator):
        raise InputError(f"{text} is no operator: it is {type(made).__name__}")
    if made.inputs:
        raise InputError(
            f"{text} has several inputs ({', '.join(made.inputs)}): deploy it from a program, with a "
            "feeder for each"
        )
    if not module.__name__.startswith("meander"):
        send_whole(module)
    return made
