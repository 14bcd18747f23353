"""Commands that speak with a deployment from outside its program, `doctor` and `completion`."""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_kit import Said
from pyarrow import flight, fs

import meander as product
from meander.cli import completion, doctor, outside, status
from meander.errors import DeployError, InputError, MigrationError
from meander.operators import WordCount
from meander.protocol.messages import News
from meander.runtime.driver import remote, runs
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.driver.log_lines import JsonLines, json_lines
from meander.runtime.driver.rescales import Rescales, Rescaling
from meander.runtime.store import filesystem
from meander.runtime.store.filesystem import ArrowFiles
from meander.runtime.wire.credentials import Credentials

Command = Callable[..., Said]
PROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    before, found = os.environ.get(runs.VARIABLE), tmp_path_factory.mktemp("runs") / "of me"
    os.environ[runs.VARIABLE] = str(found)
    yield found
    if before is None:
        del os.environ[runs.VARIABLE]
    else:
        os.environ[runs.VARIABLE] = before


@pytest.fixture(scope="module")
def op(where: Path, launcher: WarmLauncher) -> Iterator[ElasticOperator]:
    with product.deploy_local(WordCount(), 16, 2, launcher=launcher) as found:
        with found.feeder() as feeder:
            feeder.feed([{"word": f"w{i}"} for i in range(200)])
        yield found


def newest(op: ElasticOperator) -> Rescaling:
    """Give what was asked for last: another process may run the tests before."""
    known = [op.driver.rescales.of(number) for number in range(1, 20)]
    return [rescaling for rescaling in known if rescaling is not None][-1]


