r"""Words, hashes and tasks as Spark expressions: the same as in the runtime, value by value.

A word is a maximal run of letters, numbers and `_` in the lower-cased text, which is Python's
`re.findall(r"\w+", text.lower())`. Java's own Unicode `\w` is another set: it takes combining
marks (so the variation selector after an emoji would be a word) and leaves out `½` and `²`.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StringType

from meander.errors import InputError
from meander.model import TASKS_MAX

WORD = r"[\p{L}\p{N}_]+"

ENTRY_BYTES = 16
"""What an entry of a state table weighs beside its key: a counter and a hash of 8 bytes each."""
FIXED_KEY_BYTES = 8
"""What a key column that is neither string nor binary weighs."""

HASH = "xxhash64 of the key columns (XXH64, seed 42); task = ((hash >>> 32) * m) >>> 32"


def words(text: Column) -> Column:
    """Give the words of a text in their order, as an array."""
    return F.regexp_extract_all(F.lower(text), F.lit(WORD), F.lit(0))


def task_of(keys: list[Column], tasks: int) -> Column:
    """Give the task of a key. Nothing overflows: both factors are below 2^32 and 2^31."""
    high = F.shiftrightunsigned(F.xxhash64(*keys), 32)
    return F.shiftrightunsigned(high * F.lit(tasks).cast("long"), 32).cast("int")


def check_tasks(tasks: int) -> int:
    """Refuse a number of tasks that `task_of` cannot address.

    Raises:
        InputError: unless 1 <= tasks < 2^31.
    """
    if not 1 <= tasks <= TASKS_MAX:
        raise InputError(f"tasks must be between 1 and {TASKS_MAX}, not {tasks}")
    return tasks


def entry_bytes(keys: dict[str, DataType]) -> Column:
    """Give the weight of a state entry whose key has these columns; null weighs nothing."""
    weight = F.lit(ENTRY_BYTES).cast("long")
    for name, kind in keys.items():
        if isinstance(kind, StringType | BinaryType):
            size = F.octet_length(F.col(name)).cast("long")
        else:
            size = F.when(F.col(name).isNotNull(), F.lit(FIXED_KEY_BYTES).cast("long"))
        weight = weight + F.coalesce(size, F.lit(0).cast("long"))
    return weight
