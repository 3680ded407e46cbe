"""Errors of a new source: by hand, in limits, and on simulated sources with known effects."""

from __future__ import annotations

import numpy as np
import pytest

from nearkv.solvers.uncertainty.spread import SourceError, source_error

NO_INPUTS = np.zeros(4)


def test_errors_of_two_sources_by_hand() -> None:
    """Means of 0.3 and -0.1, each with rows 0.1 above and below.

    The mean square is (0.1 + 0.02) / 2 = 0.06; in a source it is 4 x 0.01 / 2 = 0.02, of which the
    means hold half: 0.05 - 0.01 between the sources.
    """
    errors = np.array([0.4, 0.2, 0.0, -0.2])
    law = source_error(errors, NO_INPUTS, ["a", "a", "b", "b"])
    assert [law.between**2, law.within**2] == pytest.approx([0.04, 0.02])
    assert law.freedom == pytest.approx(0.06**2 / (0.05**2 / 2 + 0.01**2 / 2))
    # Student's t of 4 at 97.5 % is 2.776
    plain = SourceError(0.6, 0.8, 4.0)
    assert plain.at(np.array([0.975, 0.5])) == pytest.approx([2.776, 0], abs=1e-3)


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
        drawn = law.at(rng.permutation((np.arange(512) + 0.5) / 512))
        low, high = np.quantile(drawn + rng.normal(0, inputs, 512), [0.05, 0.95])
        inside += bool(low <= rng.normal(0, np.hypot(between, rest)) <= high)
    return inside / trials


def test_bands_hold_nine_of_ten_new_sources() -> None:
    assert 0.86 <= covered(sources=10, trials=400) <= 0.94


@pytest.mark.deep
@pytest.mark.parametrize("sources", [5, 10, 30])
def test_bands_hold_nine_of_ten_new_sources_in_depth(sources: int) -> None:
    assert 0.88 <= covered(sources, trials=2_000) <= 0.92
