r"""The tokeniser against `re.findall(r"\w+", text.lower())`."""

import random
import re

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meander.errors import InputError, TooLargeError
from meander.operators import words as module
from meander.operators.words import letters, tokenise

CHARACTERS = st.characters(codec="utf-8") | st.sampled_from("aB_9 .ßİΣς\u0307Ⱥ\u212a中😀")
TEXTS = st.none() | st.text(CHARACTERS)


def naive(texts: list[str | None]) -> list[tuple[int, str]]:
    return [
        (row, word)
        for row, text in enumerate(texts)
        for word in re.findall(r"\w+", (text or "").lower())
    ]


def found(texts: pa.Array) -> list[tuple[int, str]]:
    result = tokenise(texts)
    result.words.validate(full=True)
    return list(zip(result.rows.tolist(), result.words.to_pylist(), strict=True))


@given(st.lists(TEXTS, max_size=8), st.integers(0, 3))
@settings(max_examples=120, deadline=None)
def test_words_are_those_of_re_whatever_the_text(texts: list[str | None], cut: int) -> None:
    whole = pa.array([*["pad Ⱥ"] * cut, *texts], pa.string())
    for array in (whole.slice(cut), whole.slice(cut).cast(pa.large_string())):
        assert found(array) == naive(texts)


def test_every_code_point_alone_and_in_random_company() -> None:
    points = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    random.Random(3).shuffle(points)
    mixed = ["".join(points[i : i + 40]) for i in range(0, len(points), 40)]
    spaced = [f"x{point} {point}{point}" for point in points[::29]]
    for texts in (mixed, spaced):
        plain = [text for text in texts if not set(text) & set(module.CONTEXTUAL)]
        assert found(pa.array(plain)) == naive(plain)


def test_sigma_and_dotted_i_take_the_slow_way_and_are_right() -> None:
    texts = ["ΟΔΥΣΣΕΥΣ ΣΑΣ", "İstanbul", "\u0391\u03a3'\u0391", "plain"]
    assert found(pa.array(texts)) == naive(texts)
    assert [word for _, word in naive(texts)][:2] == ["οδυσσευς", "σας"]


def test_the_table_marks_only_what_needs_its_context() -> None:
    needs = [chr(c) for c in range(0x110000) if letters()[c] < 0]
    assert needs == sorted(module.CONTEXTUAL)


def test_no_text_and_null_have_no_words() -> None:
    for texts in ([], [None], ["", None, "…"]):
        assert found(pa.array(texts, pa.string())) == []


def test_broken_utf8_is_cut_off_and_nothing_is_read_beyond_the_text() -> None:
    for data in (b"ab\xe4", b"\xff\xff\xff\xff", b"a\xf7\xbf\xbf\xbf", b"\xc3"):
        array = pa.array([data, b"z"]).view(pa.string())
        words = tokenise(array).words.cast(pa.binary()).to_pylist()
        assert words[-1] == b"z"


def test_what_is_no_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="not of int64"):
        tokenise(pa.array([1]))
    monkeypatch.setattr(module, "TEXT_BYTES_MAX", 3)
    with pytest.raises(TooLargeError, match="4 bytes of text"):
        tokenise(pa.array(["abcd"]))
