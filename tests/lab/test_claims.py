"""Predicates on made-up tables: each verdict can be reached, and none without its table."""

from __future__ import annotations

import pytest
from made_up import BLURS, BREAKS, Change, about, costing, noisy, rows, setting, tables

from meander_lab.experiments.claims import CLAIMS
from meander_lab.experiments.noise import above, compare
from meander_lab.experiments.report import prose
from meander_lab.experiments.thresholds import THRESHOLDS
from meander_lab.experiments.verdicts import (
    FAILS,
    HOLDS,
    IN_PART,
    UNDECIDED,
    UNKNOWN,
    Claim,
    ClaimVerdict,
    counted,
    together,
    trend,
)


def judged(number: str, *changes: Change) -> ClaimVerdict:
    """Judge one claim after some changes to the tables."""
    raw = tables()
    for change in changes:
        change(raw)
    return next(claim for claim in CLAIMS if claim.id == number).verdict(rows(raw))


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_a_claim_holds_where_it_should(claim: Claim) -> None:
    assert claim.verdict(rows(tables())).status == HOLDS


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_a_claim_can_fail(claim: Claim) -> None:
    verdict = judged(claim.id, BREAKS[claim.id])
    assert verdict.status in (FAILS, IN_PART)
    assert verdict.number


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_without_its_table_a_claim_stays_open(claim: Claim) -> None:
    found = claim.verdict({})
    assert found.status == UNKNOWN
    assert "which `meander experiment run " in found.number


@pytest.mark.parametrize("number", BLURS)
def test_noise_that_is_larger_than_the_difference_leaves_a_claim_undecided(number: str) -> None:
    assert judged(number, BLURS[number]).status in (UNDECIDED, IN_PART)


def test_undecided_is_what_blurred_claims_are() -> None:
    assert judged("12.3", BLURS["12.3"]).status == UNDECIDED
    assert judged("13.2", BLURS["13.2"]).status == UNDECIDED
    assert judged("17.2", BLURS["17.2"]).status == UNDECIDED


def test_nothing_is_judged_where_tau_was_eased() -> None:
    worse = costing("fig12", 1.0, method="consistent-hash", tau=0.2)
    eased = setting("fig12", "relaxed", 57, method="ssm", tau=0.2)
    assert judged("12.2", worse).status == IN_PART
    found = judged("12.2", worse, eased)
    assert found.status == HOLDS
    assert "left out, τ was eased there: τ of word-count 0.2; frequent-patterns 0.2" in found.number
    one_span = setting("fig12", "relaxed", 57, method="ssm", tau=0.2, span=1)
    assert "0.2 in 1 of 2 spans" in judged("12.2", one_span).number
    fewer = setting("fig15", "relaxed", 100, method="ssm", tasks=64)
    assert judged("15.2", costing("fig15", 0.1, tasks=64), fewer).status == HOLDS


def test_a_gap_that_was_the_other_way_does_not_grow() -> None:
    cheaper = costing("fig12", 2.0, method="consistent-hash", tau=0.2)
    assert judged("12.6", cheaper).status == IN_PART


def test_the_gap_to_others_is_that_of_both_proposed_methods() -> None:
    dearer = costing("fig12", 7.9, method="mtm-paper", tau=0.6)
    found = judged("12.6", dearer, costing("fig12", 7.9, method="mtm-paper", tau=0.4))
    assert found.status == IN_PART
    assert "word-count, MTM-aware to storm" in found.number


def test_partitions_are_not_compared_where_tau_was_eased() -> None:
    eased = setting("fig14", "tau_met", 0.7, tau=0.6)
    assert judged("14.3", setting("fig14", "states", 1.0, tau=0.6), eased).status == HOLDS
    assert judged("14.3", eased, setting("fig14", "tau_met", 0.7, tau=0.4)).status == UNKNOWN


def test_the_best_is_to_move_the_heavy_tasks_and_no_others() -> None:
    any_way = {"method": "any assignment"}
    for column, value in (("tasks_moved", 3.0), ("imbalance", 18 / 14)):
        assert judged("A.3", setting("appendix-a", column, value, **any_way)).status == FAILS


