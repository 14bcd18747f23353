"""Brackets hold the true mean 95 times in 100, also where blocks are few and values depend."""

import numpy as np
import pytest

from meander.planning.ahead.brackets import BLOCK, _drawn, _Spread, brackets
from meander.planning.ahead.evaluate import bootstrap
from meander_lab.experiments.noise import compare


def series(rng, n: int, rho: float):
    """Values with mean 0 of which neighbours are correlated."""
    values = rng.standard_normal(n)
    values[1:] *= np.sqrt(1 - rho**2)
    for k in range(1, n):
        values[k] += rho * values[k - 1]
    return values


def covered(lengths: list[int], rho: float, runs: int, block: int = BLOCK) -> float:
    """How often the brackets of one way hold the truth; the other gives the same."""
    held = 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        spans = [series(rng, n, rho) for n in lengths]
        found = brackets(lambda mean: mean, [spans], rng, block)
        held += found.low <= 0 <= found.high
    return held / runs


@pytest.mark.parametrize(
    ("lengths", "rho", "block"),
    [
        ([6], 0.0, BLOCK), ([30], 0.0, BLOCK), ([60], 0.0, BLOCK), ([100], 0.0, BLOCK),
        ([100], 0.5, BLOCK), ([200], 0.5, BLOCK), ([100, 40, 63], 0.5, BLOCK),
        ([3], 0.0, 1), ([15], 0.0, 1), ([30], 0.0, 1),
    ],
)  # fmt: skip
def test_brackets_hold_the_true_mean(lengths, rho, block):
    """400 series each: 91.5 % is three standard errors below 95 %."""
    assert covered(lengths, rho, 400, block) >= 0.915


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lengths", "rho", "least", "most"),
    [
        ([12], 0.0, 0.945, 0.985), ([30], 0.0, 0.945, 0.985), ([60], 0.0, 0.945, 0.985),
        ([100], 0.0, 0.945, 0.98), ([200], 0.0, 0.94, 0.97), ([600], 0.0, 0.935, 0.96),
        ([30], 0.5, 0.92, 0.96), ([100], 0.5, 0.93, 0.965), ([600], 0.5, 0.925, 0.955),
        ([100], 0.8, 0.89, 0.94), ([600], 0.8, 0.9, 0.94), ([100] * 6, 0.5, 0.925, 0.96),
    ],
)  # fmt: skip
def test_brackets_are_about_as_sure_as_they_say(lengths, rho, least, most):
    assert least <= covered(lengths, rho, 3000) <= most


def test_an_interval_lies_around_its_mean():
    values = np.array([5.0, *[1.0] * 38, 5.0])
    found = bootstrap(values, np.random.default_rng(0))
    assert found.mean - found.low == pytest.approx(found.high - found.mean)
    assert found.low < found.mean < found.high


def test_the_two_that_compare_are_one():
    values = series(np.random.default_rng(3), 70, 0.3)
    found = bootstrap(values, np.random.default_rng(7))
    assert compare(lambda mean: mean, {0: values.tolist()}) == found


def test_what_resampling_does_not_see_of_the_variance():
    """`seen` against the variance of resampled means over many series that do not depend."""
    rng, n = np.random.default_rng(1), 63
    drawn = _drawn([n], BLOCK, rng)
    found = np.mean([np.var(rng.standard_normal(n)[drawn].mean(axis=1)) for _ in range(400)])
    assert found * n == pytest.approx(_Spread.of(n, BLOCK).seen / n, rel=0.12)


def test_degrees_of_freedom():
    for n in (2, 11, 30):
        assert _Spread.of(n, 1).freedom == pytest.approx(n - 1)
    assert _Spread.of(4800, 2400).freedom == pytest.approx(3, rel=0.01)
    assert _Spread.of(48_000, 24).freedom == pytest.approx(1.5 * 2000, rel=0.01)


def test_nothing_is_known_of_single_values():
    rng = np.random.default_rng(0)
    assert brackets(lambda mean: mean, [[np.ones(1), np.ones(1)]], rng).low is None
    assert compare(lambda a, b: b / a, {0: [1.0]}, {0: [2.0]}, block=1).high is None
    some = brackets(lambda mean: mean, [[np.ones(1), np.arange(9.0)]], rng)
    assert some.low is not None
