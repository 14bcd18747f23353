"""Passes over lanes and chunks that every message takes, compiled: plain loops over columns.

A lane is one task's with one feeder. What columns mean is told where they are kept: `edges.offered` for
a feeder's lanes, `node.express` for a node's, `blocks` for those of chunks and of acknowledgements.
"""

from __future__ import annotations

import numpy as np
from numba import njit

TRIES_MAX = 4
"""Whoever is slow shall not be made slower by what it has already been sent. So a lane that hears
nothing first sends one chunk again, and everything only if it hears nothing once more; and every time
it waits twice as long, up to 2^4 times."""
UNSENT_CHUNKS = 2
"""No more need wait to be sent: who has to wait offers fewer and larger chunks then."""
APPLIED, DURABLE = 1, 2
"""What acknowledgements told that was not known."""
ASCEND, RANGE, IMPOSSIBLE = 1, 2, 3
"""What is wrong with chunks."""
TWICE, BEFORE, ABSENT, APART = 1, 2, 3, 4
"""What is wrong with an offer."""
TAKEN, KNOWN, OTHER = FATES = 0, 1, 2
"""What becomes of the chunks of a block."""

# --------------------------------------------------------------------------- blocks


@njit(cache=True, nogil=True)
def fault(columns: np.ndarray, tasks: int) -> int:
    """Find what is wrong with the columns of a block; 0: nothing is. `tasks` there are in all."""
    task, number, first, last, size = columns
    for i in range(columns.shape[1]):
        if i and task[i] <= task[i - 1]:
            return ASCEND
        if task[i] < 0 or task[i] >= tasks:
            return RANGE
        if number[i] < 1 or first[i] < 0 or last[i] < first[i] or size[i] < 0:
            return IMPOSSIBLE
    return 0


@njit(cache=True, nogil=True)
def impossible(columns: np.ndarray) -> bool:
    """Tell whether acknowledgements name something negative, or more as durable than as applied."""
    for i in range(columns.shape[1]):
        if columns[5, i] > columns[4, i]:
            return True
        for row in range(columns.shape[0]):
            if columns[row, i] < 0:
                return True
    return False


# --------------------------------------------------------------------------- a feeder's lanes


@njit(cache=True, nogil=True)
def offered(columns: np.ndarray, offset: int, last: int, tasks: int) -> int:
    """Find what is wrong with the columns of an offer that follows `offset`; 0: nothing is."""
    rows = False
    for i in range(columns.shape[1]):
        for row in range(columns.shape[0]):
            if columns[row, i] < 0:
                return TWICE
        if i and columns[0, i] <= columns[0, i - 1]:
            return TWICE
        rows = rows or columns[4, i] > 0
    again = last == offset >= 0 and not rows  # watermarks alone: about what was last
    if last <= offset and not again:
        return BEFORE
    low = last if again else offset + 1
    for i in range(columns.shape[1]):
        if columns[0, i] >= tasks:
            return ABSENT
        if not low <= columns[2, i] <= columns[3, i] <= last:
            return APART
    return 0


@njit(cache=True, nogil=True)
def total(last: np.ndarray, done: np.ndarray) -> int:
    """Count chunks that are not done, of all lanes."""
    found = 0
    for task in range(len(last)):
        found += last[task] - done[task]
    return found


@njit(cache=True, nogil=True)
def most(last: np.ndarray, done: np.ndarray) -> int:
    """Count chunks that are not done, of the lane that has most."""
    found = 0
    for task in range(len(last)):
        found = max(found, last[task] - done[task])
    return found


@njit(cache=True, nogil=True)
def number(columns: np.ndarray, last: np.ndarray) -> int:
    """Number the chunks of a block; give their bytes."""
    size = 0
    for i in range(columns.shape[1]):
        task = columns[0, i]
        last[task] += 1
        columns[1, i] = last[task]
        size += columns[4, i]
    return size


@njit(cache=True, nogil=True)
def due(
    chunks: np.ndarray,
    sent: np.ndarray,
    applied: np.ndarray,
    since: np.ndarray,
    got: np.ndarray,
    tries: np.ndarray,
    window: int,
    now: float,
    places: np.ndarray,
) -> int:
    """Count chunks as sent that are within their lanes' windows; say which in `places`, and how many.

    There are no more of them than there are `places`.
    """
    found = 0
    for i in range(chunks.shape[1]):
        if found == len(places):
            break
        task, number = chunks[0, i], chunks[1, i]
        if sent[task] < number <= applied[task] + window:
            if sent[task] == applied[task]:
                since[task] = now
                if tries[task] == 0:
                    got[task] = now
            sent[task] = number
            places[found] = i
            found += 1
    return found


