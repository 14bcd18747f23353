"""An application for the example: words are counted, and rescaled by Structured Streaming's load.

Replace it by your own. What matters: `host` is the pod's address, which executors reach; `checkpoint`
is an object store, where the next driver goes on; and the program ends when the query does, so that
Kubernetes starts it again.
"""

from __future__ import annotations

import os

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import meander
from meander.operators import WordCount


def main() -> None:
    """Count words until the query ends."""
    spark = SparkSession.builder.appName("word-count").getOrCreate()
    rows = spark.readStream.format("rate").option("rowsPerSecond", 10_000).load()
    words = rows.select(F.concat(F.lit("word"), F.col("value") % 100_000).alias("word"))
    with meander.deploy(
        spark,
        WordCount(),
        nodes=int(os.environ.get("NODES", "4")),
        host=os.environ["POD_IP"],
        checkpoint=os.environ["CHECKPOINT"],
    ) as counts:
        query = (
            words.writeStream.format("meander")
            .option("operator", counts.address)
            .option("checkpointLocation", os.environ["QUERY_CHECKPOINT"])
            .start()
        )
        query.awaitTermination()


if __name__ == "__main__":
    main()