def test_plans_of_single_step_say_nothing_of_mtm() -> None:
    same = setting("fig16-gap", "differs_share", 0.0, method="mtm-paper")
    assert judged("16.3", same).status == UNKNOWN
    assert "3 of 6 plans are not those of single-step" in judged("16.3").number


def test_a_gap_in_time_that_is_smaller_than_that_in_cost_is_not_larger() -> None:
    assert judged("16.3", setting("fig16-gap", "mean_ms", 9.0, method="mtm-paper")).status == FAILS


def test_rows_from_before_nodes_told_how_busy_they_are_leave_that_open() -> None:
    found = judged("16.5", setting("fig16", "busy_share", None))
    assert found.status == UNKNOWN
    assert "`meander experiment run fig16` does" in found.number


def test_the_space_is_compared_n_by_n_where_tau_is_met() -> None:
    patterns = {"application": "frequent-patterns", "nodes": 9}
    more = setting("search-space", "states", 1e30, tau=0.6, **patterns)
    found = judged("12.10", more)
    assert found.status == IN_PART
    assert "faster for word count with 8, 10 of 8 to 10 nodes" in found.number
    eased = setting("search-space", "tau_met", 0.7, tau=0.6, **patterns)
    assert judged("12.10", more, eased).status == HOLDS
    both = setting("search-space", "tau_met", 0.7, tau=0.4, **patterns)
    assert judged("12.10", eased, both).status == UNKNOWN


def test_patterns_are_filtered_whatever_is_frequent() -> None:
    often = setting("frequencies", "rare_pct", 40.0, application="frequent-patterns", threshold=1)
    assert judged("12.11", often).status == IN_PART
    words = setting("frequencies", "filtered_pct", 99.0, application="word-count")
    assert judged("12.11", words).status == HOLDS


def test_a_good_assignment_is_as_even_as_any_and_evener_than_six_tasks_each() -> None:
    found = judged("A.4")
    assert "busiest node over mean: 1, as of 3 + 2 and 7 + 0; of 4 + 2 and 6 + 0" in found.number
    assert "A third node then makes 2 tasks move; from 3 + 2 and 7 + 0 it is 3" in found.number
    even = setting("appendix-a", "imbalance", 1.0, method="4 + 2 and 6 + 0")
    assert judged("A.4", even).status == IN_PART


def test_a_margin_is_large_somewhat_or_none() -> None:
    assert judged(
        "16.2", setting("fig16", "mean_ms", 800.0, method="ssm", window_s=30.0)
    ).status == (IN_PART)
    assert judged("16.2", BREAKS["16.2"]).status == FAILS


def test_fall_backs_are_not_timed_as_online_choices() -> None:
    fell = setting("fig14", "fallbacks", 11)
    assert judged("14.1", fell).status == UNKNOWN
    assert judged("14.1", setting("fig14", "tau_met", 0.9)).status == UNKNOWN


def test_hundreds_of_minutes_are_judged_at_the_papers_size() -> None:
    assert judged("14.2", setting("fig14", "partitions", 1769)).status == UNKNOWN
    found = judged("14.2", BREAKS["14.2"])
    assert found.status == FAILS
    assert "30 s for 113,102 partitions in one process" in found.number
    assert "30 s for 113,102 partitions on Spark, 2 cores" in found.number


def test_the_mean_of_a_migration_does_not_depend_on_the_interval() -> None:
    def cut(raw: dict[str, list[dict[str, object]]]) -> None:
        """Intervals of 6 s: the same delay is ten times the mean."""
        for row in raw["fig11"]:
            row["interval_s"] = 6.0
            row["mean_ms"] = 49955.0 if row["mode"] == "restart" and row["migrating"] else 5.0

    whole, short = judged("11.1"), judged("11.1", cut)
    assert whole.status == short.status == HOLDS
    assert whole.number.split(" times")[0] == short.number.split(" times")[0]


def test_every_claim_has_one_id_and_explanations_belong_to_claims() -> None:
    ids = [claim.id for claim in CLAIMS]
    assert len(set(ids)) == len(ids)
    assert set(prose()["explains"]) <= set(ids)
    assert set(BREAKS) == set(ids)


