"""Nodes as processes on hosts, and experiments whose links pass so much and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from meander.cli.main import main
from meander.errors import InputError
from meander.protocol.settings import Settings
from meander.runtime.process.spec import ProcessExit, ProcessSpec, Reason
from meander.runtime.wire.credentials import Credentials
from meander_lab.experiments.tables import ResultTable
from meander_lab.hosts.hosts import Hosts, sweep
from meander_lab.hosts.launch import HostNursery, HostsLauncher


def spec(kind: str, name: str, host: str = "") -> ProcessSpec:
    return ProcessSpec(kind, "r", name, 1, 1, "h:1", Credentials("t"), 8, Settings(), host=host)


def test_nodes_are_spread_evenly_and_servers_stand_by_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. five nodes on three hosts  2. one ends  3. the next one takes its place."""
    heard: list[ProcessExit] = []
    launched: list[tuple[str, str]] = []

    def launch(nursery: HostNursery, given: ProcessSpec) -> None:
        launched.append((given.name, nursery.host.name))

    monkeypatch.setattr(HostNursery, "start", lambda nursery, ended: None)
    monkeypatch.setattr(HostNursery, "launch", launch)
    launcher = HostsLauncher(Hosts("meander-1-1-1", 4))
    launcher.start(heard.append)
    for k in range(5):
        launcher.launch(spec("node", f"n{k}"))
    assert [host for _, host in launched] == ["h2", "h3", "h4", "h2", "h3"]
    launcher.launch(spec("server", "server@10.77.0.4", host="10.77.0.4"))
    assert launched[-1][1] == "h4"
    launcher._end(ProcessExit("node", "n1", 1, Reason.DRAINED))
    assert [ended.name for ended in heard] == ["n1"]
    launcher.launch(spec("node", "n5"))
    launcher.launch(spec("node", "n6"))
    assert [host for _, host in launched[-2:]] == ["h3", "h4"]


def test_one_host_has_the_driver_alone() -> None:
    with pytest.raises(InputError, match="two at least"):
        HostsLauncher(Hosts("meander-1-1-1", 1))


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["fig12", "--hosts", "4"], "fig11 and fig16 run on links, and not fig12"),
        (["fig11", "--link", "fast"], "a rate is as 100mbit or 1gbit, not 'fast'"),
        (["fig11", "--link", "0mbit"], "a rate is as 100mbit or 1gbit"),
        (["fig11", "--hosts", "1"], "--hosts is from 2 to 9, not 1"),
        (["fig11-links", "fig11"], "what runs on hosts runs by itself"),
    ],
)
def test_wishes_that_cannot_be_are_refused(
    argv: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["experiment", "run", *argv]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.slow
def test_an_experiment_on_links_at_toy_size(may_have_hosts: None, tmp_path: Path) -> None:
    argv = ["experiment", "run", "fig11", "fig16", "--scale", "toy", "--out", str(tmp_path)]
    assert main([*argv, "--hosts", "3", "--link", "100mbit"]) == 0
    for name in ("fig11-links", "fig16-links"):
        rows = ResultTable(tmp_path / "toy", name).read()
        assert rows.values("link_mbit") == [100.0]
        assert all(row["exact"] for row in rows)
    assert sweep() == [], "nothing is left"
