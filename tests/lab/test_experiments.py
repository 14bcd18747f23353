"""Every experiment at toy size: do its tables have the shape that claims and plots ask for?"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from meander.errors import InputError
from meander.planning.ahead.mdp import Model
from meander.planning.exact.partitions import Family
from meander_lab.experiments import links_text
from meander_lab.experiments.abstract import _exact_counts
from meander_lab.experiments.appendix_a import HEAVY, load_of
from meander_lab.experiments.columns import SHOWN
from meander_lab.experiments.fig17 import plain_sweeps
from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.noise import pooled
from meander_lab.experiments.parameters import parameters
from meander_lab.experiments.registry import EXPERIMENTS, experiment
from meander_lab.experiments.report import (
    DRAWINGS,
    ORDER,
    explanation,
    kept_tables,
    prose,
    read_tables,
    write_report,
)
from meander_lab.experiments.runner import run
from meander_lab.experiments.tables import ResultTable, TableRows, cell_key
from meander_lab.experiments.verdicts import FAILS, HOLDS, UNDECIDED, VERDICTS

PLANNED = ("table3", "appendix-a", "routing", "bursts", "search-space", "frequencies", "fig12",
           "fig13", "fig15", "fig17", "drift")  # fmt: skip


@pytest.fixture(scope="module")
def folder(ground: ExperimentGround, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of all planning experiments."""
    folder = tmp_path_factory.mktemp("tables") / "toy"
    trouble = run([experiment(name) for name in PLANNED], ground, folder, lambda _: None)
    assert trouble == []
    return folder


def table(folder: Path, name: str) -> TableRows:
    return ResultTable(folder, name).read()


def test_every_experiment_has_parameters_words_columns_and_a_drawing() -> None:
    names = {one.name for one in EXPERIMENTS}
    assert names == set(ORDER) == set(DRAWINGS) == set(SHOWN) == set(prose()["figures"])
    for name in names:
        for scale in ("quick", "paper", "toy"):
            wanted = parameters(name, scale)
            assert wanted.budget_s > 0
            assert experiment(name).load().cells(wanted)


def test_quick_fits_half_an_hour() -> None:
    """What runs on hosts is not among `all`."""
    here = [one.name for one in EXPERIMENTS if not one.hosts]
    assert sum(parameters(name, "quick").budget_s for name in here) <= 30 * 60


def test_rows_know_where_they_come_from(folder: Path) -> None:
    for name in PLANNED:
        for row in table(folder, name):
            assert row["scale"] == "toy"
            assert all(row[key] for key in ("commit", "code", "machine", "data", "measured_at"))
        assert (
            ResultTable(folder, name)
            .path.with_suffix(".csv")
            .read_text()
            .startswith(",".join(list(table(folder, name)[0])[:2]))
        )


def test_figure_12_has_every_method_at_every_tau(folder: Path) -> None:
    wanted, rows = parameters("fig12", "toy"), table(folder, "fig12")
    assert {(r["method"], r["tau"]) for r in rows} == {
        (m, tau) for m in wanted.methods for tau in wanted.taus
    }
    single = rows.where(method="ssm")
    assert all(r["met_tau_share"] == 1.0 for r in single)
    assert all(r["cost_low"] <= r["cost_pct"] <= r["cost_high"] for r in single)
    assert rows.where(method="storm").mean("cost_pct") > single.mean("cost_pct")


def test_figures_13_and_15_agree_on_what_two_algorithms_cost(folder: Path) -> None:
    assert all(row["plan_us"] > 0 for row in table(folder, "fig13"))
    rows = table(folder, "fig15")
    for tasks in rows.values("tasks"):
        ours, theirs = (rows.where(method=m, tasks=tasks) for m in ("ssm", "ssm-paper"))
        assert ours.mean("cost_pct") == pytest.approx(theirs.mean("cost_pct"), rel=0.5)


