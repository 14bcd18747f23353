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


def test_evaluate_leaves_out_a_quiet_span_and_keeps_the_others(meander, trace, profile):
    """Spans of a day from the first noon on; in the second one n stays."""
    data = json.loads(trace.read_text())
    asked = ("evaluate", trace, "--profile", profile, "--policies", "ssm", "--train-until",
             "2020-01-01T12:00:00Z", "--roll", "1d", "--json")  # fmt: skip
    data["nodes"][35:60] = [4] * 25
    trace.write_text(json.dumps(data))
    said = meander(*asked)
    assert said.code == 0, said.err
    assert [span["from"][5:13] for span in said.lines[0]["spans"]] == ["01-01T12", "01-03T12"]
    assert "2020-01-02T12:00:00Z: no migration, left out" in said.err
    data["nodes"][11:] = [4] * 61
    trace.write_text(json.dumps(data))
    none = meander(*asked)
    assert none.code == 2
    assert "no test span has a migration" in none.err


def test_evaluate_says_where_a_span_ends(meander, trace, profile):
    """Behind the last slot of a trace; and where the first migration that is left out would be."""
    asked = ("evaluate", trace, "--profile", profile, "--policies", "ssm", "--train-until",
             "2020-01-03T00:00:00Z", "--json")  # fmt: skip
    ends = [
        meander(*asked, *more).lines[0]["spans"][0]["until"]
        for more in ([], ["--migrations-max", "5"], ["--migrations-max", "1000"])
    ]
    assert ends == ["2020-01-04T00:00:00Z", "2020-01-03T05:00:00Z", "2020-01-04T00:00:00Z"]


WRONG_TRACES = {
    "short": ({"nodes": NODES[:50]}, "nodes must be a list with one number for each slot"),
    "null": ({"nodes": [*NODES[:-1], None]}, "nodes at 2020-01-03T23:00:00Z is None"),
    "text": ({"nodes": ["x", *NODES[1:]]}, "nodes at 2020-01-01T00:00:00Z is 'x'"),
    "part": ({"nodes": [3.7, *NODES[1:]]}, "is 3.7, not a whole number"),
    "nan": ({"volume": [float("nan"), *NODES[1:]]}, "volume at 2020-01-01T00:00:00Z is nan"),
    "none": ({"nodes": [*NODES[:-1], 0]}, "at 2020-01-03T23:00:00Z there are no nodes"),
    "slots": ({"slots": ["soon"] * HOURS}, "is no trace"),
    "numbers": ({"slots": list(range(HOURS))}, "is no trace"),
    "gap": ({"gaps": [{"x": 1}]}, "it lacks 'start'"),
    "gaps": ({"gaps": 7}, "is no trace"),
    "parameter": ({"parameters": {"min": "a", "max": 3}}, "parameter min is 'a'"),
    "parameters": ({"parameters": [1]}, "is no trace"),
    "vast": ({"parameters": {"low": 10**400}}, "is no trace"),
}


@pytest.mark.parametrize("name", WRONG_TRACES)
def test_a_trace_that_is_none_is_refused_in_one_line(meander, trace, profile, name):
    change, says = WRONG_TRACES[name]
    trace.write_text(json.dumps(json.loads(trace.read_text()) | change))
    for command in (["mtm", trace], ["evaluate", trace, "--profile", profile]):
        said = meander(*command)
        assert (said.code, says in said.err) == (2, True), said.err
        assert len(said.err.strip().splitlines()) == 1


@pytest.mark.parametrize(("wrong", "says"), [("", "nodes at 2020-01-01T05:00:00Z is None"),
                                             ("3.7", "is 3.7, not"), ("x", "is 'x', not")])  # fmt: skip
def test_a_table_that_is_no_trace_is_refused_too(meander, tmp_path, wrong, says):
    path = tmp_path / "trace.csv"
    rows = [f"2020-01-01T{h:02d}:00:00Z,10,{wrong if h == 5 else h}" for h in range(1, 24)]
    path.write_text("\n".join(["slot,volume,nodes", *rows, ""]))
    said = meander("mtm", path)
    assert said.code == 2
    if wrong == "x":  # then all numbers are texts
        says = "is '1', not"
    assert says in said.err


