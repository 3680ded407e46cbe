"""Errors of a new source: by hand, in limits, and on simulated sources with known effects."""

from __future__ import annotations

import numpy as np
import pytest

from nearkv.solvers.uncertainty.spread import TAILS, SourceError, source_error

NO_INPUTS = np.zeros(4)


def test_errors_of_three_sources_by_hand() -> None:
    """All errors of one size have the weight 1, and that size is s.

    Standardised, the means of the sources are 1, 1 and 0: B = 2/3. In a source the variance is
    W = 2 / (6 - 3), of which means of two rows hold half, so that B + W / 2 = 1, of which
    B - W / 2 = 1/3 lies between the sources.
    """
    errors = np.array([0.2, 0.2, 0.2, 0.2, 0.2, -0.2])
    law = source_error(errors, np.zeros(6), ["a", "a", "b", "b", "c", "c"])
    assert [law.between**2, law.within**2] == pytest.approx([0.04 / 3, 0.08 / 3])
    estimated = 1 / ((2 / 3) ** 2 / 3 + (1 / 3) ** 2 / 3)
    assert law.freedom == pytest.approx(1 / (1 / TAILS + 1 / estimated))
    # Student's t of 4 at 97.5 % is 2.776
    plain = SourceError(0.6, 0.8, 4.0)
    assert plain.quantile(np.array([0.975, 0.5])) == pytest.approx([2.776, 0], abs=1e-3)


def test_one_source_far_off_does_not_widen_every_band() -> None:
    """Nine sources err by a tenth; one more by 5 does not even double their bands."""
    sources = [str(place) for place in range(10)]
    scales = []
    for last in (0.1, 1.0, 5.0):
        errors = np.array([0.1, -0.1] * 4 + [0.1, last])
        law = source_error(errors, np.zeros(10), sources)
        scales.append(float(np.hypot(law.between, law.within)))
    assert scales[0] == pytest.approx(0.1)
    assert scales[1] < scales[2] < 2 * scales[0]


def test_what_inputs_explain_is_not_counted_twice() -> None:
    errors = np.array([0.5, -0.5, 0.5, -0.5])
    law = source_error(errors, np.full(4, 0.3), ["a", "a", "b", "b"])
    assert np.hypot(law.between, law.within) == pytest.approx(0.4)
    small = source_error(errors, np.full(4, 0.6), ["a", "a", "b", "b"])
    assert np.hypot(small.between, small.within) < 0.02


def test_a_source_of_many_rows_counts_once() -> None:
    small, large = [0.02, -0.02], [0.4, -0.4]
    few = source_error(np.array(small + large), NO_INPUTS, ["many"] * 2 + ["few"] * 2)
    many = source_error(np.array(small * 50 + large), np.zeros(102), ["many"] * 100 + ["few"] * 2)
    total = np.hypot(few.between, few.within)
    assert np.hypot(many.between, many.within) == pytest.approx(total)


def covered(sources: int, trials: int) -> float:
    """Share of new sources whose row lies in the 90 % band of simulated ones."""
    rng = np.random.default_rng(sources)
    inside = 0
    for _ in range(trials):
        between, within, inputs = rng.uniform(0.05, 0.4), rng.uniform(0.05, 0.4), 0.1
        source = np.repeat(np.arange(sources), rng.integers(1, 21, sources))
        effects = rng.normal(0, between, sources)[source]
        rest = np.hypot(within, inputs)
        errors = effects + rng.normal(0, rest, len(source))
        law = source_error(errors, np.full(len(source), inputs), source.astype(str).tolist())
        drawn = law.quantile(rng.permutation((np.arange(512) + 0.5) / 512))
        low, high = np.quantile(drawn + rng.normal(0, inputs, 512), [0.05, 0.95])
        inside += bool(low <= rng.normal(0, np.hypot(between, rest)) <= high)
    return inside / trials


def test_bands_hold_nine_of_ten_new_sources() -> None:
    """Normal effects, of which the law of the bands is none: its tails are heavier."""
    assert 0.86 <= covered(sources=10, trials=400) <= 0.94


@pytest.mark.deep
@pytest.mark.parametrize("sources", [5, 10, 30])
def test_bands_hold_nine_of_ten_new_sources_in_depth(sources: int) -> None:
    assert 0.88 <= covered(sources, trials=2_000) <= 0.92
