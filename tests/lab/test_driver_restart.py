"""An application that is killed comes back on its checkpoint, and counts every row once."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from meander.cli.main import main
from meander_lab.bench.driver_app import BATCH_ROWS, Numbered
from meander_lab.bench.driver_restart import PHASES
from meander_lab.bench.load import LiveSetting


def state_of(source: Numbered, batches: int) -> pa.Table:
    """Count the first so many batches, as a state would."""
    fed = pa.Table.from_batches([source.batch(number) for number in range(batches)])
    return fed.group_by("word").aggregate([("word", "count")]).rename_columns(["word", "count"])


def test_a_batch_is_the_same_whoever_makes_it_and_first_come_all_keys() -> None:
    one, other = (Numbered(LiveSetting(state_mb=2.0)) for _ in range(2))
    filled = np.concatenate([one.ids(number) for number in range(one.filling)])
    assert filled.tolist() == list(range(one.setting.keys))
    later = one.filling + 5
    assert one.batch(later).equals(other.batch(later))
    assert len(one.ids(later)) == BATCH_ROWS


def test_rows_that_are_lost_or_counted_twice_are_told() -> None:
    source = Numbered(LiveSetting(state_mb=0.1))
    batches = source.filling + 3
    state = state_of(source, batches)
    assert source.compared(state, batches) == {"lost": 0, "duplicated": 0}
    assert source.compared(state, batches + 1) == {"lost": BATCH_ROWS, "duplicated": 0}
    assert source.compared(state, batches - 1) == {"lost": 0, "duplicated": BATCH_ROWS}


def test_it_is_killed_and_comes_back(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "restart", "--quick", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["exact"]
    (run,) = found["runs"]
    assert run["generation"] == 2
    assert abs(sum(run[name] for name in PHASES) - run["seconds"]) < 1e-6


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--state-mib", "0"], "--state-mib is a positive number, not 0.0"),
        (["--state-mib", "nan"], "--state-mib is a positive number"),
        (["--nodes", "9", "--tasks", "8"], "--nodes is at most --tasks"),
        (["--hosts", "1"], "--hosts is from 2 to 9, not 1"),
        (["--times", "0"], "argument --times"),
    ],
)
def test_what_cannot_be_is_said(
    argv: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "restart", *argv]) == 2
    assert told in capsys.readouterr().err
