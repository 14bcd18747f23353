"""Which patterns a text has: their size, the words that count, the words that do not.

Spark's expressions (`spark/pipeline/patterns.py`) and the kernels (`texts`) read the same rules
and give the same patterns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import comb
from pathlib import Path

from meander.errors import InputError

PATTERNS_MAX = 1_000_000
"""Most patterns of one tweet."""

STOP_WORDS = frozenset(
    """
    a about above after again against all also am amp an and any are as at be because been before
    being below between both but by can cannot could d did do does doing don down during each even
    ever every few for from further get got had has have having he her here hers herself him himself
    his how https http i if in into is it its itself just ll m may me might more most must my myself
    no nor not now of off on once only or other our ours ourselves out over own please re rt s same
    shall she should so some such t than that the their theirs them themselves then there these they
    this those through to too under until up upon us ve very via was we were what when where whether
    which while who whom why will with would yet you your yours yourself yourselves
    """.split()  # noqa: SIM905 - a list of strings would fill a page
)
"""English words that say nothing alone, with what an apostrophe leaves behind (`don`, `t`, `ll`) and
what tweets are full of (`rt`, `amp`, `https`)."""


@dataclass(frozen=True)
class PatternRules:
    """Which patterns a text has, and how long they count."""

    window_s: int = 90
    """ω; 90 seconds is the paper's default."""
    size_max: int = 2
    """Most words in a pattern."""
    words_max: int = 20
    """Most distinct words taken of one tweet."""
    stop_words: frozenset[str] = field(default=frozenset(), repr=False)
    """Words that are in no pattern."""
    dictionary: frozenset[str] = field(default=frozenset(), repr=False)
    """When not empty: only these words are in patterns."""

    def __post_init__(self) -> None:
        if self.window_s < 1 or self.size_max < 1 or self.words_max < 1:
            raise InputError("window, pattern size and words of a tweet must be at least 1")
        if (count := self.patterns_max) > PATTERNS_MAX:
            raise InputError(
                f"a tweet of {self.words_max} words has {count} patterns of up to {self.size_max} "
                f"words, more than {PATTERNS_MAX}: allow smaller patterns or fewer words of a tweet"
            )

    @property
    def patterns_max(self) -> int:
        """Most patterns of one tweet.

        >>> PatternRules(size_max=2, words_max=20).patterns_max
        210
        """
        return sum(comb(self.words_max, k) for k in range(1, self.size_max + 1))

    def takes(self, word: str) -> bool:
        """Whether a word may be in a pattern.

        >>> PatternRules(stop_words=STOP_WORDS).takes("the")
        False
        """
        if word in self.stop_words:
            return False
        return not self.dictionary or word in self.dictionary


def read_words(path: str | Path) -> frozenset[str]:
    """Read a list of words, separated by white space.

    Raises:
        InputError: if it cannot be read, or holds none.
    """
    try:
        found = frozenset(Path(path).read_text(encoding="utf-8").lower().split())
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
    if not found:
        raise InputError(f"{path} holds no word")
    return found