def test_figure_17_begins_with_single_step(folder: Path) -> None:
    rows = table(folder, "fig17").where(gamma=0.0)
    ahead, ssm = (rows.where(method=m).mean("cost_pct") for m in ("mtm-paper", "ssm"))
    assert ahead == ssm
    exact = table(folder, "fig17").where(method="PMC")
    assert exact.where(gamma=0.8)[0]["sweeps"] < exact.where(gamma=0.8)[0]["sweeps_plain"]


def test_plain_iteration_ends_at_the_same_costs(ground: ExperimentGround) -> None:
    """It needs more sweeps the larger γ is, and no fewer than its error bound asks for."""
    load, mtm = ground.workload("word-count", 16, 90.0), ground.mtm("n", even=True)
    family = Family.exact(load, mtm.nodes, 0.4)
    found = [plain_sweeps(Model.of(load, mtm, gamma, family), 1e-6) for gamma in (0.0, 0.4, 0.8)]
    assert found[0] == 1
    assert found == sorted(set(found))


def test_points_of_several_spans_are_pooled() -> None:
    rows = TableRows([
        {"m": "a", "tau": 0.2, "span": s, "costs": [1.0 + s] * 4, "relaxed": s, "trusted": s == 0}
        for s in (0, 1)
    ])  # fmt: skip
    (point,) = pooled(rows, ("m", "tau"))
    assert (point["cost_pct"], point["relaxed"], point["trusted"]) == (1.5, 1, False)
    assert (point["cost_low"], point["cost_high"]) == (1.5, 1.5)


def test_of_each_experiment_the_largest_complete_scale_is_reported(tmp_path: Path) -> None:
    table3 = {"cell": '{"sequence": "2, 3, 4 nodes"}', "total": 1}
    for scale in ("quick", "paper"):
        ResultTable(tmp_path / scale, "table3").put([table3 | {"scale": scale}])
        ResultTable(tmp_path / scale, "routing").put([{"cell": '{"nodes": 10, "tasks": 64}'}])
    assert read_tables(tmp_path, None)["table3"].column("scale") == ["paper"]
    assert "routing" not in read_tables(tmp_path, None)
    with pytest.raises(InputError, match="no tables"):
        read_tables(tmp_path / "none", None)


def test_a_table_of_two_runs_that_are_not_alike_is_no_table(tmp_path: Path) -> None:
    """A run with other tweets was interrupted: half of the cells are of the one, half of the other."""
    wanted = [cell_key(cell) for cell in experiment("routing").load().cells(
        parameters("routing", "paper"))]  # fmt: skip
    table = ResultTable(tmp_path / "paper", "routing")
    for k, key in enumerate(wanted):
        table.put([{"cell": key, "identity": "old" if k else "new", "scale": "paper"}])
    for key in wanted:
        ResultTable(tmp_path / "quick", "routing").put([{"cell": key, "identity": "a"}])
    assert read_tables(tmp_path, None)["routing"].names("identity") == ["a"]
    with pytest.raises(InputError, match="routing was measured with several data"):
        read_tables(tmp_path, "paper")
    table.put([{"cell": wanted[0], "identity": "old", "scale": "paper"}])
    assert read_tables(tmp_path, None)["routing"].names("identity") == ["old"]


def test_an_explanation_is_true_of_the_verdict_that_it_stands_beside() -> None:
    assert explanation("13.2", UNDECIDED).startswith("Every migration")
    assert explanation("13.2", FAILS) == explanation("13.2", HOLDS) == ""
    assert explanation("12.4", FAILS) == explanation("12.4", UNDECIDED) != ""
    for why in prose()["explains"].values():
        assert isinstance(why, str) or set(why) <= set(VERDICTS)


def test_every_live_run_counts_for_exact_counts() -> None:
    exact = {"fig11": TableRows([{"exact": True}]), "state": TableRows([{"exact": True}])}
    assert "after every live run" in _exact_counts(exact)
    wrong = exact | {"fig16-links": TableRows([{"exact": False}])}
    assert "after not every live run" in _exact_counts(wrong)


def test_table_3_and_appendix_a_are_as_the_errata_say(folder: Path) -> None:
    totals = {row["method"]: row["total"] for row in table(folder, "table3")}
    assert totals["best sequence"] == 6
    assert totals["single-step, unluckiest"] == 8
    rows = table(folder, "appendix-a").where(sizes="equal")
    assert rows.where(method="any assignment").mean("cost") == 2
    assert rows.where(method="single-step, heavy tasks at the ends").mean("cost") == 4


