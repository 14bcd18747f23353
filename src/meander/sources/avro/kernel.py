"""Run the program of a schema over many records. Bytes in, numbers out; the file has no other purpose.

Notation
    A record is data[starts[row] : ends[row]]. An instruction is (op, slot, arg); slot -1: forget it.
    values[slot, row]    the number, or the bits of a float, or where bytes begin in `data`
    lengths[arg, row]    of bytes, how many
    valid[slot, row]     1 iff there is a value. All are 0 before, so that what is not reached is null

Rules
  1. No byte outside a record is read: `at` moves only after a look at `end`.
  2. Every loop takes a byte or ends: arrays of types without bytes are not walked (`NEXT`, arg 1), and
     what calls itself has at most `DEPTH_MAX` callers.
  3. The first record that cannot be read ends the run: (row, why, instruction).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import njit

END, BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, FIXED, ENUM = 0, 1, 2, 3, 4, 5, 6, 7, 8
"""END: the record is over. ENUM: arg is how many symbols there are. FIXED: `slot` gets the place, its
size is in `arg`."""
MARK, UNION, JUMP, LOOP, NEXT, CALL, RETURN = 9, 10, 11, 12, 13, 14, 15
"""MARK: there is a struct. UNION: go to one of the `arg` jumps that follow. LOOP: an array begins.
NEXT: its next item, or to `slot` if there is none. CALL: to `slot`, until RETURN."""

SHORT, LONGER, RANGE, BRANCH, DEEP, LEFT = 1, 2, 3, 4, 5, 6
WHY: Final = {
    SHORT: "it ends within",
    LONGER: "a number has too many bytes in",
    RANGE: "a value is out of range in",
    BRANCH: "there is no such branch of the union in",
    DEEP: "it is nested too deeply in",
    LEFT: "there are bytes left after",
}
DEPTH_MAX = 128
"""Arrays in arrays and types in themselves; a linked list that is longer is refused."""

_ONE, _SEVEN, _LOW, _TOP = np.uint64(1), np.uint64(7), np.uint64(127), np.uint64(128)


@njit(cache=True, nogil=True)
def _number(data: np.ndarray, at: int, end: int) -> tuple[Any, int]:
    """Read a zig-zag number: it, and where it ends; or minus the reason."""
    found, shift = np.uint64(0), np.uint64(0)
    for i in range(10):
        if at >= end:
            return 0, -SHORT
        byte = np.uint64(data[at])
        at += 1
        found |= (byte & _LOW) << shift
        if byte < _TOP:
            if i == 9 and byte > _ONE:
                return 0, -LONGER
            return np.int64(found >> _ONE) ^ -np.int64(found & _ONE), at
        shift += _SEVEN
    return 0, -LONGER


@njit(cache=True, nogil=True)
def _bits(data: np.ndarray, at: int, count: int) -> Any:
    """Read bytes, the lowest first."""
    found = np.int64(0)
    for i in range(count):
        found |= np.int64(data[at + i]) << np.int64(8 * i)
    return found


@njit(cache=True, nogil=True)
def run(
    data: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    code: np.ndarray,
    values: np.ndarray,
    lengths: np.ndarray,
    valid: np.ndarray,
) -> tuple[int, int, int]:
    """Read all records; give the first that cannot be, why, and where in the program, or (-1, 0, 0)."""
    back = np.empty(DEPTH_MAX, np.int64)  # of a call: where it goes on; of an array: items to come
    for row in range(len(starts)):
        at, end, pc, depth = starts[row], ends[row], 0, 0
        while True:
            op, slot, arg = code[pc, 0], code[pc, 1], code[pc, 2]
            number: Any = 0
            if op == END:
                if at != end:
                    return row, LEFT, pc
                break
            if op == JUMP:
                pc = slot
                continue
            if op == MARK:
                valid[slot, row] = 1
                pc += 1
                continue
            if op in (LOOP, CALL):
                if depth == DEPTH_MAX:
                    return row, DEEP, pc
                back[depth] = 0 if op == LOOP else pc + 1
                depth += 1
                pc = pc + 1 if op == LOOP else slot
                continue
            if op == RETURN:
                depth -= 1
                pc = back[depth]
                continue
            if op == NEXT and back[depth - 1] > 0:
                back[depth - 1] -= 1
                pc += 1
                continue

            # What is left begins with bytes: a number for most, a few as they are for the others.
            if op in (BOOLEAN, FLOAT, DOUBLE, FIXED):
                size = 1 if op == BOOLEAN else 4 if op == FLOAT else 8 if op == DOUBLE else arg
                if size > end - at:
                    return row, SHORT, pc
                number = at if op == FIXED else _bits(data, at, size)
                if op == BOOLEAN and number > 1:
                    return row, RANGE, pc
                at += size
            else:
                number, after = _number(data, at, end)
                if after < 0:
                    return row, -after, pc
                at = after
                if op == INT and (number < -2147483648 or number > 2147483647):
                    return row, RANGE, pc
                if op == ENUM and (number < 0 or number >= arg):
                    return row, RANGE, pc
                if op == UNION:
                    if number < 0 or number >= arg:
                        return row, BRANCH, pc
                    pc += 1 + number
                    continue
                if op == BYTES:
                    if number < 0:
                        return row, RANGE, pc
                    if number > end - at:
                        return row, SHORT, pc
                    if slot >= 0:
                        lengths[arg, row] = number
                    number, at = at, at + number
                if op == NEXT:
                    if number < 0:  # then the size of these items follows, and all are passed over
                        number, after = _number(data, at, end)
                        if after < 0:
                            return row, -after, pc
                        at = after
                        if number < 0:
                            return row, RANGE, pc
                        if number > end - at:
                            return row, SHORT, pc
                        at += number
                    elif number == 0:
                        depth -= 1
                        pc = slot
                    elif arg == 0:
                        back[depth - 1] = number
                    continue
            if slot >= 0:
                values[slot, row] = number
                valid[slot, row] = 1
            pc += 1
    return -1, 0, 0


@njit(cache=True, nogil=True)
def gather(
    data: np.ndarray, starts: np.ndarray, lengths: np.ndarray, offsets: np.ndarray, out: np.ndarray
) -> None:
    """Lay bytes side by side; `offsets` has the sums of their lengths, and begins with 0."""
    for row in range(len(starts)):
        to, start = offsets[row], starts[row]
        for i in range(lengths[row]):
            out[to + i] = data[start + i]


@njit(cache=True, nogil=True)
def decimals(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray, out: np.ndarray) -> int:
    """Turn numbers of any length, the highest byte first, into 16 bytes, the lowest first.

    Returns the first row whose number does not fit, or -1. A row without bytes is 0.
    """
    for row in range(len(starts)):
        start, count = starts[row], lengths[row]
        sign = np.uint8(255) if count > 0 and data[start] >= 128 else np.uint8(0)
        for i in range(16):
            out[row, i] = data[start + count - 1 - i] if i < count else sign
        for i in range(16, count):
            if data[start + count - 1 - i] != sign:
                return row
        if count > 16 and (out[row, 15] >= 128) != (sign == 255):
            return row
    return -1


def warm() -> None:
    """Compile all, or load what was compiled."""
    data, none = np.frombuffer(b"", np.uint8), np.zeros(0, np.int64)
    numbers = np.zeros((0, 0), np.int64)
    run(data, none, none, np.zeros((0, 3), np.int64), numbers, numbers, np.zeros((0, 0), np.uint8))
    gather(data, none, none, none, np.zeros(0, np.uint8))
    decimals(data, none, none, np.zeros((0, 16), np.uint8))
