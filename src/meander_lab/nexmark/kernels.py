"""Numbers of NexMark's events, each made of nothing but the event's number.

Of fifty events in a row the first is a person, the next three are auctions, the others bids. An
event draws from a mixing function of its own number and the draw's: no event depends on another one
having been made. Names and ratios are those of the generator that Beam and Flink share: half of the
bids are for one hot auction in a hundred, three quarters come from one hot bidder in a hundred, and
three quarters of the auctions are a hot seller's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

PERSONS, AUCTIONS, GROUP = 1, 3, 50
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1000, 10, 5
HOT_EVERY = 100
IN_FLIGHT, ACTIVE, LEAD = 100, 1000, 10
"""Auctions that bids are for, persons that are about, and ids ahead of them that are taken, too."""
PRICE_DIGITS = 6

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_A, _B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)


@njit(cache=True, nogil=True, inline="always")
def draw(number: int, salt: int) -> np.uint64:
    """Draw 64 bits for an event (SplitMix64)."""
    z = np.uint64(number) * np.uint64(16) + np.uint64(salt)
    z = (z + np.uint64(1)) * _GAMMA
    z = (z ^ (z >> _30)) * _A
    z = (z ^ (z >> _27)) * _B
    return z ^ (z >> _31)


@njit(cache=True, nogil=True, inline="always")
def below(number: int, salt: int, limit: int) -> Any:
    """Draw one of `0 … limit-1`."""
    return np.int64(((draw(number, salt) >> _32) * np.uint64(limit)) >> _32)


@njit(cache=True, nogil=True, inline="always")
def last_person(group: int) -> int:
    """Give the last person by then, from 0."""
    return group


@njit(cache=True, nogil=True, inline="always")
def last_auction(number: int) -> int:
    """Give the last auction before an event, from 0; at least 0."""
    group, place = number // GROUP, number % GROUP
    mine = min(max(place - PERSONS, 0), AUCTIONS)
    return max(group * AUCTIONS + mine - 1, 0)


@njit(cache=True, nogil=True, inline="always")
def some_person(number: int, salt: int) -> Any:
    """Draw a person who is about, or about to come."""
    people = number // GROUP + 1
    active = min(people, ACTIVE)
    return people - active + below(number, salt, active + LEAD)


@njit(cache=True, nogil=True, inline="always")
def price(number: int, salt: int) -> Any:
    """Draw a price in cents: its logarithm is uniform."""
    unit = np.float64(draw(number, salt) >> np.uint64(11)) * (1.0 / 9007199254740992.0)
    return np.int64(np.round(10.0 ** (unit * PRICE_DIGITS) * 100.0))


@njit(cache=True, nogil=True)
def bids(
    first: int, last: int, auctions: np.ndarray, bidders: np.ndarray, prices: np.ndarray,
    numbers: np.ndarray,
) -> int:  # fmt: skip
    """Fill the bids among the events `first … last-1`; give how many there are."""
    count = 0
    place = first % GROUP
    for n in range(first, last):
        if place >= PERSONS + AUCTIONS:
            newest = last_auction(n)
            if below(n, 0, 2) > 0:
                auction = newest // HOT_EVERY * HOT_EVERY
            else:
                oldest = max(newest - IN_FLIGHT, 0)
                auction = oldest + below(n, 1, newest - oldest + 1 + LEAD)
            if below(n, 2, 4) > 0:
                bidder = (n // GROUP) // HOT_EVERY * HOT_EVERY + 1
            else:
                bidder = some_person(n, 3)
            auctions[count] = FIRST_ID + auction
            bidders[count] = FIRST_ID + bidder
            prices[count] = price(n, 4)
            numbers[count] = n
            count += 1
        place = place + 1 if place + 1 < GROUP else 0
    return count


@njit(cache=True, nogil=True)
def auctions(
    numbers: np.ndarray, horizon_us: int, sellers: np.ndarray, categories: np.ndarray,
    initial: np.ndarray, reserves: np.ndarray, lengths_us: np.ndarray,
) -> None:  # fmt: skip
    """Fill the numbers of auctions, whose events are given."""
    for i in range(len(numbers)):
        n = numbers[i]
        seller = n // GROUP // HOT_EVERY * HOT_EVERY if below(n, 0, 4) > 0 else some_person(n, 1)
        sellers[i] = FIRST_ID + seller
        categories[i] = FIRST_CATEGORY + below(n, 2, CATEGORIES)
        initial[i] = price(n, 3)
        reserves[i] = initial[i] + price(n, 4)
        lengths_us[i] = 1000 + below(n, 5, max(2 * horizon_us, 1000))


@njit(cache=True, nogil=True)
def texts(numbers: np.ndarray, salt: int, digits: bool, out: np.ndarray) -> None:
    """Fill rows of letters, or of digits: `uint8[rows, letters]`."""
    base, many = (np.uint64(48), np.uint64(10)) if digits else (np.uint64(97), np.uint64(26))
    for i in range(len(numbers)):
        bits = np.uint64(0)
        for j in range(out.shape[1]):
            if j % 8 == 0:
                bits = draw(numbers[i] * 16 + j // 8, salt)
            out[i, j] = np.uint8(base + (bits & np.uint64(255)) * many // np.uint64(256))
            bits >>= np.uint64(8)


@njit(cache=True, nogil=True)
def choices(numbers: np.ndarray, salt: int, limit: int, out: np.ndarray) -> None:
    """Fill a choice for each event."""
    for i in range(len(numbers)):
        out[i] = below(numbers[i], salt, limit)
