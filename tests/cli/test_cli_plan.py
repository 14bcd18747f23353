from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from cli_kit import TABLE3

from meander.planning import POLICIES

HEAVY = {"work": [1] * 19 + [31], "size": [1] * 20}


def test_a_plan_in_json_has_every_key_and_adds_up(meander, problem) -> None:
    said = meander("plan", problem(), "--json")
    assert (said.code, said.err) == (0, "")
    (answer,) = said.lines
    assert answer["feasible"] is True
    assert (answer["cost"], answer["cost_share"]) == (4, 0.2)
    assert (answer["max_load"], answer["cap"], answer["tau"]) == (9, 9, 0.4)
    assert (answer["leaving"], answer["joining"]) == ([], ["n3"])
    assert answer["policy"] == "ssm"
    assert answer["optimal"] is True
    assert answer["within_caps"] is True
    assert answer["imbalance"] == pytest.approx(1.35)
    assert answer["note"] == ""
    assert sorted(b for pair in answer["target"].values() for b in pair)[-1] == 20
    assert sum(move["size"] for move in answer["moves"]) == 4
    assert set(answer["moves"][0]) == {"task", "from", "to", "size"}
    assert [r["moves"] for r in answer["rounds"]] == [answer["moves"]]


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_answers(meander, problem, policy: str) -> None:
    small = problem(work=[1] * 8, size=[1] * 8, current=[[0, 5], [5, 8]], nodes=3, tau=0.5)
    said = meander("plan", small, "--json", "--policy", policy)
    assert said.code == 0, said.err
    assert said.lines[0]["policy"] == policy


def test_targets_that_are_no_intervals_are_lists_of_runs(meander, problem) -> None:
    said = meander("plan", problem(), "--json", "--policy", "consistent-hash")
    target = said.lines[0]["target"]
    assert all(isinstance(run, list) and len(run) == 2 for runs in target.values() for run in runs)
    covered = sorted(t for runs in target.values() for lb, ub in runs for t in range(lb, ub))
    assert covered == list(range(20))
    again = meander("plan", problem(current=target), "--json")  # and can be given back
    assert again.code == 0


def test_rounds_keep_the_limits_that_were_asked_for(meander, problem) -> None:
    path = problem(size=list(range(20)))
    by_tasks = meander("plan", path, "--json", "--rounds-tasks", 2).lines[0]["rounds"]
    assert all(len(r["moves"]) <= 2 for r in by_tasks)
    by_bytes = meander("plan", path, "--json", "--rounds-bytes", 15).lines[0]["rounds"]
    assert all(r["size"] <= 15 or r["oversized"] for r in by_bytes)
    pause = ("--rounds-pause-ms", 13, "--bandwidth", "1k", "--overhead-ms", 10)
    by_pause = meander("plan", path, "--json", *pause).lines[0]["rounds"]
    assert all(r["pause_ms"] <= 13 or r["oversized"] for r in by_pause)
    assert len(by_pause) > 1


def test_the_other_forms_of_a_problem_mean_the_same(meander, problem) -> None:
    expected = meander("plan", problem(), "--json").out
    assert meander("plan", problem(tau="2/5"), "--json").out == expected
    assert meander("plan", problem(current=[[0, 13], [13, 20]]), "--json").out == expected
    assert (
        meander("plan", problem(current={"n1": [[0, 13]], "n2": [[13, 20]]}), "--json").out
        == expected
    )
    assert meander("plan", "-", "--json", stdin=json.dumps(TABLE3, indent=2)).out == expected
    for much in (1e9, 10**20, 1e300):
        assert meander("plan", problem(memory_cap=much), "--json").out == expected


def test_new_nodes_get_the_names_that_were_given(meander, problem) -> None:
    said = meander("plan", problem(new_nodes=["blue"]), "--json")
    assert said.lines[0]["joining"] == ["blue"]


