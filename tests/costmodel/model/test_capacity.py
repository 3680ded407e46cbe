"""Memories that are short, and designs that are not modelled at all."""

from __future__ import annotations

import numpy as np
import pytest

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.estimate import (
    STATUSES,
    Fits,
    batch_with_states,
    fits,
    possible_batches,
    reduced_batch,
)


def test_memory_that_misses_most_is_the_reason() -> None:
    need = np.array([1.0, 5.0, 5.0])
    fits = Fits({"gpu": (need, 2.0), "host": (np.array([1.0, 1.0, 9.0]), 3.0)})
    assert [STATUSES[place] for place in fits.status] == ["ok", "infeasible", "infeasible"]
    reasons = [fits.reasons[place] for place in fits.reason]
    assert reasons == ["", "gpu memory is short", "host memory is short"]  # 3 B and 6 B are missing


def test_two_memories_that_hold_something_together_are_short_together() -> None:
    fits = Fits({"hbm": (1.0, 2.0), "both": (9.0, 5.0)})
    assert fits.reasons[int(fits.reason)] == "both memories together are short"


def test_what_is_not_modelled_has_no_answer_even_where_it_would_fit() -> None:
    fits = Fits({"gpu": (np.array([1.0, 9.0]), 2.0)}).without(
        {"no experts": np.array([True, True])}
    )
    assert not fits.ok.any()
    assert [STATUSES[place] for place in fits.status] == ["not-modelled", "not-modelled"]
    assert [fits.reasons[place] for place in fits.reason] == ["no experts", "no experts"]
    assert np.all(fits.short_bytes == 0)


def test_contents_make_up_the_need_of_a_memory() -> None:
    held = {"weights": np.array([1.0, 2.0]), "KV cache": np.array(3.0)}
    named = fits(gpu=(held, 4.0), host=(7.0, 8.0))
    needed, capacity = named.tiers["gpu"]
    assert np.asarray(needed).tolist() == [4, 5]
    assert (capacity, named.tiers["host"]) == (4.0, (7.0, 8.0))
    assert named.ok.tolist() == [True, False]
    assert named.without({"no experts": np.array(False)}).contents == {"gpu": held}


def test_recurrent_states_of_a_batch_must_fit_the_gpu() -> None:
    """States of 5 bytes in 20: ten sequences run in three rounds; without states all at once."""
    assert batch_with_states(10.0, 10.0, 5.0, 20.0) == np.float64(10 / 3)
    assert batch_with_states(10.0, 10.0, 0.0, 20.0) == 10
    assert batch_with_states(2.0, 10.0, 5.0, 20.0) == 2


@pytest.mark.parametrize("batch", [1.0, 16 / 3, 16.0, np.array([[16 / 3], [5.0]])])
def test_more_run_at_once_where_a_possible_batch_fits_and_nowhere_else(batch: Real) -> None:
    """A mean over GPUs is no whole number: 5.3 sequences take the memory of six at once."""
    room = np.arange(0.0, 20.0, 1 / 8)
    at_once = reduced_batch(batch, 1.0, room)
    begins = np.diff(at_once, axis=-1) != 0
    steps = {float(room[1:][place]) for place in np.nonzero(np.atleast_2d(begins))[-1]}
    possible = np.concatenate([np.ravel(each) for each in possible_batches(batch)])
    assert steps <= {*possible.tolist()}
