"""Word count on a Standalone cluster across hosts; run on the first of them, in a process of its own.

It tells one JSON object: how nodes were spread at each size, and whether all counts are right.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

import meander
from meander.operators import WordCount
from meander.runtime.process.source import SourceBatch
from meander.spark.cluster.session import local
from meander_lab.hosts.inside import here
from meander_lab.servers.standalone import across

BATCHES, ROWS = 400, 500


def words(number: int) -> list[str]:
    chosen = random.Random(number)
    return [f"w{int(chosen.paretovariate(0.6)) % 3000}" for _ in range(ROWS)]


def slowly(after: int) -> Iterator[SourceBatch]:
    for number in range(after + 1, BATCHES):
        time.sleep(0.05)
        yield SourceBatch(number, pa.record_batch({"word": words(number)}))


def until(true: Callable[[], Any], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.1)
    return bool(true())


def main() -> None:
    hosts = here()
    assert hosts is not None, "it is run on the first of some hosts"
    first = os.environ["SPARK_LOCAL_IP"] = hosts[1].address
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with TemporaryDirectory() as folder, across(hosts, cores=6) as cluster:
        spark = local(cluster.master, extra={**cluster.session, "spark.driver.memory": "1g"})
        with meander.deploy(
            spark, WordCount(), tasks=24, nodes=4, host=first, checkpoint=folder, checkpoint_s=0.5
        ) as op:

            def spread() -> list[int]:
                found = Counter(op.status()["hosts"].values())
                return sorted(found[host.address] for host in hosts if host.number > 1)

            source = op.source("words", slowly)
            said: dict[str, Any] = {"four": spread()}
            op.rescale(6).wait(120)
            said["six"] = spread()
            servers = op.driver.ask(lambda m: m.membership.addresses())
            said["servers"] = [
                (name, address) for name, address in servers.items() if name.startswith("server@")
            ]
            hosts[3].kill()
            began = time.monotonic()
            gone = hosts[3].address
            said["away"] = until(
                lambda: op.driver.serving() and gone not in op.status()["hosts"].values(), 120
            )
            said["away_s"] = round(time.monotonic() - began, 1)
            said["after a death"] = spread()
            source.wait(240)
            rows = op.state().collect()
        spark.stop()
    found = {row["word"]: row["count"] for row in rows}
    said["exact"] = found == Counter(w for n in range(BATCHES) for w in words(n))
    print(json.dumps(said), flush=True)  # noqa: T201 - it is how the test hears


if __name__ == "__main__":
    main()
