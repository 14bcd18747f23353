from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_kit import TABLE3

from meander.planning import POLICIES, plan
from meander.planning.exact.feasible import smallest_tau
from meander.planning.instances import instance
from meander.show.palette import POLICY_COLOR
from meander_lab.bench.milp import Milp
from meander_lab.cli.bench_plan import SIZES, TAUS, measure


def test_compare_runs_every_policy_and_none_that_keeps_the_caps_beats_ssm(meander, problem) -> None:
    said = meander("compare", problem(), "--json")
    assert said.code == 0, said.err
    rows = {row["policy"]: row for row in said.lines[0]["rows"]}
    assert set(POLICIES) <= set(rows)
    assert all(row["cost"] is not None or row["why"] for row in rows.values())
    one_interval_each = ("ssm", "ssm-paper", "simple-ssm", "storm", "storm-matched", "flink")
    for name in one_interval_each:
        if rows[name]["within_caps"]:
            assert rows[name]["cost"] >= rows["ssm"]["cost"]
    assert rows["ssm"]["cost"] == rows["ssm-paper"]["cost"] == 4


def test_compare_prints_a_table_in_80_columns(meander, problem) -> None:
    said = meander("compare", problem())
    assert said.code == 0
    assert all(policy in said.out for policy in POLICIES)
    table = said.out.split("\ncap ")[0]
    assert max(map(len, table.splitlines())) <= 80


def test_compare_says_why_a_policy_cannot_run(meander, problem) -> None:
    heavy = problem(work=[1] * 19 + [99])
    rows = {row["policy"]: row for row in meander("compare", heavy, "--json").lines[0]["rows"]}
    assert rows["ssm"]["cost"] is None
    assert "task 19" in rows["ssm"]["why"]
    assert rows["storm"]["cost"] is not None
    assert "task 19" in meander("compare", heavy).out


def test_compare_takes_one_problem(meander) -> None:
    both = json.dumps(TABLE3) + "\n" + json.dumps(TABLE3)
    assert meander("compare", "-", stdin=both).code == 2
    assert "nodes" in meander("compare", "-", stdin=json.dumps(TABLE3 | {"nodes": 0})).err


def test_compare_draws(meander, problem, tmp_path: Path) -> None:
    for name in ("c.png", "c.svg"):
        assert meander("compare", problem(), "--plot", tmp_path / name).code == 0
        assert (tmp_path / name).stat().st_size > 1000


def test_every_policy_has_a_colour_of_its_own() -> None:
    assert set(POLICY_COLOR) >= set(POLICIES)
    assert len({POLICY_COLOR[policy] for policy in POLICIES}) == len(POLICIES)


def test_bench_plan_reports_every_key_and_the_sides_agree(meander) -> None:
    said = meander("bench", "plan", "--json", "--quick", "--sizes", "32,4,5")
    assert said.code == 0
    report = said.lines[0]
    assert [row["tau"] for row in report["rows"]] == [float(tau) for tau in TAUS]
    for row in report["rows"]:
        assert (row["m"], row["n"], row["target"]) == (32, 4, 5)
        assert row["agree"] is True
        assert min(row["ssm_us"], row["paper_us"], row["milp_us"], row["speedup"]) > 0
    assert report["summary"]["speedup_means"][0]["speedup"] > 0


def test_bench_plan_says_why_a_side_is_missing(meander) -> None:
    row = measure(instance(20_000, 20, 25, "1.2"), milp_s_max=1, turns=1)
    assert row["paper_us"] is row["milp_us"] is row["speedup"] is None
    assert row["paper_reason"]
    assert row["milp_reason"]
    text = meander("bench", "plan", "--quick", "--sizes", "16,3,4").out
    assert "paper/ssm" in text


@pytest.mark.parametrize("text", ["64", "64,10", "a,b,c", "4,5,6", "0,1,1", "64,10,8,9"])
def test_bench_plan_refuses_sizes_that_mean_nothing(meander, text: str) -> None:
    assert meander("bench", "plan", "--sizes", text).code == 2


def test_bench_routing_measures_both_ways(meander) -> None:
    said = meander("bench", "routing", "--json", "--quick")
    assert said.code == 0
    rows = said.lines[0]["rows"]
    assert [row["m"] for row in rows] == [64, 1024, 10_000, 100_000, 1_000_000]
    for row in rows:
        assert row["ratio"] == pytest.approx(row["intervals_rows_s"] / row["map_rows_s"])
        assert row["hash_map_rows_s"] > 0
        assert row["hash_intervals_rows_s"] > 0


def test_bench_publish_tells_every_node_of_a_table(meander) -> None:
    said = meander("bench", "publish", "--json", "--peers", "20", "--tasks", "64", "--turns", "2")
    assert said.code == 0
    (found,) = said.lines
    assert (found["peers"], found["tasks"], found["turns"]) == (20, 64, 2)
    assert 0 < found["queued_s"] <= found["wall_s"]
    assert found["cpu_s"] > 0
    assert found["table_bytes"] > 0


def test_bench_tasks_writes_and_restores_with_each_number_of_tasks(meander) -> None:
    small = "--keys", "2000", "--changed", "200", "--changes", "3"
    said = meander("bench", "tasks", "--json", "--tasks", "4", "32", *small)
    assert said.code == 0
    (found,) = said.lines
    assert [row["tasks"] for row in found["rows"]] == [4, 32]
    parts = ("start", "full", "change", "restore")
    assert all(row[part]["ms"] > 0 for row in found["rows"] for part in parts)


def test_demo_shows_a_plan_its_rounds_its_phases_and_the_others(meander) -> None:
    said = meander("demo", "--plan")
    assert said.code == 0
    for word in ("before", "after", "rounds", "phase", "storm", "consistent-hash"):
        assert word in said.out
    assert max(map(len, said.out.split("cap ")[0].splitlines())) <= 80


@pytest.mark.parametrize("size", SIZES[:4])
def test_instances_are_the_same_every_time_and_feasible_at_every_tau(size) -> None:
    one, two = instance(*size, "0.1"), instance(*size, "0.2")
    assert (one.workload.work == two.workload.work).all()
    assert (one.workload.size == two.workload.size).all()
    assert one.current == two.current
    least = smallest_tau(one)
    assert least is not None
    assert least <= one.tau


def test_the_mixed_integer_program_agrees_with_ssm() -> None:
    for tau in TAUS:
        problem = instance(24, 4, 3, tau)
        assert Milp(problem).solve(20) == plan(problem).cost


@pytest.mark.parametrize("bench", ["checkpoint", "tasks"])
def test_a_folder_that_is_not_there_is_named_before_anything_is_measured(meander, tmp_path, bench):
    said = meander("bench", bench, "--where", str(tmp_path / "nowhere"))
    assert (said.code, said.out) == (2, "")
    assert "nowhere' is not a folder that can be written to" in said.err