def test_a_trace_without_nodes_is_none(meander, trace):
    data = json.loads(trace.read_text())
    del data["nodes"]
    trace.write_text(json.dumps(data))
    assert "it lacks 'nodes'" in meander("mtm", trace).err


WRONG_MATRICES = (
    {"slot_hours": "x"}, {"slot_hours": 0}, {"counts": [["a"]]}, {"counts": [[1]]}, {"alpha": []},
    {"labels": ["3", "3"]}, {"labels": []}, {"kind": ["n"]}, {"recent": 7}, {"matrix": [["a"]]},
)  # fmt: skip


@pytest.mark.parametrize("change", WRONG_MATRICES, ids=str)
def test_a_matrix_that_is_none_is_refused_in_one_line(meander, profile, tmp_path, change):
    path = tmp_path / "mtm.json"
    path.write_text(json.dumps({"labels": ["3", "4"], "matrix": [[0, 1], [1, 0]]} | change))
    said = forecast(meander, path, profile, tmp_path / "week.forecast")
    assert said.code == 2
    assert len(said.err.strip().splitlines()) == 1


def test_forecast_names_what_it_cannot_read_or_write(meander, mtm, profile, tmp_path):
    assert "is a folder" in forecast(meander, mtm, profile, ".").err
    assert forecast(meander, mtm, profile, tmp_path).code == 2
    load = tmp_path / "load.json"
    load.write_bytes(b"\xff\xfe{}")
    said = meander("forecast", "--here", "--workload", load, "--mtm", mtm, "--tau", "0.4", "--out",
                   tmp_path / "week.forecast")  # fmt: skip
    assert said.code == 2
    assert "is no workload" in said.err
    seed = forecast(meander, mtm, profile, tmp_path / "week.forecast", "--seed", "-1")
    assert seed.code == 2
    assert "at least 0" in seed.err


def test_evaluate_takes_a_tau_that_no_cap_can_hold_and_refuses_what_cannot_be(
    meander, trace, profile
):
    asked = ("evaluate", trace, "--profile", profile, "--policies", "ssm,foresight,oms", "--json")
    assert meander(*asked, "--tau", "1e40").code == 0
    for wrong in (["--tau", "1e400000"], ["--seed", "-1"], ["--forecasts", trace]):
        said = meander(*asked, *wrong)
        assert said.code == 2, said.err
        assert len(said.err.strip().splitlines()) == 1


def test_a_trace_with_a_hole_is_refused(meander, trace, profile):
    """It was accepted, and every hour behind the hole was taken for another hour of the day."""
    data = json.loads(trace.read_text())
    for key in ("slots", "volume", "nodes"):
        del data[key][30:37]
    trace.write_text(json.dumps(data))
    for command in (["mtm", trace], ["evaluate", trace, "--profile", profile]):
        said = meander(*command)
        assert said.code == 2
        assert "2020-01-02T05:00:00Z is followed by 2020-01-02T13:00:00Z: fill the hole" in said.err


def test_ahead_wants_slots_that_divide_a_day(meander, trace, profile):
    data = json.loads(trace.read_text())
    began = np.datetime64("2020-01-01T00:00:00", "s")
    data["slots"] = [f"{began + np.timedelta64(7 * 60 * k, 's')}Z" for k in range(HOURS)]
    trace.write_text(json.dumps(data))
    said = meander("evaluate", trace, "--profile", profile, "--policies", "ahead")
    assert said.code == 2
    assert "slots of 420 s do not divide one" in said.err
    for key in ("slots", "volume", "nodes"):
        data[key] = data[key][:1]
    trace.write_text(json.dumps(data))
    one = meander("evaluate", trace, "--profile", profile, "--policies", "ahead")
    assert one.code == 2
    assert "more than one slot" in one.err


def test_evaluate_lets_ahead_begin_late(meander, trace, profile):
    """With two hours behind it, it has no analog, so its plans are not those of one who has days."""
    said = [
        meander(
            "evaluate",
            trace,
            "--profile",
            profile,
            "--policies",
            "ahead",
            "--tau",
            "0.6",
            "--json",
            *more,
        )
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
