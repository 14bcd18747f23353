"""The hash and the task of a key: values from Spark, every dress of a column, broken input."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meander.errors import InputError
from meander.operators.hashing import hash_columns, tasks_of

# SELECT xxhash64(CAST(value AS type)) in Spark 4.3, session time zone UTC; binaries in hex.
GOLDEN = [
    ("bool", "true", -6698625589789238999),
    ("bool", "false", 3614696996920510707),
    ("int8", "-128", 4160238337661960656),
    ("int8", "127", 8632298611707923906),
    ("int16", "-32768", -904511417458573795),
    ("int32", "0", 3614696996920510707),
    ("int32", "1", -6698625589789238999),
    ("int32", "-2147483648", 2073849959933241805),
    ("int32", "2147483647", 1508894993788531228),
    ("int64", "0", -5252525462095825812),
    ("int64", "1", -7001672635703045582),
    ("int64", "-9223372036854775808", -8619748838626508300),
    ("int64", "9223372036854775807", -3246596055638297850),
    ("float32", "0.0", 3614696996920510707),
    ("float32", "-0.0", 3614696996920510707),
    ("float32", "1.5", 6163473420726370430),
    ("float32", "NaN", 2692338816207849720),
    ("float32", "-Infinity", -7580553461823983095),
    ("float64", "0.0", -5252525462095825812),
    ("float64", "-0.0", -5252525462095825812),
    ("float64", "1.5", 7738255526519901366),
    ("float64", "NaN", -3127944061524951246),
    ("float64", "Infinity", 5810986238603807492),
    ("date32", "1970-01-01", 3614696996920510707),
    ("date32", "2019-07-01", 3472689562464627941),
    ("date32", "1901-12-31", 3666094136478570925),
    ("timestamp", "2019-07-01 00:00:00.000001", -7130783846672313363),
    ("timestamp", "1969-12-31 23:59:59.999999", 3858142552250413010),
    ("decimal(12,3)", "-123456.789", -4851583529704802603),
    ("decimal(38,5)", "-123456.78900", 2399661459446314981),
    ("decimal(38,5)", "999999999999999999999999999999999.99999", -47190729175993179),
    ("string", "", -7444071767201028348),
    ("string", "a", -8582455328737087284),
    ("string", "the", -7881039948661331430),
    ("string", "word", 4123192359525502341),
    ("string", "Spark", -4294468057691064905),
    ("string", "meanders", -2083782042320634292),
    ("string", "é", 2065146811275570100),
    ("string", "İstanbul", -4318330117522052398),
    ("string", "中文", -7082105647848352025),
    ("string", "😀", -5869505314936196641),
    ("string", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", -1716462135722163746),
    ("string", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", 1299777543150008824),
    ("string", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", -2751654916054470392),
    ("string", "the quick brown fox jumps over the lazy dog, twice over and once again",
     -1019304281398026908),
    ("binary", "", -7444071767201028348),
    ("binary", "00", -8959994473701255385),
    ("binary", "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
     -7065438605025439737),
]  # fmt: skip

# SELECT xxhash64(…) of several columns.
GOLDEN_ROWS = [
    ([pa.array(["a"]), pa.array([1], pa.int32())], -4810547614043336770),
    ([pa.array(["a"]), pa.array([1], pa.int64())], -1010403264180844141),
    ([pa.array([1], pa.int64()), pa.array(["a"])], -8527884376001292090),
    ([pa.array([None], pa.string())], 42),
    ([pa.array([None], pa.string()), pa.array(["a"])], -8582455328737087284),
    ([pa.array(["a"]), pa.array([None], pa.int32())], -8582455328737087284),
    ([pa.array([""]), pa.array([""])], 6372822119346140258),
]


def column(kind: str, text: str) -> pa.Array:
    if kind == "binary":
        return pa.array([bytes.fromhex(text)])
    if kind.startswith("decimal"):
        digits, scale = map(int, kind[8:-1].split(","))
        return pa.array([Decimal(text)], pa.decimal128(digits, scale))
    if kind in ("float32", "float64"):
        return pa.array([float(text)], kind)
    if kind == "timestamp":
        return pa.array([text]).cast(pa.timestamp("us"))
    return pa.array([text]).cast(kind)


def signed(columns: list[pa.Array]) -> list[int]:
    return hash_columns(columns).view(np.int64).tolist()


@pytest.mark.parametrize(("kind", "text", "expected"), GOLDEN)
def test_a_value_hashes_as_in_spark(kind: str, text: str, expected: int) -> None:
    assert signed([column(kind, text)]) == [expected]


@pytest.mark.parametrize(("columns", "expected"), GOLDEN_ROWS)
def test_several_columns_chain_as_in_spark(columns: list[pa.Array], expected: int) -> None:
    assert signed(columns) == [expected]


@given(st.lists(st.none() | st.text(max_size=40)), st.integers(0, 5), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_a_string_hashes_alike_in_every_dress(
    texts: list[str | None], head: int, tail: int
) -> None:
    whole = pa.array(["pad"] * head + texts + [None] * tail, pa.string())
    array = whole.slice(head, len(texts))
    expected = [signed([pa.array([text], pa.string())])[0] for text in texts]
    dresses = [
        array,
        array.cast(pa.large_string()),
        array.cast(pa.binary()),
        array.cast(pa.string_view()),
        array.dictionary_encode(),
        whole.dictionary_encode().slice(head, len(texts)),
        pa.chunked_array([array.slice(0, 2), array.slice(2)]),
    ]
    for dress in dresses:
        assert signed([dress]) == expected
        assert signed([array, dress]) == signed([array, array])


@given(st.lists(st.none() | st.integers(-(2**31), 2**31 - 1)), st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_a_slice_of_numbers_hashes_as_its_copy(numbers: list[int | None], cut: int) -> None:
    for kind in (pa.int32(), pa.int64(), pa.float64(), pa.timestamp("us"), pa.date32()):
        array = pa.array(numbers, pa.int32())
        array = array.cast(pa.int64()).cast(kind) if kind != pa.date32() else array.cast(kind)
        assert signed([array.slice(cut)]) == signed([array])[cut:]


def test_a_timestamp_hashes_by_its_microseconds_whatever_its_unit() -> None:
    seconds = pa.array([0, -1, 10**9], pa.timestamp("s"))
    for unit in ("ms", "us"):
        assert signed([seconds.cast(pa.timestamp(unit))]) == signed([seconds])


@given(st.lists(st.integers(0, 2**64 - 1)), st.integers(1, 2**31 - 1))
@settings(deadline=None)
def test_a_task_is_a_range_of_the_hash_and_doubling_splits_it(hashes: list[int], m: int) -> None:
    array = np.array(hashes, dtype=np.uint64)
    assert tasks_of(array, m).tolist() == [((h >> 32) * m) >> 32 for h in hashes]
    if m < 2**30:
        assert (tasks_of(array, 2 * m) // 2).tolist() == tasks_of(array, m).tolist()


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1], pa.uint64()),
        pa.array([1], pa.timestamp("ns")),
        pa.array([[1]]),
        pa.array([1], pa.duration("us")),
        pa.array([{"a": 1}]),
    ],
)
def test_a_type_that_spark_lacks_is_refused_with_advice(array: pa.Array) -> None:
    with pytest.raises(InputError, match=r"cannot be a key: \w+"):
        hash_columns([array])


def test_offsets_that_leave_their_data_are_refused_and_not_followed() -> None:
    for offsets in ([0, 9, 4], [0, -4, 4], [0, 3, 2, 4], [3, 2, 4]):
        buffers = [None, pa.py_buffer(np.array(offsets, np.int32)), pa.py_buffer(b"abcd")]
        broken = pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)
        with pytest.raises(InputError, match="outside its data"):
            hash_columns([broken])


def test_no_column_or_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(InputError, match="at least one column"):
        hash_columns([])
    with pytest.raises(InputError, match="different lengths"):
        hash_columns([pa.array(["a"]), pa.array(["a", "b"])])
    with pytest.raises(InputError, match="number of tasks"):
        tasks_of(np.zeros(1, np.uint64), 0)


def test_no_rows_have_no_hashes() -> None:
    for kind in (pa.string(), pa.int64(), pa.decimal128(30), pa.dictionary(pa.int8(), pa.string())):
        assert len(hash_columns([pa.array([], kind)])) == 0
