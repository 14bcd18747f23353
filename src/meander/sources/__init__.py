"""Streams: Kafka, files, sockets, generated ones; and the interface that sources have.

    Kafka                records of a topic, for `op.source`
    Texts                lines of files and sockets, generated tweets: the same
    FileReplay           rows of files as they came, for `Texts`
    SocketLines          lines from a TCP server, for `Texts`
    PartitionedSource    what else can be read by `op.source`: write your own
    JointSource          the same, where partitions cost less when they are read together
    BegunSource          the same, where a source may begin at what is newest
    PlacedSource         the same, where the program's next run begins where the first did
    SourceBatch          what such a source gives: a batch that has an offset;
    SourceRows           or rows that have one each

An offset always means the same rows. No Spark: `spark.pipeline.feeding` runs sources in its tasks.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meander.runtime.process.source import (
        BegunSource,
        JointSource,
        PartitionedSource,
        PlacedSource,
        SourceBatch,
        SourceRows,
    )
    from meander.sources.files import FileReplay, SocketLines
    from meander.sources.kafka import Kafka
    from meander.sources.texts import Texts

__all__ = [
    "BegunSource",
    "FileReplay",
    "JointSource",
    "Kafka",
    "PartitionedSource",
    "PlacedSource",
    "SocketLines",
    "SourceBatch",
    "SourceRows",
    "Texts",
]

_PLACES = {
    "FileReplay": "meander.sources.files",
    "Kafka": "meander.sources.kafka",
    "SocketLines": "meander.sources.files",
    "Texts": "meander.sources.texts",
}


def __getattr__(name: str) -> Any:
    """Load what was asked for: to import this package loads neither Arrow nor Kafka."""
    if name in __all__:
        return getattr(import_module(_PLACES.get(name, "meander.runtime.process.source")), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
