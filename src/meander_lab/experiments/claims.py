"""Every comparing sentence of Section 6, of Table 3 and of Appendix A, as a predicate over the tables.

Nothing is asserted by hand: a claim is judged anew whenever the report is written. The words are ours;
"proposed methods" are single-step and MTM-aware migration. Where the paper says "consistently" or "for
all values", every point must agree; some points make it "holds in part".
"""

from __future__ import annotations

from typing import Final

from meander_lab.experiments import claims_live, claims_planning
from meander_lab.experiments.verdicts import Claim

_ORDER: Final = ("11", "12", "13", "14", "15", "16", "17", "6", "T3", "A")

CLAIMS: Final[tuple[Claim, ...]] = tuple(
    sorted(
        [*claims_live.CLAIMS, *claims_planning.CLAIMS],
        key=lambda claim: (_ORDER.index(claim.id.split(".")[0]), int(claim.id.split(".")[1])),
    )
)
"""In the order of the paper."""