def test_every_threshold_names_claims_that_there_are() -> None:
    ids = {claim.id for claim in CLAIMS}
    for one in THRESHOLDS:
        assert one.reason
        assert one.claims.startswith("all") or set(one.claims.split(", ")) <= ids


def test_a_trend_is_judged_by_its_steps_and_by_its_ends() -> None:
    assert counted([3.0, 2.0, 1.0], up=False).status == HOLDS
    assert counted([3.0, 3.0, 1.0], up=False).status == HOLDS
    assert counted([3.0, 3.5, 1.0], up=False).status == IN_PART
    assert counted([1.0, 3.5, 2.0], up=False).status == FAILS
    assert counted([1.0, 1.0], up=True).status == FAILS
    assert trend([({0: about(4.0)},), ({0: noisy(4.0)},)], up=True).status == UNDECIDED
    with pytest.raises(LookupError, match="two points"):
        counted([1.0], up=True)


def test_verdicts_of_several_series_are_joined() -> None:
    def of(*statuses: str) -> str:
        return together({str(k): ClaimVerdict(s, "") for k, s in enumerate(statuses)}).status

    assert of(HOLDS, HOLDS) == HOLDS
    assert of(HOLDS, FAILS) == of(IN_PART, FAILS) == of(HOLDS, UNDECIDED) == IN_PART
    assert of(FAILS, UNDECIDED) == FAILS
    assert of(UNDECIDED, UNDECIDED) == UNDECIDED


def test_one_run_decides_nothing_and_few_runs_only_what_is_far_apart() -> None:
    def one(raw: dict[str, list[dict[str, object]]]) -> None:
        raw["fig11"] = [row for row in raw["fig11"] if row["repeat"] == 0]

    found = judged("11.1", one)
    assert found.status == UNDECIDED
    assert "[–]" in found.number
    near, far = ({0: [10.0, 12.0]}, {0: [500.0, 600.0]})
    assert above(compare(lambda a: a - 9, near, block=1)) is None
    assert above(compare(lambda a: 5000 - a, far, block=1)) is True


def test_migrations_of_one_run_are_no_runs() -> None:
    """What slows a run down slows all of its migrations: six of three runs are three values."""

    def uneven(raw: dict[str, list[dict[str, object]]]) -> None:
        for row in raw["fig16"]:
            if row["method"] == "restart":
                row["mean_ms"] = (8000.0, 9000.0, 6000.0)[int(str(row["repeat"]))]

    assert judged("16.4").status == HOLDS
    assert judged("16.4", uneven).status == UNDECIDED
    assert judged("16.4", uneven).number.startswith("7667 [39")

    def one(raw: dict[str, list[dict[str, object]]]) -> None:
        for name in ("fig16", "fig16-gap", "fig16-links"):
            raw[name] = [row for row in raw[name] if row["repeat"] == 0]

    for number in ("16.1", "16.2", "16.3", "16.4", "16.5", "16.1 on links", "16.2 on links", "O.7"):
        assert judged(number, one).status == UNDECIDED


def test_one_migration_decides_nothing() -> None:
    def one(raw: dict[str, list[dict[str, object]]]) -> None:
        raw["fig12"] = [{**row, "costs": [row["cost_pct"]]} for row in raw["fig12"]]
        raw["fig12"] = [row for row in raw["fig12"] if row["span"] == 0]

    for number in ("12.1", "12.2", "12.3", "12.4", "12.5", "12.6", "12.7", "6.1", "O.1", "O.3"):
        assert judged(number, one).status == UNDECIDED


def test_differences_are_paired() -> None:
    """Migrations scatter by a fifth; a difference of a hundredth is seen since they are the same."""
    one, two = about(4.0), about(3.96)
    assert above(compare(lambda a, b: a - b, {0: one}, {0: two})) is True
    assert above(compare(lambda a, b: a - b, {0: one}, {0: noisy(3.96)})) is None
    with pytest.raises(LookupError, match="other migrations"):
        compare(lambda a, b: a - b, {0: one}, {0: two[1:]})
    with pytest.raises(LookupError, match="no span"):
        compare(lambda a, b: a - b, {0: one}, {1: two})
