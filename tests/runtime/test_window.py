"""A sliding window gives each text twice; the same from any offset, in any parts; exact at the end."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.errors import InputError
from meander.operators import STOP_WORDS, PatternRules, generate
from meander.sources.files import FileReplay, SocketLines
from meander.sources.generated import Tweets
from meander.sources.pacing import PacedPiece
from meander.sources.patterns import Making, top_words, window_of, with_top_words
from meander.sources.windows import GRAIN, Slice, Window

S = 1_000_000


class Listed:
    """A source of numbered texts with given time stamps (None: without), a few in a piece."""

    speedup = 1.0

    def __init__(self, stamps: list[int | None], size: int = 3) -> None:
        self.stamps, self.size = stamps, size

    def describe(self) -> str:
        return "a list"

    def check(self) -> None:
        pass

    def read(self, after: int = -1, part: int = 0, parts: int = 1) -> Any:
        for offset, at in enumerate(range(0, len(self.stamps), self.size)):
            stamps = self.stamps[at : at + self.size]
            names = [f"t{at + i}" for i in range(len(stamps))]
            ts = pa.array([None if s is None else s * S for s in stamps], pa.timestamp("us"))
            last = max((s for s in self.stamps[: at + self.size] if s is not None), default=0)
            yield PacedPiece(offset, pa.record_batch({"ts": ts, "text": names}), float(last))


def told(slices: list[Slice]) -> list[tuple[int, int, list[str], float | None]]:
    return [(s.offset, s.sign, s.texts.to_pylist(), s.after_s) for s in slices]


def test_a_text_comes_and_leaves_after_the_window() -> None:
    window = Window(Listed([0, 10, 20, 30, 100], size=1), window_s=16)
    assert told(list(window.read())) == [
        (0, 1, ["t0"], 0.0),
        (1, 1, ["t1"], 10.0),
        (2, -1, ["t0"], 16.0),
        (3, 1, ["t2"], 20.0),
        (4, -1, ["t1"], 26.0),
        (5, 1, ["t3"], 30.0),
        (6, -1, ["t2"], 36.0),
        (7, -1, ["t3"], 46.0),
        (8, 1, ["t4"], 100.0),
    ]


def test_at_the_end_the_rest_stays_or_leaves_when_it_is_time() -> None:
    source = Listed([0, 1, 2, 3, 4, 5], size=2)
    stays = list(Window(source, 3).read())
    assert [s.sign for s in stays].count(-1) == 3
    assert [t for c in Window(source, 3).content() for t in c.to_pylist()] == ["t3", "t4", "t5"]
    leaves = told(list(Window(source, 3, drains=True).read()))
    assert leaves[: len(stays)] == told(stays)
    assert leaves[len(stays) :] == [
        (9, -1, ["t3"], 6.0),
        (10, -1, ["t4"], 8.0),
        (11, -1, ["t5"], 8.0),
    ]
    assert sum(sign for _, sign, _, _ in leaves) == 0


stamp_lists = st.lists(st.one_of(st.none(), st.integers(0, 60)), max_size=30)


@given(stamp_lists, st.integers(1, 40), st.integers(1, 4), st.integers(1, 5), st.booleans())
def test_the_window_is_exact_at_the_end_and_a_text_never_leaves_before_it_came(
    stamps: list[int | None], window_s: int, size: int, block: int, drains: bool
) -> None:
    window = Window(Listed(stamps, size), window_s, block, drains)
    inside = Counter[str]()
    for found in window.read():
        for text in found.texts.to_pylist():
            inside[text] += found.sign
            assert inside[text] in (0, 1)
    latest, times = -(10**9), list[int]()
    for stamp in stamps:
        latest = latest if stamp is None else max(latest, stamp)
        times.append(latest)
    expected = {f"t{i}" for i, t in enumerate(times) if t > latest - window_s}
    content = [text for array in window.content() for text in array.to_pylist()]
    assert set(content) == expected
    assert {t for t, n in inside.items() if n} == (set() if drains else expected)


@given(stamp_lists, st.integers(1, 40), st.integers(-1, 40), st.integers(1, 3))
def test_the_same_offset_names_the_same_texts(
    stamps: list[int | None], window_s: int, after: int, parts: int
) -> None:
    window = Window(Listed(stamps), window_s, 2)
    whole = told(list(window.read()))
    assert [offset for offset, *_ in whole] == list(range(len(whole)))
    shared = [told(list(window.read(after, part, parts))) for part in range(parts)]
    assert sorted((s for part in shared for s in part), key=lambda s: s[0]) == whole[after + 1 :]
    for part in shared:
        dues = [due for *_, due in part]
        assert dues == sorted(dues)


def test_slices_are_short_beside_the_window() -> None:
    """Also when a source gives hours at once, as a file does that is read as fast as it can be."""
    source = Listed([i * 60 for i in range(100)], size=100)
    slices = list(Window(source, window_s=600).read())
    for found in slices:
        times = found.block.times[found.start : found.end]
        assert times[-1] - times[0] <= 600 * S / GRAIN
    inside = 0
    for found in slices:
        inside += found.sign * (found.end - found.start)
        assert inside <= 12


def test_a_file_and_generated_tweets_slide(tmp_path: Path) -> None:
    ts = pa.array([i * S for i in range(100)], pa.timestamp("us"))
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"ts": ts, "text": [f"t{i}" for i in range(100)]}), path)
    for speedup in (0.0, 100.0):
        window = Window(FileReplay(str(path), speedup), 10)
        inside = Counter[str]()
        for found in window.read():
            inside.update(found.texts.to_pylist() if found.sign > 0 else ())
            inside.subtract(found.texts.to_pylist() if found.sign < 0 else ())
        assert {t for t, n in inside.items() if n} == {f"t{i}" for i in range(90, 100)}
    tweets = Tweets(seconds=1.0, tweets_s=200.0, speedup=600.0)
    signs = Counter(s.sign for s in Window(tweets, 60).read())
    assert signs[1] > signs[-1] > 0


def test_what_cannot_be_read_again_is_refused() -> None:
    with pytest.raises(InputError, match="read again"):
        Window(SocketLines("127.0.0.1", 9), 10)
    with pytest.raises(InputError, match="at least a second"):
        Window(Tweets(1.0), 0)


def test_slices_share_the_patterns_of_their_block() -> None:
    rules = PatternRules(window_s=5, size_max=2)
    source = Tweets(seconds=1.0, tweets_s=300.0, speedup=60.0)
    making, counts, facts = Making(rules), Counter[str](), Counter[str]()
    for found in window_of(source, rules).read():
        changes = making.changes(found)
        assert changes["pattern"].to_pylist() == generate(found.texts, rules).patterns.to_pylist()
        assert set(changes["count"].to_pylist()) <= {found.sign}
        for pattern in changes["pattern"].to_pylist():
            counts[pattern] += found.sign
        facts.update(making.facts(found))
    content = pa.chunked_array(list(window_of(source, rules).content())).combine_chunks()
    expected = Counter(generate(content, rules).patterns.to_pylist())
    assert {p: n for p, n in counts.items() if n} == expected
    texts = [t for p in source.read() for t in p.batch["text"].to_pylist()]
    assert facts["texts"] == len(texts)
    assert facts["words"] == sum(len(text.split()) for text in texts)


def test_the_most_frequent_words_of_a_source_make_a_dictionary() -> None:
    source, rules = Tweets(seconds=1.0, tweets_s=300.0), PatternRules(stop_words=STOP_WORDS)
    texts = [t for p in source.read() for t in p.batch["text"].to_pylist()]
    words = Counter(w for text in texts for w in re.findall(r"\w+", text) if rules.takes(w))
    ranked = sorted(words, key=lambda w: (-words[w], w))
    assert top_words(source, 7, rules) == set(ranked[:7])
    assert with_top_words(source, 7, rules).dictionary == set(ranked[:7])
