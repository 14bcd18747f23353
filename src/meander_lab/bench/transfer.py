"""How fast states move when nothing else happens: what `meander bench transfer` measures.

Two nodes hold the same amount each, and one of them leaves: all that it holds goes to the other, copied
ahead under a pause budget, or whole through the state server. No row flows meanwhile. Before it, the
same bytes go through a bare Flight stream (`baselines.bare_copy`).
"""

from __future__ import annotations

import time
from typing import Any

from meander.operators import WordCount
from meander.run.flow import Site
from meander.runtime.process.warm import settle_heap, warm_up
from meander_lab.baselines.bare_copy import bare_copy
from meander_lab.bench.live import Deploy
from meander_lab.bench.load import LiveSetting, exact, fill

MIGRATION_S_MAX = 600.0


def transfer(setting: LiveSetting, deploy: Deploy) -> dict[str, Any]:
    """Move half of a state, and give bytes a second."""
    warm_up()
    settle_heap()
    bare = bare_copy(int(setting.state_mb * 2**20 / 2))
    pause_ms = setting.pause_ms or None
    with Site(lambda nodes: deploy(WordCount(), nodes, None, 1.0), setting.nodes) as site:
        fill(site, setting)
        site.op.plan(setting.to, pause_ms=pause_ms)  # has the planner compiled
        began = time.monotonic()
        report = site.op.rescale(setting.to, pause_ms=pause_ms).wait(MIGRATION_S_MAX)
        seconds = time.monotonic() - began
        right = exact(setting, site.op.state_table(timeout_s=MIGRATION_S_MAX), [])
    return {
        "bytes_moved": report.bytes_moved, "seconds": seconds, "exact": right,
        "mb_s": report.bytes_moved / seconds / 1e6, "tasks_moved": report.moved,
        "bare_mb_s": bare.mb_s, "bare_kept_mb_s": bare.kept_mb_s,
        "rounds": [dict(found) for found in report.rounds], "setting": vars(setting),
    }  # fmt: skip
