"""The restart baseline: an end and a new beginning, with the product as it is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa

from meander.operators import WordCount
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.driver.local import deploy_local
from meander.runtime.driver.monitor import TRACE_CHUNKS_MAX
from meander_lab.baselines.restart import MEMORY, RestartSite, checkpoint_folder

WORDS = [f"word{i}" for i in range(300)]


def test_a_restart_keeps_every_count_and_every_latency(tmp_path: Path) -> None:
    """1. feed  2. restart with more nodes  3. feed  4. restart with fewer  5. feed, compare."""
    operator, fed = WordCount(), Counter[str]()
    operator.trace_chunks_max = TRACE_CHUNKS_MAX
    with WarmLauncher() as launcher:

        def deploy(nodes: int) -> ElasticOperator:
            return deploy_local(
                operator, tasks=16, nodes=nodes, launcher=launcher, checkpoint=str(tmp_path),
                checkpoint_s=0.2,
            )  # fmt: skip

        with RestartSite(deploy, 2) as site:
            with site.watched(0.5):
                nurseries = {launcher.nursery_pid}
                for nodes in (3, 1, None):
                    for k in range(20):
                        words = WORDS[k * 10 : k * 10 + 40]
                        site.feed(pa.record_batch({"word": words}))
                        fed.update(words)
                    if nodes is not None:
                        done = site.restart(nodes)
                        assert len(site.op.driver.nodes()) == nodes
                        assert done.bytes_moved > 0
                        laps = {"stop_s", "write_s", "end_s", "start_s"}
                        assert sum(done.phases[lap] for lap in laps) <= done.seconds + 1e-6
                        nurseries.add(launcher.nursery_pid)
                site.flush()
            state = site.op.state()
        assert len(nurseries) == 1, "it stays warm"
    assert dict(zip(state["word"].to_pylist(), state["count"].to_pylist(), strict=True)) == fed
    assert int(site.samples().rows.sum()) == fed.total()


def test_the_folder_is_in_memory_only_where_there_is_room() -> None:
    with checkpoint_folder(1) as folder:
        assert folder.is_dir()
        assert (folder.parent == MEMORY) is MEMORY.is_dir()
    assert not folder.exists()
    with checkpoint_folder(2**60) as folder:
        assert folder.parent != MEMORY
