"""Predicates on made-up tables: all hold, each can be broken, none is judged without its table."""

from __future__ import annotations

import pytest
from made_up import BREAKS, rows, tables

from meander_lab.experiments.claims import CLAIMS
from meander_lab.experiments.report import prose
from meander_lab.experiments.verdicts import (
    FAILS,
    HOLDS,
    IN_PART,
    UNKNOWN,
    Claim,
    ClaimVerdict,
    together,
    trend,
)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_a_claim_holds_where_it_should(claim: Claim) -> None:
    assert claim.verdict(rows(tables())).status == HOLDS


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_a_claim_can_fail(claim: Claim) -> None:
    raw = tables()
    BREAKS[claim.id](raw)
    verdict = claim.verdict(rows(raw))
    assert verdict.status in (FAILS, IN_PART)
    assert verdict.number


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_without_its_table_a_claim_stays_open(claim: Claim) -> None:
    assert claim.verdict({}).status == UNKNOWN


def test_what_fails_everywhere_does_not_hold() -> None:
    raw = tables()
    BREAKS["14.2"](raw)
    claim = next(c for c in CLAIMS if c.id == "14.2")
    assert claim.verdict(rows(raw)) == ClaimVerdict(
        FAILS, "30 s for 100,000 partitions on 64 cores"
    )


def test_every_claim_has_one_id_and_explanations_belong_to_claims() -> None:
    ids = [claim.id for claim in CLAIMS]
    assert len(set(ids)) == len(ids)
    assert set(prose()["explains"]) <= set(ids)
    assert set(BREAKS) == set(ids)


def test_a_trend_is_judged_by_its_steps_and_by_its_ends() -> None:
    assert trend([3.0, 2.0, 1.0], up=False).status == HOLDS
    assert trend([3.0, 3.5, 1.0], up=False).status == IN_PART
    assert trend([1.0, 3.5, 2.0], up=False).status == FAILS
    assert trend([1.0, 1.0], up=True).status == FAILS
    mixed = together({"a": ClaimVerdict(HOLDS, "1"), "b": ClaimVerdict(FAILS, "2")})
    assert mixed == ClaimVerdict(IN_PART, "a: 1; b: 2")
