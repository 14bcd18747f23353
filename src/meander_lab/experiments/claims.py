"""Every comparing sentence of Section 6, of Section 4.1, Table 3 and Appendix A, as a predicate.

Nothing is asserted by hand: a claim is judged anew whenever the report is written. The words are ours;
"proposed methods" are single-step (`ssm`) and MTM-aware migration as the paper has it (`mtm-paper`:
matrix over n, from the month before, never doubted). Where the paper says "consistently" or "for all
values", every point must agree; some points make it "holds in part". Nothing is judged at a point where
τ was infeasible and eased. Every number that decides is in `thresholds`. Claims `O.…` are our own.
"""

from __future__ import annotations

from typing import Final

from meander_lab.experiments import claims_live, claims_planning, claims_rest
from meander_lab.experiments.verdicts import Claim

_ORDER: Final = ("4", "11", "12", "13", "14", "15", "16", "17", "6", "T3", "A", "O")

CLAIMS: Final[tuple[Claim, ...]] = tuple(
    sorted(
        [*claims_live.CLAIMS, *claims_planning.CLAIMS, *claims_rest.CLAIMS],
        key=lambda claim: (_ORDER.index(claim.id.split(".")[0]), int(claim.id.split(".")[1])),
    )
)
"""In the order of the paper, ours last."""
