"""Where outputs go, in transactions: Kafka, files; and the interface that sinks have.

Kafka                records of a topic, for `op.sink`
Files                Parquet files in a folder
TransactionalSink    what else can be written by `op.sink`, with its SinkWriter: write your own
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meander.runtime.process.sink import SinkWriter, TransactionalSink
    from meander.sinks.files import Files
    from meander.sinks.kafka import Kafka

__all__ = ["Files", "Kafka", "SinkWriter", "TransactionalSink"]

_PLACES = {"Files": "meander.sinks.files", "Kafka": "meander.sinks.kafka"}


def __getattr__(name: str) -> Any:
    """Load what was asked for: to import this package loads neither Arrow nor Kafka."""
    if name in __all__:
        return getattr(import_module(_PLACES.get(name, "meander.runtime.process.sink")), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
