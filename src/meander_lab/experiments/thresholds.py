"""Every number that turns a measurement into a verdict, with its reason. There are no others.

Words such as "several" or "significant" have no number in the paper: what we take them to mean is here,
and is printed in the report.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from meander.planning.ahead.brackets import BLOCK, RESAMPLES


class Threshold(NamedTuple):
    """A number, where it decides, and why it is what it is."""

    value: float
    claims: str
    means: str
    reason: str


SEVERAL_ORDERS: Final = Threshold(
    100,
    "11.1, 11.1 on links",
    "times: several orders of magnitude",
    "two orders are the fewest that are several",
)
ONE_ORDER: Final = Threshold(
    10, "11.1, 11.1 on links", "times: a part of that", "one order of magnitude"
)
MINUTE_S: Final = Threshold(
    60, "11.1, 11.1 on links, 6.3", "seconds of an interval", "the paper's means are over minutes; "
    "those of shorter intervals are spread over a minute, since a mean depends on the length it is "
    "taken over",
)  # fmt: skip
COMPARABLE: Final = Threshold(
    2,
    "11.2, 11.2 on links",
    "times at most: comparable",
    "far less than what a migration does to them",
)
DRAMATIC: Final = Threshold(10, "6.3", "times: dramatic", "one order of magnitude")
TWICE: Final = Threshold(2, "12.1", "times", "the paper's own number")
SIGNIFICANT: Final = Threshold(0.1, "6.1", "saved: a significant share", "a tenth")
NEGLIGIBLE_US: Final = Threshold(2000, "13.2, 13.3, 6.2", "µs: negligible", "the paper's own 2 ms")
MUCH_LONGER: Final = Threshold(
    1000, "14.1, 6.4", "times: much longer", "a second against a millisecond"
)
MOST: Final = Threshold(0.5, "12.11, 14.4", "share: most", "more than half")
SERVED: Final = Threshold(
    100,
    "14.4",
    "migrations that a pre-computation is for",
    "the paper's 100 consecutive ones, before which it is made once",
)
HUNDREDS_S: Final = Threshold(6000, "14.2", "seconds: hundreds of minutes", "100 minutes")
PARTITIONS: Final = Threshold(
    100_000, "14.2", "partitions at least, to be judged", "the authors' code enumerates 113,102"
)
SQUARE_LOW: Final = Threshold(1.5, "15.1, 15.5", "least exponent of m", "it rounds to 2")
SQUARE_HIGH: Final = Threshold(2.5, "15.1, 15.5", "largest exponent of m", "it rounds to 2")
LARGE: Final = Threshold(
    2,
    "16.2, 16.2 on links",
    "times: a large margin",
    "what the paper itself calls significantly higher (12.1)",
)
STORM_MS: Final = Threshold(5000, "16.4", "ms", "the paper's own number")
FOUR: Final = Threshold(0.5, "A.2", "tasks off four at most", "it rounds to four")
CONFIDENCE: Final = Threshold(
    0.95, "all with brackets", "of such brackets hold the true value",
    f"usual; {RESAMPLES} resamples in blocks of {BLOCK} migrations, since neighbours depend on each "
    "other, or of runs; widened by Student's distribution, since blocks and runs are few. A difference "
    "whose brackets hold 0 decides nothing, nor does one that has none: [–], a single run or migration",
)  # fmt: skip

THRESHOLDS: Final = tuple(
    value for value in dict(globals()).values() if isinstance(value, Threshold)
)
"""All of them, in the order of this file."""
