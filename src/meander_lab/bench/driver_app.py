"""An application that may be killed at any moment: what `meander bench restart` kills and starts again.

`python -m meander_lab.bench.driver_app` reads its wish, a line of JSON, then deploys word count on its
checkpoint and feeds it, until it is killed or reads `finish N`: then it ends when batch N was fed. It
says what it has reached, a line of JSON each, with the time:

    begun
    session    of Spark, if there is one
    serving    `deploy` has returned
    feeding    every batch, before it is fed
    taking     the first of them is applied
    filled     every key was fed, and is durable
    ended      with the verdict on all counts

Any batch of its stream can be made again from its number, so whoever starts anew knows where to go on
from the checkpoint alone. Tasks may know some batches after that, which they pass over when they come
again; so counts can be told once all batches that anybody has fed were fed again.
"""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander_lab.bench.load import FILL_ROWS, LiveSetting, counts_of

if TYPE_CHECKING:
    from meander.runtime.clients.feeder import FeederClient
    from meander.runtime.driver.elastic import ElasticOperator

BATCH_ROWS: Final = 1000
BATCH_S: Final = 0.05
CHECKPOINT_S: Final = 1.0
PATIENCE_S: Final = 600.0
FINISH: Final = "finish"


class Numbered:
    """The stream: first every key once, then some keys again and again, by the number of the batch."""

    def __init__(self, setting: LiveSetting) -> None:
        self.setting = setting
        self.filling = -(-setting.keys // FILL_ROWS)
        """So many batches fill the state."""

    def ids(self, number: int) -> npt.NDArray[np.int64]:
        """Give the keys of a batch."""
        keys = self.setting.keys
        if number < self.filling:
            return np.arange(number * FILL_ROWS, min((number + 1) * FILL_ROWS, keys))
        draw = np.random.default_rng((self.setting.seed, number))
        return draw.integers(keys, size=BATCH_ROWS)

    def batch(self, number: int) -> Any:
        """Make a batch."""
        return self.setting.batch(self.ids(number))

    def compared(self, state: pa.Table, batches: int) -> dict[str, int]:
        """Compare a state with what the first so many batches give: rows lost, and counted twice."""
        expected = np.zeros(self.setting.keys, dtype=np.int64)
        for number in range(batches):
            np.add.at(expected, self.ids(number), 1)
        more = counts_of(self.setting, state) - expected
        return {"lost": int(-more[more < 0].sum()), "duplicated": int(more[more > 0].sum())}


class Deploys(Protocol):
    """Starts the operator on its checkpoint."""

    def __call__(self, checkpoint: str) -> AbstractContextManager[ElasticOperator]:
        """Wait until it serves."""


def say(what: str, **facts: Any) -> None:
    """Tell whoever started this process."""
    sys.stdout.write(json.dumps({"what": what, "at_s": time.time(), **facts}) + "\n")
    sys.stdout.flush()


@contextmanager
def ground(wish: Mapping[str, Any]) -> Iterator[Deploys]:
    """Give what deploys: on a Spark cluster if there is one, else on processes of this machine."""
    from meander.operators import WordCount

    options: dict[str, Any] = {"tasks": wish["tasks"], "nodes": wish["nodes"]}
    options["checkpoint_s"] = CHECKPOINT_S
    if wish["master"] is None:
        from meander.runtime.driver.local import deploy_local

        say("session")
        yield lambda checkpoint: deploy_local(WordCount(), checkpoint=checkpoint, **options)
        return
    import meander
    from meander.spark.cluster.session import local

    spark = local(wish["master"], extra=wish["session"])
    say("session")
    try:
        yield lambda checkpoint: meander.deploy(
            spark, WordCount(), checkpoint=checkpoint, host=wish["host"], **options
        )
    finally:
        spark.stop()


def stream(op: ElasticOperator, feeder: FeederClient, source: Numbered) -> int:
    """Feed from where the checkpoint ends, until told to finish; give how many batches there were."""
    last = [math.inf]
    threading.Thread(target=_listen, args=(last,), daemon=True).start()
    first = number = feeder.wait_ready(PATIENCE_S) + 1
    due_s = time.monotonic()
    while number <= max(last[0], source.filling):
        say("feeding", number=number)
        feeder.feed(source.batch(number), offset=number)
        if number == first:
            feeder.flush(timeout_s=PATIENCE_S)
            say("taking", number=number)
        number += 1
        if number == source.filling:
            feeder.flush(durable=True, timeout_s=PATIENCE_S)
            say("filled", state_bytes=sum(int(t[2]) for t in op.metrics()["tasks"].values()))
        if number >= source.filling:
            due_s = max(due_s + BATCH_S, time.monotonic() - 1.0)
            time.sleep(max(0.0, due_s - time.monotonic()))
    return number


def _listen(last: list[float]) -> None:
    for line in sys.stdin:
        word, _, number = line.partition(" ")
        if word == FINISH:
            last[0] = int(number)


def main() -> int:
    """Be the application."""
    say("begun")
    wish = json.loads(sys.stdin.readline())
    source = Numbered(LiveSetting(state_mb=wish["state_mb"], seed=wish["seed"]))
    with ExitStack() as stack:
        deploy = stack.enter_context(ground(wish))
        op = stack.enter_context(deploy(wish["checkpoint"]))
        at, told = next((at, told) for at, what, told in op.driver.events if what == "started")
        say("serving", served_s=time.time() - time.monotonic() + at, **told)
        feeder = stack.enter_context(op.feeder("stream"))
        batches = stream(op, feeder, source)
        feeder.flush(durable=True, timeout_s=PATIENCE_S)
        table = op.state_table(timeout_s=PATIENCE_S)
        say("ended", batches=batches, **source.compared(table, batches))
    return 0


if __name__ == "__main__":
    sys.exit(main())
