"""`meander sim` says what it did, fails when it must, and replays what it wrote."""

import json
import signal
import subprocess
import sys

import pytest

from meander.cli.main import main
from meander.testing import campaign, simulate

KEYS = [
    "world", "schedules", "rescales", "faults", "chunks", "reroutes", "waits", "second_moves",
    "aborts", "resumes", "replays", "loop_chunks", "staged_batches", "lost", "duplicated",
    "reordered", "stuck", "violations",
]  # fmt: skip
SMALL = [
    "--world", "protocol", "--nodes", "3", "--tasks", "6", "--jobs", "1", "--seconds", "3",
]  # fmt: skip
FULL = ["--jobs", "1", "--seconds", "1"]


def test_it_counts_what_happened_in_json(capsys):
    assert main(["sim", "--seeds", "4", "--first-seed", "7", "--json", *SMALL]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [key for key in answer if key in KEYS] == KEYS
    assert answer["schedules"] == 4
    assert answer["violations"] == []
    assert answer["chunks"] > 0


def test_the_full_world_is_the_usual_one(capsys):
    assert main(["sim", "--seeds", "2", "--trial", "words", "--json", *FULL]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["world"] == "full"
    assert answer["trial_words"] == answer["schedules"] == 2
    assert answer["violations"] == []
    assert answer["malformed"] == 0 or answer["corrupt"] > 0


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


def test_a_printed_schedule_knows_its_world_and_its_trial(capsys, tmp_path):
    args = ["--first-seed", "4", "--faults", "crash,host", "--trial", "emits", *FULL]
    assert main(["sim", "--print-schedule", *args]) == 0
    file = tmp_path / "schedule.json"
    file.write_text(capsys.readouterr().out)
    told = []
    for _ in range(2):
        assert main(["sim", "--replay", str(file), "--json"]) == 0
        told.append(json.loads(capsys.readouterr().out))
    assert told[0] == told[1]
    assert told[0]["world"] == "full"
    assert told[0]["counts"]["trial_emits"] == 1
    assert main(["sim", "--replay", str(file)]) == 0
    assert "world full, emits" in capsys.readouterr().out


def test_an_old_file_is_of_the_protocol(capsys, tmp_path):
    file = tmp_path / "schedule.json"
    old = {"seed": 1, "nodes": 2, "tasks": 4, "seconds": 1.0, "incidents": []}
    file.write_text(json.dumps(old))
    assert main(["sim", "--replay", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["world"] == "protocol"


def test_an_accident_is_told_from_what_a_checker_saw(capsys, tmp_path, monkeypatch):
    def fall(self):
        raise ZeroDivisionError("of nobody's making")

    monkeypatch.setattr(simulate.Cluster, "quiet", fall)
    args = ["--seeds", "1", "--out", str(tmp_path), "--faults", "none", *SMALL]
    assert main(["sim", *args]) == 1
    assert "seed 0 an accident" in capsys.readouterr().out
    assert main(["sim", "--json", *args]) == 1
    said = capsys.readouterr()
    (failure,) = json.loads(said.out)["violations"]
    assert said.err.startswith(f"seed {failure['seed']}: "), "it is said as soon as it is known"
    assert failure["accident"]
    assert failure["caught_by"] == ""
    assert main(["sim", "--replay", failure["schedule"]]) == 1
    assert ", an accident;" in capsys.readouterr().out


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
    [["--faults", "fire"], ["--world", "flat"], ["--world", "protocol", "--faults", "host"],
     ["--trial", "fire"], ["--world", "protocol", "--trial", "words"],
     ["--nodes", "9", "--tasks", "3"], ["--seconds", "0"],
     ["--replay", "/does/not/exist"], ["--seeds", "0"], ["--first-seed", "-1"]],
)  # fmt: skip
def test_wrong_input_is_one_line_and_exit_code_2(args, capsys):
    assert main(["sim", *args]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    "wrong",
    [{"world": "flat"}, {"world": "full", "trial": "fire"}, {"trial": "words"}, {"nodes": "3"},
     {"seed": None}, {"incidents": [{"at": 1, "kind": "host"}]}, {"incidents": 7},
     {"incidents": [{"at": "soon", "kind": "crash"}]}, {"colour": "red"},
     {"incidents": [{"at": 1, "kind": "crash", "target": "n1"}]}],
)  # fmt: skip
def test_a_file_that_is_no_schedule_is_one_line_too(wrong, capsys, tmp_path):
    sound = {"seed": 1, "nodes": 2, "tasks": 4, "seconds": 1.0, "incidents": []}
    file = tmp_path / "schedule.json"
    file.write_text(json.dumps({**sound, **wrong}))
    assert main(["sim", "--replay", str(file)]) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert "no schedule" in err


def test_a_campaign_in_the_background_says_how_far_it_is_and_ends_when_it_is_told_to():
    """A shell starts it with SIGINT ignored; what was done until the signal is reported."""
    command = [sys.executable, "-c", "import signal, sys; from meander.cli import main, sim;"
               "sim.SAY_S = 0.1; signal.signal(signal.SIGINT, signal.SIG_IGN);"
               "sys.exit(main.main())",
               "sim", "--seeds", "100000", "--json", *SMALL]  # fmt: skip
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as running:
        assert running.stderr is not None
        said = running.stderr.readline()
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=60)
    assert " of 100,000 schedules, 0 failed" in said
    assert running.returncode == 130
    answer = json.loads(out)
    assert answer["interrupted"]
    assert answer["schedules"] > 0