def test_five_light_tasks_and_a_heavy_one_are_even_and_go_on_cheapest(folder: Path) -> None:
    rows = table(folder, "appendix-a").where(part="two nodes", sizes="equal")
    good = rows.where(light=5, heavy=1)
    assert good.mean("imbalance") == min(rows.column("imbalance")) == 1
    assert good.mean("tasks_moved") == min(rows.column("tasks_moved")) == 2
    owners = np.array(list(product((0, 1), repeat=12)))
    most = np.array([np.bincount(one, load_of(HEAVY, False).work, 2).max() for one in owners])
    assert sum(rows.column("assignments")) == np.count_nonzero(most <= 8)


def test_drift_is_drawn_from_the_seed(folder: Path, ground: ExperimentGround) -> None:
    from meander_lab.experiments.drift import steps_of

    one, two = (steps_of("0.3", ground, ("word-count", 16, 90.0)) for _ in range(2))
    assert one[0].workload.work.tolist() == two[0].workload.work.tolist()
    assert one[0].workload.work.tolist() != one[1].workload.work.tolist()


def test_the_report_is_one_page_with_its_figures(folder: Path, tmp_path: Path) -> None:
    written = write_report(read_tables(folder.parent, "toy"), tmp_path)
    text = (tmp_path / "experiments.md").read_text()
    assert "| 12.1 | [fig12](#fig12) |" in text
    assert "**not measured**" in text  # nothing live was
    assert "claims of the paper:" in text.split("## ")[0]
    assert "What decides" in text
    for name in PLANNED:
        assert f'<a id="{name}">' in text
        assert "commit" in (tmp_path / "tables" / f"{name}.csv").read_text().splitlines()[0]
    page = (tmp_path / "experiments.html").read_text()
    assert page.count("data:image/svg+xml") == 2 * len(PLANNED)
    assert 'src="figures/' not in page
    assert all(path.exists() for path in written)


def test_what_was_not_measured_anew_stays_in_the_report(folder: Path, tmp_path: Path) -> None:
    everything = read_tables(folder.parent, "toy")
    write_report(everything, tmp_path)
    whole = (tmp_path / "experiments.md").read_text()
    figure = tmp_path / "figures" / "fig12-light.svg"
    before = figure.read_text()
    written = write_report({"table3": everything["table3"]}, tmp_path, kept_tables(tmp_path))
    assert figure not in written
    assert figure.read_text() == before
    assert (tmp_path / "experiments.md").read_text().count("<a id=") == whole.count("<a id=")
    verdicts = [line for line in whole.splitlines() if line.startswith("| 12.1 ")]
    assert verdicts[0] in (tmp_path / "experiments.md").read_text()


def test_tables_that_were_kept_are_what_was_written() -> None:
    docs = Path(__file__).parents[2] / "docs"
    kept = kept_tables(docs)
    assert {"fig11", "fig12", "fig16"} <= set(kept)
    assert kept["fig12"].values("method")
    assert all(isinstance(row["commit"], str) for rows in kept.values() for row in rows)
    assert all(isinstance(cost, float) for row in kept["fig12"] for cost in row["costs"])


def test_on_links_mechanism_and_plan_are_told_apart() -> None:
    rows = TableRows([
        {"mode": mode, "migrating": True, "link_mbit": 100.0, "seconds": float(k),
         "worst_ms": 1000.0 * k, "bytes_moved": 10 * k, "state_bytes": 100}
        for k, mode in enumerate(("live", "storm-live", "live-budget", "storm-budget", "restart"), 1)
    ])  # fmt: skip
    said = links_text.mechanism_and_plan(rows)
    assert "**100 Mbit/s.**" in said
    assert "1,000 ms at worst and not 5,000 ms" in said
    assert "10 % of the state moves and not 20 %" in said
    assert "takes 1.0 s and not 2.0 s" in said