def test_an_infeasible_problem_says_why_and_from_which_tau_on_there_is_a_plan(
    meander, problem
) -> None:
    said = meander("plan", problem(**HEAVY), "--json")
    assert said.code == 3
    (answer,) = said.lines
    assert answer["feasible"] is False
    assert "task 19" in answer["why"]
    eased = meander("plan", problem(**HEAVY, tau=answer["tau_min"]), "--json")
    assert eased.code == 0
    exact = meander("plan", problem(**HEAVY, tau=answer["tau_min_exact"]), "--json")
    assert exact.lines == eased.lines or exact.code == 0
    relaxed = meander("plan", problem(**HEAVY), "--json", "--relax")
    assert relaxed.code == 0
    assert "relaxed" in relaxed.lines[0]["note"]


def test_memory_that_no_tau_can_make_up_for_is_infeasible_even_relaxed(meander, problem) -> None:
    said = meander("plan", problem(memory_cap=1), "--json", "--relax")
    assert said.code == 3
    assert said.lines[0]["tau_min"] is None


def test_without_json_infeasible_is_a_sentence(meander, problem) -> None:
    said = meander("plan", problem(**HEAVY))
    assert said.code == 3
    assert said.out.startswith("infeasible: ")


def test_full_nodes_that_wait_for_each_other_have_no_rounds(meander, problem) -> None:
    tight = problem(
        work=[6, 1, 6, 1], size=[5, 5, 5, 5], current={"a": [0, 2], "b": [2, 4]},
        nodes=2, tau=1, memory_cap=10,
    )  # fmt: skip
    assert meander("plan", tight, "--json", "--rounds-tasks", 1).code == 0  # nothing has to move
    swap = problem(
        work=[1] * 4, size=[5] * 4, current={"n1": [[0, 1], [2, 3]], "n2": [[1, 2], [3, 4]]},
        nodes=2, tau=0, memory_cap=10,
    )  # fmt: skip
    said = meander("plan", swap, "--json", "--rounds-tasks", 1)
    assert said.code == 3
    assert "lend a node" in said.lines[0]["why"]
    assert meander("plan", swap, "--json", "--rounds-tasks", 2).lines[0]["rounds"][0]["exchange"]


def test_json_lines_are_answered_line_by_line(meander) -> None:
    good, bad = json.dumps(TABLE3), json.dumps(TABLE3 | {"nodes": 0})
    infeasible = json.dumps(TABLE3 | HEAVY)
    said = meander("plan", "-", "--json", stdin="\n".join([good, "", infeasible, good]))
    assert said.code == 0  # infeasible was not the only one
    assert [answer["feasible"] for answer in said.lines] == [True, False, True]

    said = meander("plan", "-", "--json", stdin="\n".join([good, bad, "{nonsense", "\x00", good]))
    assert said.code == 2
    assert [("error" in a, a.get("line")) for a in said.lines] == [
        (False, None), (True, 2), (True, 3), (True, 4), (False, None),
    ]  # fmt: skip
    assert said.err.count("\n") == 1
    assert "line 2: nodes" in said.err
    assert "3 of 5" in said.err


def test_a_first_line_that_is_broken_does_not_stop_the_others(meander) -> None:
    good = json.dumps(TABLE3)
    for broken in ('{"work": [1, 2,, 3]}', "not json at all", b"\xff\xfe"):
        raw = broken if isinstance(broken, bytes) else broken.encode()
        said = meander("plan", "-", "--json", stdin=raw + b"\n" + good.encode() + b"\n")
        assert said.code == 2
        assert [a.get("line") for a in said.lines] == [1, None]


