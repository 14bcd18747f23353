"""Every comparing sentence of Section 6, of Section 4.1, Table 3 and Appendix A, as a predicate.

Nothing is asserted by hand: a claim is judged anew whenever the report is written. The words are ours;
"proposed methods" are single-step (`ssm`) and MTM-aware migration as the paper has it (`mtm-paper`:
matrix over n, from the month before, never doubted). Where the paper says "consistently" or "for all
values", every point must agree; some points make it "holds in part". Nothing is judged at a point where
τ was infeasible and eased. Every number that decides is in `thresholds`. Claims `O.…` are our own; one
`on links` is judged once more where bytes take their time (`claims_links`).
"""

from __future__ import annotations

from typing import Final

from meander_lab.experiments import (
    claims_examples,
    claims_links,
    claims_live,
    claims_planning,
    claims_reasons,
    claims_rest,
)
from meander_lab.experiments.verdicts import Claim

_ORDER: Final = ("4", "11", "12", "13", "14", "15", "16", "17", "6", "T3", "A", "O")


def _place(claim: Claim) -> tuple[int, int, str]:
    """Sort by figure, number, and where it is judged once more."""
    figure, _, rest = claim.id.partition(".")
    number, _, where = rest.partition(" ")
    return _ORDER.index(figure), int(number), where


CLAIMS: Final[tuple[Claim, ...]] = tuple(
    sorted(
        [
            *claims_examples.CLAIMS,
            *claims_links.CLAIMS,
            *claims_live.CLAIMS,
            *claims_planning.CLAIMS,
            *claims_reasons.CLAIMS,
            *claims_rest.CLAIMS,
        ],
        key=_place,
    )
)
"""In the order of the paper, ours last."""
