"""The bare side of `meander bench realtime` counts right: else it would be no comparison."""

from __future__ import annotations

import secrets

import pytest

from meander_lab.baselines.kafka_loop import KafkaLoop, counting
from meander_lab.bench.realtime_load import RealtimeLoad, consuming, producing
from meander_lab.servers.kafka import create_topic


@pytest.mark.parametrize("commit_s", [None, 0.05])
def test_a_loop_of_one_process_counts_every_record_once(
    servers: str, commit_s: float | None
) -> None:
    name = secrets.token_hex(4)
    load = RealtimeLoad(servers, f"in-{name}", f"out-{name}", 500, 2.0, 0.5, keys=50)
    for topic in (load.into, load.out_of):
        create_topic(servers, topic, 2)
    loop = KafkaLoop(servers, load.into, load.out_of, commit_s)
    with counting(loop), consuming(load) as consumer, producing(load) as producer:
        assert producer.poll(60), "the producer did not come up"
        consumer.send(producer.recv())
        assert consumer.poll(60), "outputs did not come"
        found = consumer.recv()
    assert found.last_right
    assert found.twice == 0
    assert found.outputs == found.records == load.records