@njit(cache=True, nogil=True)
def room(last: np.ndarray, sent: np.ndarray, applied: np.ndarray, window: int) -> int:
    """Count the chunks that lanes may send."""
    found = 0
    for task in range(len(last)):
        found += max(0, min(last[task], applied[task] + window) - sent[task])
    return found


@njit(cache=True, nogil=True)
def crowded(last: np.ndarray, sent: np.ndarray) -> bool:
    """Tell whether most lanes have chunks that wait to be sent."""
    used = behind = 0
    for task in range(len(last)):
        used += last[task] > 0
        behind += last[task] - sent[task] >= UNSENT_CHUNKS
    return behind > 0 and 4 * behind >= 3 * used


@njit(cache=True, nogil=True)
def open_blocks(chunks: np.ndarray, durable: np.ndarray, open_: np.ndarray) -> int:
    """Say of which blocks something is not durable, and how many these are."""
    found = 0
    for i in range(chunks.shape[1]):
        if durable[chunks[0, i]] < chunks[1, i] and not open_[chunks[2, i]]:
            open_[chunks[2, i]] = True
            found += 1
    return found


@njit(cache=True, nogil=True)
def keep_open(chunks: np.ndarray, open_: np.ndarray) -> int:
    """Move chunks of blocks that stay to the front, numbered anew; tell how many they are."""
    numbers, kept = np.cumsum(open_) - 1, 0
    for i in range(chunks.shape[1]):
        block = chunks[2, i]
        if open_[block]:
            chunks[0, kept], chunks[1, kept] = chunks[0, i], chunks[1, i]
            chunks[2, kept], chunks[3, kept] = numbers[block], chunks[3, i]
            kept += 1
    return kept


@njit(cache=True, nogil=True)
def acknowledge(
    columns: np.ndarray,
    incarnation: int,
    last: np.ndarray,
    sent: np.ndarray,
    applied: np.ndarray,
    durable: np.ndarray,
    since: np.ndarray,
    got: np.ndarray,
    tries: np.ndarray,
    terms: np.ndarray,
    now: float,
    heard: np.ndarray,
) -> int:
    """Take acknowledgements; tell what was news (`APPLIED`, `DURABLE`).

    `heard` gets in how many lanes chunks were applied, and the seconds they took, added up.

    What is of an older term never happened; a newer one says that the task was restored: what is not
    durable must be sent again.
    """
    news = 0
    for i in range(columns.shape[1]):
        task = columns[0, i]
        if columns[3, i] != incarnation or task < 0 or task >= len(last):
            continue
        generation, number = columns[1, i], columns[2, i]
        if generation != terms[0, task] or number != terms[1, task]:
            if (generation, number) < (terms[0, task], terms[1, task]):
                continue
            terms[0, task], terms[1, task] = generation, number
            if applied[task]:
                rewind(task, sent, applied, durable, tries)
        told = min(columns[4, i], last[task])
        if told > applied[task]:
            news |= APPLIED
            heard[0] += 1
            heard[1] += now - got[task]
            applied[task], since[task], got[task] = told, now, now
            sent[task] = max(sent[task], told)
            tries[task] = min(tries[task], 1) if sent[task] > told else 0
        told = min(columns[5, i], last[task])
        if told > durable[task]:
            news |= DURABLE
            durable[task], since[task] = told, now
            applied[task] = max(applied[task], told)
            sent[task] = max(sent[task], applied[task])
    return news


@njit(cache=True, nogil=True)
def rewind(
    task: int, sent: np.ndarray, applied: np.ndarray, durable: np.ndarray, tries: np.ndarray
) -> None:
    """Send again all of a lane that is not durable."""
    applied[task] = sent[task] = durable[task]
    tries[task] = 0


@njit(cache=True, nogil=True)
def restore(
    lb: int,
    ub: int,
    generation: int,
    number: int,
    sent: np.ndarray,
    applied: np.ndarray,
    durable: np.ndarray,
    tries: np.ndarray,
    terms: np.ndarray,
) -> None:
    """Rewind the lanes `lb … ub-1` if their tasks were restored in a term that was not known."""
    for task in range(lb, ub):
        if (generation, number) > (terms[0, task], terms[1, task]):
            terms[0, task], terms[1, task] = generation, number
            rewind(task, sent, applied, durable, tries)


