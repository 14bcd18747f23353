"""Which daemon the Python workers of a job come from: Spark keeps one for each environment.

A daemon takes seconds to start, and Spark starts one at a time (all makers of workers wait for one
lock). So jobs that may share one say so by their environment, and those that must not, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark import SparkContext

NODES: Final = {"MEANDER_DAEMON": "nodes"}
"""A variable that nobody reads: what differs is the environment."""


def with_daemon(context: SparkContext, of: dict[str, str]) -> SparkContext:
    """Give a view of a context whose jobs have their workers from another daemon than its own."""
    view: SparkContext = object.__new__(type(context))
    view.__dict__.update(context.__dict__)
    view.environment = {**context.environment, **of}
    return view