def test_a_deployment_is_listed_in_a_file_for_its_user_alone(
    op: ElasticOperator, where: Path, meander: Command
) -> None:
    (file,) = where.glob("*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(where.stat().st_mode) == 0o700
    (row,) = meander("ls", "--json").lines
    assert (row["address"], row["operator"], row["pid"]) == (op.address, "WordCount", os.getpid())
    told = meander("ls")
    assert op.address in told.out
    assert op.driver.credentials.token not in told.out + repr(runs.listed())


def test_status_is_told_from_outside(op: ElasticOperator, meander: Command) -> None:
    (told,) = meander("status", op.address, "--json").lines
    assert [node["tasks"] for node in told["nodes"]] == [8, 8]
    assert told["metrics"]["rows"] == op.metrics()["rows"] == 200
    said = meander("status")  # the only one needs no name
    assert said.code == 0
    assert "WordCount" in said.out
    assert "200 rows" in said.out


def test_a_rescale_is_planned_and_done_from_outside(op: ElasticOperator, meander: Command) -> None:
    (told,) = meander("rescale", "WordCount", "--nodes", 3, "--plan", "--json").lines
    assert (told["nodes"], told["tasks"]) == (3, 16)
    assert 0 < told["moves"] <= 16  # how many depends on the load of this very moment
    (same,) = meander("plan", op.address, "--nodes", 3, "--json").lines
    assert (same["nodes"], same["tasks"], set(same)) == (3, 16, set(told))
    assert "to 3 nodes: " in meander("plan", "--nodes", 3, "--pause-ms", 50).out
    assert "runs here" in meander("plan", "127.0.0.1:1", "--nodes", 3).err
    said = meander("plan", "--within-s", 3)
    assert (said.code, "or --nodes N for a deployment" in said.err) == (2, True)
    said = meander("rescale", op.driver.run[:6], "--nodes", 3, "--why", "more to do")
    assert said.code == 0, said.err
    assert "done: " in said.out
    assert len(op.driver.nodes()) == 3
    rescaling = newest(op)
    assert (rescaling.by, rescaling.why) == ("the command line", "more to do")
    (begun,) = meander("rescale", "--nodes", 3, "--no-wait", "--json").lines
    assert set(begun) == {"migration"}
    (told,) = meander("rescale", "--nodes", 3, "--json").lines
    assert (told["migration"], told["stage"]) == (begun["migration"] + 1, "completed")
    said = meander("rescale", "--nodes", 17)
    assert (said.code, "from 1 to 16" in said.err) == (2, True)


def test_a_rescale_that_is_carried_on_under_another_number_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A loss on the way begins another migration for the same wish: that was told as another's."""
    monkeypatch.setattr(outside, "LOOK_S", 0.0)
    rescales, steps = Rescales(lambda: 0.0), list[tuple[News, dict[str, Any]]]()
    there: Any = SimpleNamespace(driver=SimpleNamespace(core=SimpleNamespace(rescales=rescales)))

    class Desk:
        def ask(self, what: str, fields: dict[str, Any]) -> Any:
            told = json.loads(json.dumps(remote._answered(remote.migration, there, fields)))
            if steps:
                rescales.hear(*steps.pop(0))
            return told

    def begin(number: int) -> Rescaling:
        found = Rescaling(3)
        found.number = number
        rescales._known[number] = found
        return found

    begin(3)
    done = {"migration": 4, "stage": "completed", "rounds": [], "moved": 1, "seconds": 1.0}
    steps += [(News.RESCALING, {"migration": 4}), (News.COMPLETED, done)]
    assert outside.wait_for(Desk(), 3) == done
    for what, named in (
        (News.SUPERSEDED, "another rescale has taken the place of migration 7"),
        (News.ROLLED_BACK, "migration 7 was rolled back"),
    ):
        begin(7)
        steps.append((what, {"migration": 7}))
        with pytest.raises(MigrationError, match=named):
            outside.wait_for(Desk(), 7)
    begin(8).fail(DeployError("it is over"))
    with pytest.raises(MigrationError, match="it is over"):
        outside.wait_for(Desk(), 8)
    with pytest.raises(flight.FlightServerError, match="nobody has asked for migration 9"):
        outside.wait_for(Desk(), 9)


def test_a_node_is_vacated_from_outside(op: ElasticOperator, meander: Command) -> None:
    gone = next(iter(op.driver.nodes()))
    said = meander("vacate", "--node", gone, "--why", "its disk")
    assert (said.code, "done: " in said.out) == (0, True), said.err
    assert gone not in op.driver.nodes()
    rescaling = newest(op)
    assert (rescaling.by, rescaling.why) == ("the command line", "its disk")
    for words, named in (
        (("--node", gone), f"no node '{gone}'"),
        (("--host", "192.0.2.1"), "no node on '192.0.2.1'"),
        ((), "one of the arguments --node --host is required"),
    ):
        said = meander("vacate", *words)
        assert (said.code, named in said.err) == (2, True), said.err


def test_what_does_not_run_is_named(op: ElasticOperator, meander: Command) -> None:
    said = meander("status", "127.0.0.1:1")
    assert (said.code, "no deployment called '127.0.0.1:1' runs here" in said.err) == (2, True)
    runs.enter("other", "WordCount", "127.0.0.1:9", Credentials("t"))
    said = meander("status")
    assert (said.code, "2 deployments run here" in said.err) == (2, True)
    runs.leave("other")


def test_a_file_that_others_can_read_is_not_used(
    where: Path, meander: Command, caplog: pytest.LogCaptureFixture
) -> None:
    runs.enter("open", "Opened", "127.0.0.1:9", Credentials("t"))
    (where / "open.json").chmod(0o644)
    assert "Opened" not in meander("ls").out
    assert "can be read by others" in caplog.text
    (where / "open.json").unlink()


def test_one_whose_process_was_killed_is_struck(where: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    runs.enter("dead", "Dead", "127.0.0.1:9", Credentials("t"))
    file = where / "dead.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "pid": ended.pid}))
    assert "dead" not in [it.run for it in runs.listed()]
    assert not file.exists()


def test_nothing_is_written_where_nothing_shall_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(runs.VARIABLE, "")
    runs.enter("none", "None", "127.0.0.1:9", Credentials("t"))
    assert runs.listed() == []
    with pytest.raises(InputError, match=r"no deployment runs here.* is empty: nothing is listed"):
        runs.find(None)


def test_what_is_asked_for_is_shown_whole_and_as_it_is(
    op: ElasticOperator, meander: Command, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """1. an address is typed elsewhere, however narrow the terminal  2. trouble is no markup."""
    monkeypatch.setenv("COLUMNS", "30")
    assert f"{op.address}  WordCount  {op.driver.run}" in meander("ls").out
    (told,) = meander("status", "--json").lines
    status.show({**told, "failure": "OSError: [/mnt/a] is full", "store": "", "lost tasks": [3]})
    said = capsys.readouterr().out
    assert "! OSError: [/mnt/a] is full" in said
    assert "the states of 1 task are lost" in said


def test_where_nothing_is_listed_the_folder_is_named(
    tmp_path: Path, meander: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(runs.VARIABLE, str(tmp_path / "none"))
    assert f"nothing runs here for this user (the list is in {tmp_path}/none)" in meander("ls").out


def test_a_deployment_is_stopped_from_outside(op: ElasticOperator, meander: Command) -> None:
    said = meander("stop", op.address)
    assert (said.code, "has stopped" in said.err) == (0, True)
    assert runs.listed() == []
    with pytest.raises(DeployError, match="was stopped"):
        op.plan(2)


# --------------------------------------------------------------------------- logs


def test_a_line_of_the_log_tells_run_epoch_and_migration() -> None:
    out = StringIO()
    with json_lines(out) as lines:
        logging.getLogger("meander.somewhere").info("a %s", "word")
        logging.getLogger("elsewhere").warning("not ours")
        assert isinstance(lines, JsonLines)
    (told,) = [json.loads(line) for line in out.getvalue().splitlines()]
    assert (told["message"], told["level"], told["logger"]) == (
        "a word",
        "info",
        "meander.somewhere",
    )
    assert (told["run"], told["epoch"], told["migration"]) == (None, None, None)
    logging.getLogger("meander.somewhere").info("no more")
    assert out.getvalue().count("\n") == 1


def test_lines_are_of_the_deployment_that_runs(capfd: pytest.CaptureFixture[str]) -> None:
    out = StringIO()
    with (
        json_lines(out) as lines,
        product.deploy_local(WordCount(), 4, 1, tell=lambda *_: None, dashboard=True) as op,
    ):
        lines.driver = op.driver
        op.rescale(2).wait(60)
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    done = [line for line in told if line["message"].startswith("completed")]
    assert [line["migration"] for line in done] == [1]
    assert all(line["run"] == op.driver.run for line in done)
    assert all({"run", "epoch", "migration"} <= set(line) for line in told)
    assert [line for line in told if line["message"].startswith("dashboard: http://")]
    assert "dashboard: " not in capfd.readouterr().err, "nothing stands between the lines"


# --------------------------------------------------------------------------- doctor, completion


def test_the_doctor_names_what_is_wrong_and_what_to_do(
    meander: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = meander("doctor", "--checkpoint", tmp_path, "--json")
    found = {line["what"]: line for line in said.lines}
    assert found["checkpoint"]["state"] == doctor.GOOD
    assert found["network"]["state"] == doctor.GOOD
    assert list(tmp_path.iterdir()) == []
    extras = {*tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]}
    assert extras <= found.keys()
    said = meander("doctor", "--host", "192.0.2.1", "--nodes", 100_000)
    assert said.code == doctor.WRONG_FOUND
    assert "✗ network" in said.out
    assert "! memory" in said.out
    assert "→ give an address of this machine" in said.out
    said = meander("doctor", "--spark", "nonsense://")
    assert (said.code, "no master 'nonsense://'" in said.err) == (2, True)
    file = tmp_path / "file"
    file.touch()
    assert "✗ checkpoint" in meander("doctor", "--checkpoint", file / "below").out


def test_the_doctor_writes_where_checkpoints_shall_be(
    tmp_path: Path, meander: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a URI it said that it could be written to, and had not tried."""

    class ReadOnly(ArrowFiles):
        def write(self, path: str, pieces: Any) -> None:
            raise OSError("this bucket is read only")

    class Forgetful(ArrowFiles):
        def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes | None:
            return None

    for kind, named in (
        (ReadOnly, "✗ checkpoint hdfs://there/x: this bucket is read only"),
        (Forgetful, "what is written cannot be read"),
        (ArrowFiles, "✓ checkpoint hdfs://there/x can be written to from here"),
    ):
        files = kind(fs.LocalFileSystem(), str(tmp_path / kind.__name__))
        monkeypatch.setattr(filesystem, "open_files", lambda _, files=files: files)
        said = meander("doctor", "--checkpoint", "hdfs://there/x").out
        assert named in " ".join(said.split()), said
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command_and_its_options(meander: Command, shell: str) -> None:
    script = meander("completion", shell).out
    for word in ("rescale", "checkpoint", "pause-ms", "within-s"):
        assert word in script
    assert "--why" in completion.offers_of("rescale")["rescale"].options


def test_bash_completes(meander: Command, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(meander("completion", "bash").out)

    def complete(*words: str) -> list[str]:
        line = " ".join(f'"{word}"' for word in ("meander", *words))
        code = (
            f"source ./script; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _meander; "
            'echo "${COMPREPLY[@]}"'
        )
        command = ["bash", "-c", code]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert complete("resc") == ["rescale"]
    assert complete("rescale", "--pa") == ["--pause-ms"]
    assert complete("bench", "pl") == ["plan"]
    assert complete("bench", "plan", "--qu") == ["--quick"]
    assert complete("completion", "") == ["bash", "zsh", "fish"]
    assert complete("plan", "scr") == ["script"]