@njit(cache=True, nogil=True)
def overdue(
    sent: np.ndarray,
    applied: np.ndarray,
    durable: np.ndarray,
    since: np.ndarray,
    tries: np.ndarray,
    now: float,
    retry_s: float,
    patience_s: float,
    longest_s: float,
    wanted: np.ndarray,
) -> int:
    """Find lanes that heard nothing for too long: `wanted` gets the number of a chunk to ask with.

    A lane whose chunks are applied, but not durable, is patient. One that asks again and again goes
    back to its last acknowledgement, and waits longer each time, but never beyond `longest_s`.
    """
    found = 0
    for task in range(len(sent)):
        quiet_s = now - since[task]
        if sent[task] > applied[task]:
            if quiet_s > min(retry_s * (1 << tries[task]), longest_s):
                if tries[task] == 0:  # perhaps its owner is only slow
                    since[task] = now
                    wanted[task] = applied[task] + 1
                    found += 1
                else:
                    sent[task] = applied[task]
                tries[task] = min(tries[task] + 1, TRIES_MAX)
        elif applied[task] > durable[task] and quiet_s > patience_s:
            since[task] = now
            wanted[task] = durable[task] + 1
            found += 1
    return found


@njit(cache=True, nogil=True)
def first_open(columns: np.ndarray, durable: np.ndarray) -> int:
    """Give the lowest source offset of a block's chunks that are not durable; -1: all are."""
    lowest = -1
    for i in range(columns.shape[1]):
        if durable[columns[0, i]] < columns[1, i] and (lowest < 0 or columns[2, i] < lowest):
            lowest = columns[2, i]
    return lowest


# --------------------------------------------------------------------------- a node's lanes


@njit(cache=True, nogil=True)
def take(
    columns: np.ndarray,
    ready: np.ndarray,
    numbers: np.ndarray,
    offsets: np.ndarray,
    touched: np.ndarray,
    owing: np.ndarray,
    work: np.ndarray,
    fates: np.ndarray,
) -> tuple[int, int]:
    """Take the chunks that are the next of a lane that is ready, if all their rows are new.

    `fates` says what becomes of each: it was `TAKEN`, it is `KNOWN` (it was taken before), or `OTHER`.

    Returns:
        The bytes of those taken, and how many a lane owes an acknowledgement of, at most.
    """
    size = most = 0
    for i in range(columns.shape[1]):
        task, number = columns[0, i], columns[1, i]
        if not ready[task]:
            fates[i] = OTHER
        elif number <= numbers[task]:
            fates[i] = KNOWN
        elif number != numbers[task] + 1 or columns[2, i] <= offsets[task]:
            fates[i] = OTHER
        else:
            fates[i] = TAKEN
            numbers[task], offsets[task] = number, columns[3, i]
            touched[task] = True
            work[task] += 1
            size += columns[4, i]
            owing[task] += 1
            most = max(most, owing[task])
    return size, most


@njit(cache=True, nogil=True)
def told(
    tasks: np.ndarray,
    terms: np.ndarray,
    incarnation: int,
    numbers: np.ndarray,
    settled: np.ndarray,
    durable: np.ndarray,
    columns: np.ndarray,
) -> None:
    """Fill the columns of acknowledgements."""
    for i in range(len(tasks)):
        task = tasks[i]
        columns[0, i], columns[1, i], columns[2, i] = task, terms[0, task], terms[1, task]
        columns[3, i], columns[4, i] = incarnation, numbers[task]
        columns[5, i] = numbers[task] if settled[task] else durable[task]


def warm() -> None:
    """Compile all of them, as they are called."""
    chunks, acks = np.zeros((5, 1), np.int64), np.zeros((6, 1), np.int64)
    lane, flags, since, terms = acks[0].copy(), acks[0] > 0, np.zeros(1), acks[:2].copy()
    fault(chunks, 1)
    impossible(acks)
    offered(chunks, 0, 1, 1)
    total(lane, lane)
    most(lane, lane)
    number(chunks, lane)
    kept = np.zeros((4, 2), np.int64)[:, :1]
    due(kept, lane, lane, since, since, lane, 1, 0.0, lane)
    room(lane, lane, lane, 1)
    crowded(lane, lane)
    open_blocks(kept, lane, flags)
    keep_open(kept, flags)
    acknowledge(acks, 0, lane, lane, lane, lane, since, since, lane, terms, 0.0, since)
    restore(0, 1, 0, 0, lane, lane, lane, lane, terms)
    overdue(lane, lane, lane, since, lane, 0.0, 1.0, 1.0, 1.0, lane)
    first_open(chunks, lane)
    take(chunks, flags, lane, lane, flags, lane, lane, flags.astype(np.int8))
    told(lane, terms, 0, lane, flags, lane, acks)
