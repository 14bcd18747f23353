"""NexMark's queries as Spark SQL, over all events at once: what every answer is compared with."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from meander_lab.nexmark.events import SCHEMAS, Nexmark
from meander_lab.nexmark.queries import (
    CATEGORY,
    COLUMNS,
    EVERY_AUCTION,
    EXCHANGE,
    IDS,
    LAST,
    STATES,
)

TEN, TWO = "INTERVAL 10 SECONDS", "INTERVAL 2 SECONDS"

_WINNING = """
SELECT A.id, A.seller, A.category, A.expires, max(B.price) AS price
FROM auction A JOIN bid B ON A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
GROUP BY A.id, A.seller, A.category, A.expires
"""
_COUNTS = """
SELECT auction, count(*) AS bids, w.end AS window_end
FROM (SELECT auction, window(dateTime, '10 seconds', '2 seconds') AS w FROM bid)
GROUP BY auction, w
"""

SQL: Final = {
    "q0": "SELECT auction, bidder, price, dateTime FROM bid",
    "q1": f"SELECT auction, bidder, price * {EXCHANGE}D AS price, dateTime FROM bid",
    "q2": f"SELECT auction, price FROM bid WHERE auction % {EVERY_AUCTION} = 0",
    "q3": f"""
        SELECT P.name, P.city, P.state, A.id AS auction
        FROM auction A JOIN person P ON A.seller = P.id
        WHERE A.category = {CATEGORY} AND P.state IN {STATES}
        """,
    "q4": f"SELECT category, avg(price) AS mean FROM ({_WINNING}) GROUP BY category",
    "q5": f"""
        WITH counts AS ({_COUNTS})
        SELECT auction, bids, window_end FROM
        (SELECT *, max(bids) OVER (PARTITION BY window_end) AS most FROM counts) WHERE bids = most
        """,
    "q6": f"""
        SELECT seller, avg(price) AS mean FROM (
            SELECT *, row_number() OVER (
                PARTITION BY seller ORDER BY unix_micros(expires) * {IDS} + id % {IDS} DESC) AS place
            FROM ({_WINNING}))
        WHERE place <= {LAST} GROUP BY seller
        """,
    "q7": """
        SELECT auction, bidder, price, dateTime FROM (
            SELECT *, max(price) OVER (PARTITION BY w) AS highest
            FROM (SELECT *, window(dateTime, '10 seconds') AS w FROM bid))
        WHERE price = highest
        """,
    "q8": """
        SELECT DISTINCT P.id, P.name, P.w.end AS window_end
        FROM (SELECT *, window(dateTime, '10 seconds') AS w FROM person) P
        JOIN (SELECT *, window(dateTime, '10 seconds') AS w FROM auction) A
        ON P.id = A.seller AND P.w = A.w
        """,
    "q11": """
        SELECT bidder, count(*) AS bids, s.start AS window_start, s.end AS window_end
        FROM (SELECT bidder, session_window(dateTime, '10 seconds') AS s FROM bid)
        GROUP BY bidder, s
        """,
}


def views(spark: SparkSession, stream: Nexmark, events: int) -> None:
    """Let the session know the events as tables."""
    for kind in SCHEMAS:
        table = pa.Table.from_batches([stream.batch(kind, 0, events)])
        spark.createDataFrame(table).createOrReplaceTempView(kind)


def answer(spark: SparkSession, name: str) -> Any:
    """Answer a query over the tables that the session knows."""
    return spark.sql(SQL[name]).select(*COLUMNS[name]).toArrow()
