"""`meander sim` says what it did, fails when it must, and replays what it wrote."""

import json

import pytest

from meander.cli.main import main
from meander.testing import campaign, simulate

KEYS = [
    "schedules", "rescales", "faults", "chunks", "reroutes", "waits", "second_moves", "aborts",
    "resumes", "replays", "loop_chunks", "staged_batches", "lost", "duplicated", "reordered",
    "stuck", "violations",
]  # fmt: skip
SMALL = ["--nodes", "3", "--tasks", "6", "--jobs", "1", "--seconds", "3"]


def test_it_counts_what_happened_in_json(capsys):
    assert main(["sim", "--seeds", "4", "--first-seed", "7", "--json", *SMALL]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [key for key in answer if key in KEYS] == KEYS
    assert answer["schedules"] == 4
    assert answer["violations"] == []
    assert answer["chunks"] > 0


def test_it_says_it_in_words_too(capsys):
    assert main(["sim", "--seeds", "2", "--faults", "none", *SMALL]) == 0
    out = capsys.readouterr().out
    assert "ran 2 schedules" in out
    assert "no violations" in out


def test_a_printed_schedule_can_be_replayed(capsys, tmp_path):
    assert main(["sim", "--print-schedule", "--first-seed", "9", *SMALL]) == 0
    file = tmp_path / "schedule.json"
    file.write_text(capsys.readouterr().out)
    assert main(["sim", "--replay", str(file), "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert main(["sim", "--replay", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert main(["sim", "--replay", str(file)]) == 0
    assert first["digest"] in capsys.readouterr().out


def test_a_failure_gives_its_seed_and_a_schedule_to_replay(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(simulate.Cluster, "quiet", lambda self: False)
    args = ["sim", "--seeds", "1", "--first-seed", "3", "--out", str(tmp_path), "--faults", "none"]
    assert main([*args, *SMALL]) == 1
    out = capsys.readouterr().out
    file = tmp_path / "meander-sim-3.json"
    assert "seed 3 FAILED" in out
    assert f"meander sim --replay {file}" in out
    assert json.loads(file.read_text())["incidents"] == []
    assert main(["sim", "--replay", str(file)]) == 1


def test_a_campaign_that_missed_something_fails(capsys, monkeypatch):
    monkeypatch.setattr(campaign, "THOROUGH_SEEDS", 1)
    assert main(["sim", "--seeds", "1", *SMALL]) == 1
    assert "never happened" in capsys.readouterr().out


def test_an_interrupted_campaign_says_what_was_done(capsys, monkeypatch):
    calls = []

    def interrupted(first, count, scope):
        calls.append(first)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return simulate.Counter(schedules=count), []

    monkeypatch.setattr(campaign, "run_seeds", interrupted)
    assert main(["sim", "--seeds", "100", *SMALL]) == 130
    assert "interrupted after 20 schedules" in capsys.readouterr().out


@pytest.mark.parametrize(
    "args",
    [["--faults", "fire"], ["--nodes", "9", "--tasks", "3"], ["--seconds", "0"],
     ["--replay", "/does/not/exist"], ["--seeds", "0"], ["--first-seed", "-1"]],
)  # fmt: skip
def test_wrong_input_is_one_line_and_exit_code_2(args, capsys):
    assert main(["sim", *args]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