def test_a_conversation_gets_each_answer_before_the_next_question(meander) -> None:
    """Another process writes a problem, reads its plan, and only then writes the next."""
    with subprocess.Popen(
        [sys.executable, "-m", "meander.cli.main", "plan", "-", "--json"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        for nodes in (3, 0, 2):
            process.stdin.write(json.dumps(TABLE3 | {"nodes": nodes}) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            assert ("error" in answer) == (nodes == 0)
        process.stdin.close()
        assert process.wait() == 2


WRONG = {
    "nodes is missing": ({"nodes": None}, "missing: nodes"),
    "unknown key": ({"sizes": [1]}, "unknown key 'sizes': did you mean 'size'?"),
    "unlike any key": ({"zzz": 1}, "known are work"),
    "text in work": ({"work": ["a"] * 20}, "work of task 0 is a text"),
    "null in size": ({"size": [1] * 19 + [[]]}, "size of task 19 is a list"),
    "boolean": ({"work": [True] * 20}, "work of task 0 is true or false"),
    "work is no list": ({"work": 7}, "work must be a list"),
    "negative": ({"work": [-1] * 20}, "negative"),
    "fractional": ({"size": [0.5] * 20}, "whole number"),
    "too large": ({"size": [2**61] * 20}, "2^62"),
    "far too large": ({"size": [10**30] * 20}, "2^62"),
    "empty": ({"work": [], "size": []}, "non-empty"),
    "lengths": ({"size": [1] * 19}, "19"),
    "overlap": ({"current": [[0, 14], [13, 20]]}, "overlap"),
    "gap": ({"current": [[0, 12], [13, 20]]}, "gap"),
    "short": ({"current": [[0, 12]]}, "20 tasks"),
    "no pair": ({"current": {"n1": [0]}}, "pair"),
    "bad run": ({"current": {"n1": [[0, "x"]]}}, "run is a pair"),
    "current is a number": ({"current": 5}, "current must be"),
    "no nodes": ({"current": {}}, "no nodes"),
    "nameless": ({"current": {"": [0, 20]}}, "needs a name"),
    "zero nodes": ({"nodes": 0}, "at least 1"),
    "very many nodes": ({"nodes": 10**12}, "not planned for"),
    "tau": ({"tau": "much"}, "tau must be"),
    "negative tau": ({"tau": -0.1}, "negative"),
    "endless tau": ({"tau": "1e400000"}, "tau must be a number within reason"),
    "tau that no float holds": ({"tau": 10**400}, "what a float can hold"),
    "memory": ({"memory_cap": "1G"}, "memory_cap"),
    "new nodes": ({"new_nodes": [1]}, "new_nodes"),
    "taken name": ({"new_nodes": ["n1"]}, "taken"),
}


@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG)
def test_wrong_problems_are_told_apart(meander, problem, changes, message: str) -> None:
    said = meander("plan", problem(**changes), "--json")
    assert said.code == 2
    assert message in said.err
    assert said.err.count("\n") == 1


def test_a_wrong_problem_is_told_once(meander, problem) -> None:
    said = meander("plan", problem(nodes=0))
    assert (said.code, said.out) == (2, "")
    assert said.err.count("nodes") == 1
    assert said.err.count("\n") == 1

    good, bad = json.dumps(TABLE3), json.dumps(TABLE3 | {"nodes": 0})
    said = meander("plan", "-", stdin="\n".join([bad, good, bad]))
    assert said.code == 2
    assert [line.split(": ")[1] for line in said.err.splitlines()] == ["line 1", "line 3"]
    assert "nodes must" not in said.out


RAW = {
    "nothing": (b"", "is empty"),
    "blank": (b"\n  \n", "is empty"),
    "not JSON": (b"hello\nworld\n", "not JSON"),
    "a list": (b"[1, 2]", "a problem is a JSON object"),
    "cut off": (b'{"work": [1,\n2', "not JSON"),
    "NaN": (b'{"work": [NaN]}', "NaN is not a number"),
    "Infinity": (b'{"work": [1],\n "tau": -Infinity}', "-Infinity is not a number"),
    "twice": (b'{"work": [1], "work": [2]}', "key 'work' stands twice"),
    "digits": (b'{"nodes": ' + b"9" * 5000 + b"}", "too many digits"),
    "deep": (b"[" * 100_000, "nested too deeply"),
    "not UTF-8": (b'{"work": "\xff"}', "UTF-8"),
}


@pytest.mark.parametrize(("raw", "message"), RAW.values(), ids=RAW)
def test_wrong_files_are_told_apart(meander, tmp_path: Path, raw: bytes, message: str) -> None:
    path = tmp_path / "raw.json"
    path.write_bytes(raw)
    said = meander("plan", path, "--json")
    assert said.code == 2
    assert message in said.err
    assert said.err.count("\n") == 1


def test_files_that_cannot_be_read_are_named(meander, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.json"):
        said = meander("plan", path)
        assert said.code == 2
        assert str(path) in said.err
        assert said.out == ""


def test_a_byte_order_mark_is_no_error(meander, problem) -> None:
    path = problem()
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert meander("plan", path, "--json").code == 0


def test_the_picture_fits_80_columns_without_colour(meander, problem) -> None:
    said = meander("plan", problem(), "--rounds-tasks", 3)
    assert said.code == 0
    assert "\x1b" not in said.out
    assert max(map(len, said.out.splitlines())) <= 80
    for word in ("before", "after", "moves", "│n1", "│n3", "2 rounds", "joining: n3"):
        assert word in said.out


def test_the_picture_of_very_many_nodes_still_fits(meander, problem) -> None:
    pairs = [[i, i + 1] for i in range(500)]
    path = problem(work=[1] * 500, size=[10**12] * 500, current=pairs, nodes=400, tau=1)
    said = meander("plan", path)
    assert said.code == 0
    assert max(map(len, said.out.splitlines())) <= 80
    assert "more" in said.out


def test_the_pareto_front_falls(meander, problem) -> None:
    said = meander("plan", "--pareto", problem(), "--json")
    points = said.lines[0]["pareto"]
    assert (points[0]["cost"], points[-1]["cost"]) == (6, 0)
    assert all(a["tau"] < b["tau"] and a["cost"] > b["cost"] for a, b in pairwise(points))
    text = meander("plan", "--pareto", problem()).out
    assert "← tau 0.4" in text
    assert meander("plan", "--pareto", problem(), "--policy", "flink").code == 2


def test_the_curve_has_every_number_of_nodes(meander, problem) -> None:
    told = meander("plan", "--curve", problem(), "--json").lines[0]
    plan = meander("plan", problem(), "--json").lines[0]
    assert [point["nodes"] for point in told["curve"]] == [3]
    assert told["curve"][0]["cost"] == plan["cost"]
    assert told["cap"] == 9
    text = meander("plan", "--curve", problem()).out
    assert "← 3 nodes" in text
    assert "3 or more" in text
    for wrong in (("--policy", "flink"), ("--pareto",)):
        assert meander("plan", "--curve", problem(), *wrong).code == 2
    impossible = {**TABLE3, "work": [1000, *TABLE3["work"][1:]]}
    assert meander("plan", "--curve", "-", stdin=json.dumps(impossible)).code == 3


@pytest.mark.parametrize("ending", ["png", "svg"])
@pytest.mark.parametrize("flags", [(), ("--pareto",), ("--curve",)])
def test_plots_are_drawn(meander, problem, tmp_path: Path, ending: str, flags) -> None:
    path = tmp_path / f"plan.{ending}"
    assert meander("plan", problem(), "--plot", path, *flags).code == 0
    assert path.read_bytes().startswith(b"\x89PNG" if ending == "png" else b"<?xml")


def test_plots_of_another_kind_are_refused(meander, problem, tmp_path: Path) -> None:
    for name in ("plan.jpg", "plan", "missing/plan.png"):
        said = meander("plan", problem(), "--plot", tmp_path / name)
        assert said.code == 2
        assert said.err.count("\n") == 1
    both = json.dumps(TABLE3) + "\n" + json.dumps(TABLE3)
    assert meander("plan", "-", "--plot", tmp_path / "a.png", stdin=both).code == 2


@pytest.mark.parametrize(
    "flags",
    [
        ("--policy", "best"), ("--rounds-tasks", "0"), ("--rounds-bytes", "many"), ("--frob",),
        ("--rounds-pause-ms", "10"), ("--bandwidth", "10M"), ("--bandwidth", "fast"),
        ("--rounds-pause-ms", "10", "--bandwidth", "1M", "--overhead-ms", "10"),
        ("--rounds-pause-ms", "nan", "--bandwidth", "1M"),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_line(meander, problem, flags) -> None:
    said = meander("plan", problem(), *flags)
    assert said.code == 2
    assert said.out == ""
    assert said.err.count("\n") == 1
