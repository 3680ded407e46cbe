"""A prefix that all requests share: what it adds to layers of each type, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from support.tiny import TINY, two_kinds

import nearkv
from nearkv.costmodel.mechanisms.serving.shared_prefix import SharedPrefix, divided
from nearkv.costmodel.mechanisms.serving.split import GpuSplit
from nearkv.costmodel.model.workload import Workload

WORK = Workload(4.0, 100.0, 10.0)


def test_a_prefix_is_each_request_s_own_or_that_of_all() -> None:
    own, none = divided(WORK, 900.0, 0.0)
    assert none is None
    assert own.context == 900 + WORK.context
    rest, shared = divided(WORK, 900.0, 1.0)
    assert shared == SharedPrefix(900.0, rest)
    assert rest.context == WORK.context
    assert divided(WORK, 0.0, 1.0) == (WORK, None)


def test_points_with_and_without_sharing_are_answered_at_once() -> None:
    rest, shared = divided(WORK, 900.0, np.array([0.0, 1.0]))
    assert shared
    assert np.all(rest.before == [900, 0])
    assert np.all(shared.tokens == [0, 900])
    assert np.all(shared.read_bytes(TINY) == [0, TINY.kv_bytes(1, 900)])


def test_a_context_that_is_stated_counts_the_prefix() -> None:
    rest, _ = divided(WORK.at_context(1000.0), 900.0, 1.0)
    assert rest.context == 100
    within, _ = divided(WORK.at_context(500.0), 900.0, 1.0)
    assert within.context == 1


def test_a_layer_keeps_reads_and_multiplies_all_of_a_prefix() -> None:
    prefix = SharedPrefix(900.0, WORK)
    assert prefix.stored_bytes(TINY, GpuSplit(1.0, 2.0)) == 2 * TINY.kv_cache_bytes(1, 900.0)
    assert prefix.read_bytes(TINY) == pytest.approx(TINY.kv_bytes(1, 900.0))
    assert prefix.step_flops(TINY) == pytest.approx(TINY.attention_flops(1, 900.0))


def test_a_prompt_behind_a_prefix_multiplies_as_the_end_of_a_long_one() -> None:
    rest = Workload(1.0, 100.0, 10.0)
    added = SharedPrefix(900.0, rest).prompt_flops(TINY)
    whole, first, last = (TINY.prefill_attention_flops(1, n) for n in (1000.0, 900.0, 100.0))
    assert 100 * added == pytest.approx(whole - first - last)
    assert added == pytest.approx(TINY.attention_flops(1, 900.0))


def test_a_window_that_the_rest_fills_sees_nothing_of_the_prefix() -> None:
    layer = two_kinds(64.0).layer_types["window"]
    filled, short = (SharedPrefix(500.0, Workload(1.0, n, 2.0)) for n in (64.0, 15.0))
    assert filled.read_bytes(layer) == 0
    assert short.read_bytes(layer) == pytest.approx(layer.kv_bytes(1, 48))


@pytest.mark.parametrize(("shared", "status"), [("on", "not-modelled"), ("off", "ok")])
def test_what_cannot_be_shared_is_refused(shared: str, status: str) -> None:
    knobs = {"prefix": "4096", "shared": shared}
    row = nearkv.compare("gpu", model="deepseek-v3.2", context="8k", knobs=knobs)
    assert row["status"][0] == status
    assert ("chooses tokens of its own" in row["reason"][0]) == (shared == "on")
