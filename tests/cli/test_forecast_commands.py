"""`meander mtm`, `forecast`, `plan --forecast` and `evaluate` from the outside."""

import csv
import json

import numpy as np
import pytest

from meander.runtime.store.forecast_file import read_forecast

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402

M = 16
NODES = [3, 4, 5, 6, 5, 4] * 12
HOURS = len(NODES)


@pytest.fixture
def trace(tmp_path):
    slots = [f"2020-01-{1 + h // 24:02d}T{h % 24:02d}:00:00Z" for h in range(HOURS)]
    data = {"format": "meander.trace/1", "parameters": {}, "slots": slots,
            "volume": [10 * n for n in NODES], "nodes": NODES, "gaps": []}  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(data))
    return path


@pytest.fixture
def profile(tmp_path):
    path, rng = tmp_path / "profile", np.random.default_rng(0)
    path.mkdir()
    first = np.datetime64("2020-01-01T00:00:00", "us")
    slot = np.repeat(first + np.arange(HOURS) * np.timedelta64(3600, "s"), M)
    work = np.tile(rng.integers(50, 90, M), HOURS) + rng.integers(0, 9, M * HOURS)
    table = pa.table({
        "slot": pa.array(slot, pa.timestamp("us", "UTC")),
        "task": pa.array(np.tile(np.arange(M, dtype=np.int32), HOURS)),
        "work": work,
        "bytes": np.tile(rng.integers(500, 900, M), HOURS),
        "keys": np.ones(M * HOURS, dtype=np.int64),
    })  # fmt: skip
    pq.write_table(table, path / "part-0.parquet")
    facts = {"format": "meander.profile/1", "tasks": M, "slot_s": 3600, "slots": HOURS,
             "first_slot": "2020-01-01T00:00:00Z", "last_slot": "2020-01-03T23:00:00Z"}  # fmt: skip
    (path / "_profile.json").write_text(json.dumps(facts))
    return path


@pytest.fixture
def mtm(meander, trace, tmp_path):
    path = tmp_path / "mtm.json"
    assert meander("mtm", trace, "--label", "direction", "--out", path).code == 0
    return path


def test_mtm_counts_and_shows_and_gives_the_chance_of_a_sequence(meander, trace, tmp_path):
    said = meander("mtm", trace, "--label", "n", "--json", "--sequence", "3,4")
    answer = said.lines[0]
    assert answer["labels"] == ["3", "4", "5", "6"]
    assert answer["sequence_probability"] == pytest.approx(1.0)
    assert answer["migrations"] == HOURS - 1
    plot = tmp_path / "heat.svg"
    text = meander("mtm", trace, "--label", "direction", "--plot", plot)
    assert "3:down" in text.out
    assert plot.stat().st_size > 1000


def test_mtm_takes_the_span_it_is_asked_for(meander, trace):
    said = meander("mtm", trace, "--label", "n", "--until", "2020-01-01T06:00:00Z", "--json")
    assert said.lines[0]["migrations"] == 5


def forecast(meander, mtm, profile, out, *more):
    return meander(
        "forecast", "--here", "--profile", profile, "--mtm", mtm, "--tau", "0.4", "--gamma", "0.8",
        "--out", out, "--json", *more,
    )  # fmt: skip


def test_forecast_writes_one_file_that_plan_uses(meander, mtm, profile, problem, tmp_path):
    out = tmp_path / "week.forecast"
    said = forecast(meander, mtm, profile, out)
    assert said.code == 0
    assert said.lines[0]["method"] == "exact"
    assert "feasible partitions" in said.err
    assert "sweep 1" in said.err
    assert not out.with_name("week.forecast.checkpoint").exists()
    asked = problem(work=[70] * M, size=[700] * M, current={"a": [0, 5], "b": [5, 10], "c": [10, M]},
                    nodes=4)  # fmt: skip
    answer = meander("plan", asked, "--forecast", out, "--json").lines[0]
    assert answer["policy"] == "mtm"
    assert answer["within_caps"]
    assert "look-ahead" in answer["note"]
    wrong = meander("plan", problem(), "--forecast", out, "--json")
    assert wrong.code == 2
    assert "16 tasks, but the problem has 20" in wrong.err


def test_forecast_by_candidates_and_its_refusals(meander, mtm, profile, tmp_path):
    out = tmp_path / "week.forecast"
    said = forecast(meander, mtm, profile, out, "--method", "candidates")
    assert said.lines[0]["method"] == "candidates"
    assert "round 0 of" in said.err
    too_many = forecast(meander, mtm, profile, out, "--method", "exact", "--states-max", "10")
    assert too_many.code == 2
    assert "candidates" in too_many.err
    endless = meander("forecast", "--here", "--profile", profile, "--mtm", mtm, "--tau", "0.4",
                      "--gamma", "1", "--out", out)  # fmt: skip
    assert endless.code == 2
    assert "no fixed point" in endless.err


def test_an_interrupted_forecast_goes_on_from_its_checkpoint(
    meander, mtm, profile, tmp_path, monkeypatch
):
    from meander.cli import forecast as command

    out, kept = tmp_path / "week.forecast", []
    keep = command.SweepCheckpoint.keep_sweep

    def stop(self, value, choices):
        keep(self, value, choices)
        kept.append(1)
        if len(kept) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(command.SweepCheckpoint, "keep_sweep", stop)
    assert forecast(meander, mtm, profile, out).code == 130
    assert not out.exists()
    other = forecast(meander, mtm, profile, out, "--resume", "--seed", "5")
    assert other.code == 2
    assert "other inputs or options" in other.err
    assert forecast(meander, mtm, profile, out, "--resume").code == 0
    fresh = tmp_path / "fresh.forecast"
    assert forecast(meander, mtm, profile, fresh).code == 0

    assert np.allclose(read_forecast(out).value, read_forecast(fresh).value, atol=1e-5)


