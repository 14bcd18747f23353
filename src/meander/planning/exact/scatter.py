"""Numbers that look random and are the same on every machine: nothing here draws any."""

from __future__ import annotations

from hashlib import blake2b
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Places: TypeAlias = npt.NDArray[np.uint64]


def key_of(text: bytes, seed: int) -> np.uint64:
    """Make 64 bits of a text and a seed, the same on every machine and in every process."""
    digest = blake2b(text, digest_size=8, salt=(seed % 2**64).to_bytes(8, "little")).digest()
    return np.uint64(int.from_bytes(digest, "little"))


def mix(values: Places) -> Places:
    """Scatter 64-bit numbers over the ring: SplitMix64 (Steele, Lea, Flood 2014), a bijection."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def scatter(count: int, seed: int) -> npt.NDArray[np.float64]:
    """Give numbers in [0, 1) that look random and are always the same.

    >>> scatter(3, seed=1).round(3).tolist() == scatter(3, seed=1).round(3).tolist()
    True
    """
    places = mix(mix(np.arange(count, dtype=np.uint64)) ^ key_of(b"scatter", seed))
    return places.astype(np.float64) / 2.0**64
