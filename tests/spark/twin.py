"""Naive twins of the pipeline in plain Python: independent of Spark, NumPy and our kernels."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from itertools import combinations

MASK = 2**64 - 1
P1, P2, P3, P4, P5 = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)  # fmt: skip


def rotl(x: int, r: int) -> int:
    return ((x << r) | (x >> (64 - r))) & MASK


def mix(acc: int, lane: int) -> int:
    return rotl((acc + lane * P2) & MASK, 31) * P1 & MASK


def xxh64(data: bytes, seed: int = 42) -> int:
    """XXH64 as its specification has it."""
    lanes, at, n = [], 0, len(data)
    if n >= 32:
        accs = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed, (seed - P1) & MASK]
        while at + 32 <= n:
            lanes = [int.from_bytes(data[at + 8 * i : at + 8 * i + 8], "little") for i in range(4)]
            accs = [mix(acc, lane) for acc, lane in zip(accs, lanes, strict=True)]
            at += 32
        h = sum(rotl(acc, r) for acc, r in zip(accs, (1, 7, 12, 18), strict=True)) & MASK
        for acc in accs:
            h = ((h ^ mix(0, acc)) * P1 + P4) & MASK
    else:
        h = (seed + P5) & MASK
    h = (h + n) & MASK
    while at + 8 <= n:
        h = (rotl(h ^ mix(0, int.from_bytes(data[at : at + 8], "little")), 27) * P1 + P4) & MASK
        at += 8
    if at + 4 <= n:
        lane = int.from_bytes(data[at : at + 4], "little")
        h = (rotl(h ^ (lane * P1 & MASK), 23) * P2 + P3) & MASK
        at += 4
    for byte in data[at:]:
        h = rotl(h ^ (byte * P5 & MASK), 11) * P1 & MASK
    h = (h ^ (h >> 33)) * P2 & MASK
    h = (h ^ (h >> 29)) * P3 & MASK
    return h ^ (h >> 32)


@cache
def task_of(word: str, tasks: int) -> int:
    return ((xxh64(word.encode()) >> 32) * tasks) >> 32


def words(text: str | None) -> list[str]:
    return re.findall(r"\w+", (text or "").lower())


Cells = dict[tuple[int, int], tuple[int, int, int]]
"""(slot, task) -> (work, bytes, keys), all slots and tasks."""


def count_words(rows: Iterable[tuple[int, str | None]], slot_s: int, tasks: int) -> Cells:
    """Profile word count: rows are (seconds, text)."""
    per_slot: dict[int, Counter[str]] = defaultdict(Counter)
    for second, text in rows:
        per_slot[second // slot_s].update(words(text))
    cells: Cells = {}
    seen: set[str] = set()
    size, keys = Counter[int](), Counter[int]()
    for slot in range(min(per_slot), max(per_slot) + 1):
        work = Counter[int]()
        for word, count in per_slot[slot].items():
            task = task_of(word, tasks)
            work[task] += count
            if word not in seen:
                seen.add(word)
                size[task] += len(word.encode()) + 16
                keys[task] += 1
        for task in range(tasks):
            cells[slot, task] = (work[task], size[task], keys[task])
    return cells


def count_patterns(
    rows: list[tuple[int, str]], slot_s: int, tasks: int, window_s: int, size_max: int,
    words_max: int,
) -> Cells:  # fmt: skip
    """Profile frequent patterns by playing every event and looking at every slot's end."""

    def patterns(text: str) -> list[str]:
        chosen = sorted(set(words(text)))[:words_max]
        return [" ".join(c) for k in range(1, size_max + 1) for c in combinations(chosen, k)]

    slots = range(min(r[0] for r in rows) // slot_s, max(r[0] for r in rows) // slot_s + 1)
    cells: Cells = {}
    for slot in slots:
        begin, end = slot * slot_s, (slot + 1) * slot_s
        work, alive = Counter[int](), set[str]()
        for second, text in rows:
            for moment in (second, second + window_s):
                if begin <= moment < end:
                    work.update(task_of(p, tasks) for p in patterns(text))
            if second < end <= second + window_s:
                alive.update(patterns(text))
        for task in range(tasks):
            mine = [p for p in alive if task_of(p, tasks) == task]
            size = sum(len(p.encode()) + 16 for p in mine)
            cells[slot, task] = (work[task], size, len(mine))
    return cells