ROW = {"policy", "cost", "below_ssm", "low", "high", "gap_share", "plan_ms"}


def test_evaluate_compares_every_policy(meander, trace, profile, tmp_path):
    rows, plot = tmp_path / "rows.csv", tmp_path / "bars.png"
    said = meander(
        "evaluate", trace, "--profile", profile, "--tau", "0.4", "--gamma", "0.8", "--window", "6",
        "--policies", "storm,flink,consistent-hash,redist,ssm,ahead,mtm,mtm:slot,oms", "--rings",
        "2", "--method", "exact", "--csv", rows, "--plot", plot, "--json",
    )  # fmt: skip
    assert said.code == 0, said.err
    assert set(said.lines[0]) == {"spans"}
    (span,) = said.lines[0]["spans"]
    assert set(span) == {"series", "from", "until", "tau", "tasks", "rows"}
    assert (span["series"], span["tau"], span["tasks"]) == ("trace", 0.4, M)
    assert span["from"] < span["until"]
    table = {row["policy"]: row for row in span["rows"]}
    assert next(row["policy"] for row in span["rows"]) == "ssm"
    assert all(set(row) == ROW for row in span["rows"])
    assert table["bound"]["cost"] <= table["oms"]["cost"] + 1e-12
    for name in ("ssm", "ahead", "mtm", "mtm:slot"):
        assert table["oms"]["cost"] <= table[name]["cost"] + 1e-12
        assert table[name]["low"] <= table[name]["below_ssm"] <= table[name]["high"]
    assert table["ssm"]["below_ssm"] == 0
    assert "chosen:" in said.err
    with rows.open() as file:
        assert len({row["policy"] for row in csv.DictReader(file)}) == len(table) - 1
    assert plot.stat().st_size > 1000
    shown = meander("evaluate", trace, "--profile", profile, "--policies", "ssm,flink")
    assert "flink" in shown.out
    assert "25 migrations" in shown.out


def test_a_single_migration_has_no_brackets(meander, trace, profile, tmp_path):
    drawn = tmp_path / "cost.svg"
    one = (
        "evaluate",
        trace,
        "--profile",
        profile,
        "--policies",
        "ssm,flink",
        "--migrations-max",
        1,
    )
    for row in meander(*one, "--json", "--plot", drawn).lines[0]["spans"][0]["rows"]:
        assert row["low"] is row["high"] is None
    assert drawn.exists()
    assert "[–]" in meander(*one).out


def test_evaluate_rolls_over_spans_series_and_taus(meander, trace, profile, tmp_path):
    other = tmp_path / "other.json"
    old = json.loads(trace.read_text())
    old["slots"] = [f"2019-01-{1 + int(s[8:10]):02d}{s[10:]}" for s in old["slots"]]  # 52 weeks
    other.write_text(json.dumps(old))
    said = meander(
        "evaluate", trace, "--profile", profile, "--tau", "0.4,1/2", "--window", "6", "--policies",
        "ahead", "--train-until", "2020-01-02T00:00:00Z", "--roll", "1d", "--json",
    )  # fmt: skip
    assert said.code == 0, said.err
    spans = said.lines[0]["spans"]
    assert [(span["from"][:10], span["tau"]) for span in spans] == [
        ("2020-01-02", 0.4), ("2020-01-02", 0.5), ("2020-01-03", 0.4), ("2020-01-03", 0.5)
    ]  # fmt: skip
    assert [row["gap_share"] for row in spans[0]["rows"]] == [None, None]
    both = meander("evaluate", trace, other, "--profile", profile, "--window", "6", "--policies",
                   "ahead", "--json")  # fmt: skip
    assert both.code == 0, both.err
    assert [span["series"] for span in both.lines[0]["spans"]] == ["trace", "other"]


def test_evaluate_lets_ahead_begin_late(meander, trace, profile):
    """With two hours behind it, it has no analog, so its plans are not those of one who has days."""
    said = [
        meander("evaluate", trace, "--profile", profile, "--policies", "ahead", "--json", *more)
        for more in ([], ["--learn", "1000d"], ["--learn", "2h"])
    ]
    assert [one.code for one in said] == [0, 0, 0]
    costs = [one.lines[0]["spans"][0]["rows"][1]["cost"] for one in said]
    assert costs[0] == costs[1] != costs[2]
    assert meander("evaluate", trace, "--profile", profile, "--learn", "soon").code == 2


def test_evaluate_names_a_wrong_policy_and_an_empty_test(meander, trace, profile):
    assert "unknown policy 'best'" in meander(
        "evaluate", trace, "--profile", profile, "--policies", "best"
    ).err  # fmt: skip
    late = meander("evaluate", trace, "--profile", profile, "--test-until", "2020-01-01T02:00:00Z")
    assert late.code == 2
    assert "no migration" in late.err
    for wrong in (["--tau", "x"], ["--tau", ","], ["--window", "-1"], ["--roll", "0d"],
                  ["--train-until", "2030-01-01"], ["--profile", trace]):  # fmt: skip
        said = meander("evaluate", trace, "--profile", profile, "--policies", "ssm", *wrong)
        assert said.code == 2, wrong
        assert len(said.err.strip().splitlines()) >= 1
