"""What Prometheus scrapes, and the files that use it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dashboard_kit import ROUND, TOKEN, ended, made_up, moving, request, served, soon
from prometheus_client.parser import text_string_to_metric_families

from meander.dashboard.feed import Feed
from meander.dashboard.metrics import BOUNDS_S, exposition
from meander.dashboard.snapshot import Snapshot

FILES = Path(__file__).parents[2] / "docs" / "monitoring"
NAME = re.compile(r"meander_[a-z0-9_]+")


def full() -> Snapshot:
    """Everything that can be told is."""
    news = {"completed": 3, "lost": 1}
    return ended(
        moving(made_up(rows=5000, checkpointing=True, saved_s=2.0, saved=False, news=news))
    )


def samples(now: Snapshot) -> dict[str, float]:
    found = dict[str, float]()
    for family in text_string_to_metric_families(exposition(now)[0].decode()):
        for name, labels, value, *_ in family.samples:
            found[name + "".join(f"{{{v}}}" for v in labels.values())] = value
    return found


def test_figures_are_those_of_the_metrics_in_base_units() -> None:
    now, found = full(), samples(full())
    assert found["meander_rows_total"] == now.totals["rows"] == 5000
    assert found["meander_latency_seconds_count"] == 5000
    assert found["meander_latency_seconds_sum"] == pytest.approx(5000 * 0.0025)
    assert found["meander_latency_seconds_bucket{0.0025}"] == 0  # ours lies across the bound
    assert found["meander_latency_seconds_bucket{0.005}"] == 5000
    assert found["meander_migration_pause_measured_seconds"] == ROUND["measured_s"]
    assert found["meander_migration_pause_budget_seconds"] == 0.1
    assert found["meander_rescales_total{completed}"] == 3
    assert found["meander_lost_nodes_total"] == 1
    assert found["meander_checkpoint_age_seconds"] == 2.0
    assert found["meander_nodes{up}"] == 4


def test_names_follow_the_rules_and_no_label_is_a_task_or_a_key() -> None:
    big, small = samples(made_up(nodes=100, tasks=10_000)), samples(made_up())
    assert set(big) == set(small), "as many series, however many nodes and tasks there are"
    for family in text_string_to_metric_families(exposition(full())[0].decode()):
        assert re.fullmatch(r"meander_[a-z_]+", family.name)
        assert family.documentation
        assert not re.search(r"_(ms|us|kb|mb|millis)(_|$)", family.name)
        for sample in family.samples:
            assert set(sample.labels) <= {
                "le",
                "status",
                "end",
                "operator",
                "run",
                "version",
                "policy",
            }


def test_buckets_only_grow() -> None:
    found = samples(full())
    counts = [found[f"meander_latency_seconds_bucket{{{bound}}}"] for bound in BOUNDS_S]
    assert counts == sorted(counts)


def test_a_deployment_that_has_not_been_looked_at_tells_nothing() -> None:
    assert exposition(None)[0] == b""


@pytest.mark.parametrize("file", ["grafana.json", "alerts.yml"])
def test_files_name_only_metrics_that_there_are(file: str) -> None:
    named = set(NAME.findall((FILES / file).read_text()))
    known = {re.sub(r"(_bucket)?\{.*", "", name) for name in samples(full())}
    assert {name.removesuffix("_bucket") for name in named} <= known
    assert len(named) > 8


def test_the_grafana_dashboard_is_whole() -> None:
    found = json.loads((FILES / "grafana.json").read_text())
    ids = [panel["id"] for panel in found["panels"]]
    assert len(set(ids)) == len(ids)
    places = {(p["gridPos"]["x"], p["gridPos"]["y"]) for p in found["panels"]}
    assert len(places) == len(ids)
    assert all(target["expr"].count("(") == target["expr"].count(")")
               for panel in found["panels"] for target in panel["targets"])  # fmt: skip


def tool(name: str) -> str:
    """Find a program of Prometheus: installed, or unpacked by scripts/prometheus.sh."""
    found = shutil.which(name) or shutil.which(name, path=f"{sys.prefix}/prometheus/usr/bin")
    if found is None:
        pytest.skip(
            f"there is no {name} here: `make prometheus` fetches it where Debian's is found"
        )
    return found


def judged(*words: str, given: bytes = b"") -> None:
    """Have promtool judge something."""
    done = subprocess.run([tool("promtool"), *words], input=given, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_rules_and_metrics() -> None:
    judged("check", "rules", str(FILES / "alerts.yml"))
    judged("check", "metrics", "--extended", given=exposition(full())[0])


FIRING = {
    "MeanderFailed": {"meander_failed": "1x60"},
    "MeanderStateLost": {"meander_lost_tasks": "3x60"},
    "MeanderStoreFailing": {"meander_store_failing": "1x60"},
    "MeanderCheckpointOld": {"meander_checkpoint_age_seconds": "61x60"},
    "MeanderBackPressure": {"meander_backpressure_ratio": "0.6x60"},
    "MeanderNodeOverloaded": {"meander_node_load_ratio_max": "1.3x60"},
    "MeanderPauseBudgetMissed": {
        "meander_migration_pause_measured_seconds": "0.2x60",
        "meander_migration_pause_budget_seconds": "0.1x60",
    },
    "MeanderLatencyHigh": {
        'meander_latency_seconds_bucket{le="1"}': "0x60",
        'meander_latency_seconds_bucket{le="10"}': "0+10x60",
        'meander_latency_seconds_bucket{le="+Inf"}': "0+10x60",
    },
    "MeanderNodesDie": {"meander_lost_nodes_total": "0+1x60"},
}
"""What each alert is for, as a series of an hour."""


def test_every_alert_fires_for_what_it_is_for_and_no_other_does(tmp_path: Path) -> None:
    rules = re.findall(r"alert: (\w+)", (FILES / "alerts.yml").read_text())
    assert rules == list(FIRING)
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": k, "values": v} for k, v in series.items()],
            "promql_expr_test": [
                {
                    "expr": "count by (alertname) (ALERTS{alertstate='firing'})",
                    "eval_time": "30m",
                    "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1}],
                }
            ],
        }
        for alert, series in FIRING.items()
    ]
    told = {"rule_files": [str(FILES / "alerts.yml")], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yml").write_text(json.dumps(told))  # which is YAML, too
    judged("test", "rules", str(tmp_path / "tests.yml"))


def test_a_real_prometheus_scrapes_it_and_knows_what_grafana_asks(tmp_path: Path) -> None:
    """1. a rescale has missed its promise  2. its alert fires  3. every panel has its answer."""
    prometheus, feed, now = tool("prometheus"), Feed(), full()
    assert now.look.migration is not None
    missed = replace(now.look.migration, rounds=({**ROUND, "measured_s": 0.3},))
    feed.take(replace(now, look=replace(now.look, migration=missed)))
    with served(feed) as server:
        for name in ("prometheus.yml", "alerts.yml"):
            shutil.copy(FILES / name, tmp_path)
        config = (tmp_path / "prometheus.yml").read_text()
        config = config.replace("9471", str(server.port)).replace("5s", "1s")
        config = config.replace("1s\n", "1s\n  evaluation_interval: 1s\n", 1)
        (tmp_path / "prometheus.yml").write_text(config)
        (tmp_path / "meander.token").write_text(TOKEN)
        words = [f"--config.file={tmp_path / 'prometheus.yml'}",
                 f"--storage.tsdb.path={tmp_path / 'data'}",
                 "--web.listen-address=127.0.0.1:39471"]  # fmt: skip
        running = subprocess.Popen([prometheus, *words], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)  # fmt: skip
        try:
            assert soon(lambda: _asked("meander_rows_total"), 30)[0]["value"][1] == "5000"
            (alert,) = soon(lambda: _asked("ALERTS{alertstate='firing'}"), 30)
            assert alert["metric"]["alertname"] == "MeanderPauseBudgetMissed"
            soon(lambda: _asked("rate(meander_rows_total[1m])"), 30)
            for panel in json.loads((FILES / "grafana.json").read_text())["panels"]:
                for target in panel["targets"]:
                    asks = target["expr"].replace("$__rate_interval", "1m").replace("$job", ".+")
                    assert _asked(asks), f"{panel['title']}: {asks}"
        finally:
            running.terminate()
            running.wait(10)


def _asked(query: str) -> Any:
    where = f"http://127.0.0.1:39471/api/v1/query?query={urllib.parse.quote(query)}"
    try:
        with urllib.request.urlopen(where, timeout=2) as answer:
            return json.load(answer)["data"]["result"]
    except OSError:
        return []


def test_it_is_served_to_whoever_has_the_token() -> None:
    feed = Feed()
    feed.take(full())
    with served(feed) as server:
        status, headers, text = request(server, "/metrics", Authorization=f"Bearer {TOKEN}")
        assert (status, "text/plain" in headers["content-type"]) == (200, True)
        assert "meander_rows_total 5000.0" in text
        openmetrics = request(
            server,
            "/metrics",
            Authorization=f"Bearer {TOKEN}",
            Accept="application/openmetrics-text",
        )[2]
        assert openmetrics.endswith("# EOF\n")
