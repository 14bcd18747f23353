"""An RDD whose partitions would rather run in certain places: what PySpark has no call for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext


def placed(context: SparkContext, rows: Sequence[tuple[bytes, str]]) -> RDD[bytes]:
    """Give an RDD with a partition for each row: bytes, and the host or executor it prefers.

    Executors are named as Spark does: `executor_<host>_<id>`.
    """
    from pyspark import RDD
    from pyspark.serializers import NoOpSerializer

    jvm = context._jvm
    assert jvm is not None, "the context runs"
    seq = jvm.PythonUtils.toSeq
    pairs = [jvm.scala.Tuple2(bytearray(row), seq([place])) for row, place in rows]
    kind = getattr(getattr(jvm, "scala.reflect.ClassTag$"), "MODULE$").AnyRef()
    rdd = context._jsc.sc().makeRDD(seq(pairs), kind)
    return RDD(rdd.toJavaRDD(), context, NoOpSerializer())
