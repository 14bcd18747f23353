"""Meander: elastic stateful streaming on PySpark.

>>> import meander
>>> with meander.deploy(spark, WordCount(), nodes=4) as counts:                  # doctest: +SKIP
...     counts.rescale(8, pause_ms=100).wait()
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meander.spark.deploy.deploy import deploy as deploy
    from meander.spark.processor.operator import processor as processor

__version__ = "0.1.0"

__all__ = ["__version__", "deploy", "processor"]


def __getattr__(name: str) -> Any:
    """Load Spark and all below it when they are first asked for, not with every import."""
    if name == "deploy":
        from meander.spark.deploy.deploy import deploy

        return deploy
    if name == "processor":
        from meander.spark.processor.operator import processor

        return processor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
