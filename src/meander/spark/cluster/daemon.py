"""The process that Spark forks Python workers from, with everything heavy already imported.

Spark's own daemon imports nothing, so each worker pays for NumPy, Arrow, Numba and the loading of
compiled kernels by itself. This one pays once; a node then starts in the time of a fork, and nodes of
one machine share that memory. A session uses it when it was started with

    spark.python.daemon.module=meander.spark.cluster.daemon

as `meander.spark.cluster.session.local` does. It cannot be set later.

Rules
  1. Nothing here *uses* gRPC or Flight: a fork after its first use hangs. Importing is harmless.
  2. No thread is started. (jemalloc, inside Arrow, has one and looks after it at a fork. OpenBLAS
     would start one per core: it is told to do without, unless OPENBLAS_NUM_THREADS says otherwise.)
  3. stdout belongs to Spark, which reads a port from it: nothing is printed.
  4. A worker may have threads, and cannot fork: a process that has none does it for it (`forks`).
  5. A worker that has nothing to do with Meander behaves as under Spark's own daemon.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module

MODULES = (
    "numpy",
    "pandas",
    "pyarrow.compute",
    "pyarrow.flight",
    "numba",
    "meander.operators",
    "meander.runtime.roles.nursery",
    "meander.runtime.roles.entry",
    "pyspark.worker",
    "meander.spark.deploy.seat",
    "meander.spark.datasource.state_source",
)
"""What nodes need, in the order of the layers. One that is missing is missed by its user, later."""


def warm() -> None:
    """Load the compiled kernels: those of nodes, and those that cut texts into words."""
    import pyarrow as pa

    from meander.operators import tokenise
    from meander.runtime.process.warm import warm_up

    tokenise(pa.array(["two words"]))
    warm_up()


def settle() -> None:
    """Exempt all that from the full collection that Spark has workers do after every task."""
    from meander.runtime.process.warm import settle_heap

    settle_heap()


def prepare() -> None:
    """Import and warm everything; whatever fails is left to whoever needs it."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    steps: list[Callable[[], object]] = [partial(import_module, module) for module in MODULES]
    for step in (*steps, warm, settle):
        try:
            step()
        except Exception as error:
            print(f"meander.spark.cluster.daemon: {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    prepare()
    from meander.spark.cluster.forks import open_desk

    open_desk()
    from pyspark.daemon import manager

    manager()
