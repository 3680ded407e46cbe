"""Numbers left out change nothing: amounts are 0 where they are added, 1 where they multiply."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import pytest

from nearkv.costmodel.mechanisms.gpu_layer import gpu_working_set
from nearkv.costmodel.mechanisms.hbm_lpddr import accelerator, head_mapping
from nearkv.costmodel.mechanisms.hbm_lpddr.mapped_step import mapped
from nearkv.costmodel.mechanisms.near_storage.eviction import Tiers, fits_in, place_cache
from nearkv.costmodel.mechanisms.prompt_chunks import between_chunks
from nearkv.costmodel.mechanisms.serving.cpu_share import Capacities
from nearkv.costmodel.mechanisms.serving.parallel import linear
from nearkv.costmodel.mechanisms.weights.residency import Headroom, weights_or_drives
from nearkv.costmodel.mechanisms.weights.streaming import WeightStream
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.layers import Recurrent
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import Knob
from nearkv.costmodel.model.resources import per
from nearkv.costmodel.model.workload import Load, Serving, Spread, Workload
from nearkv.costmodel.systems.kv_eviction import evict, fetch
from nearkv.solvers.shares.minimum import Minimum, minimise
from nearkv.solvers.subbatch.schedule import Schedule

Callee = Callable[..., Any]
ADDED: list[tuple[Callee, str]] = [
    (Estimate, "step_carries"),
    (LLM, "shared_parameters"),
    (Recurrent, "state_size"),
    (accelerator.Side, "paged"),
    (accelerator.side, "paged"),
    (head_mapping.asymmetric_memory, "paged"),
    (Capacities, "state"),
    (Headroom, "beside"),
    (Headroom, "stored"),
    (weights_or_drives, "beside"),
    (fits_in, "copies"),
    (place_cache, "weights"),
    (mapped, "paged"),
    (evict, "sigma"),
    (fetch, "sigma"),
    (Minimum, "start"),
    (Schedule, "bound"),
    (gpu_working_set, "sequences"),
    (Workload, "chunk"),
    (Load, "prompt"),
    (Load, "squares"),
    (Load, "products"),
    (Serving, "chunked"),
    (Serving, "reserve"),
    (Serving, "longest_capacity"),
    (Serving, "minimum_chunk"),
    (Knob, "low"),
    (minimise, "low"),
]
MULTIPLIED: list[tuple[Callee, str]] = [
    (linear, "passes"),
    (accelerator.gemm, "matrices"),
    (head_mapping.Gemm, "matrices"),
    (Minimum, "end"),
    (Load, "kept_share"),
    (Knob, "high"),
    (per, "at_once"),
    (minimise, "high"),
    (WeightStream, "kept"),
    (Tiers, "weights"),
    (between_chunks, "by_host"),
    *((Spread, name) for name in ("prompt_square", "output_square", "product")),
    *((Spread, name) for name in ("context_square", "longest", "longest_output")),
]


def default(callee: Callee, name: str) -> Any:
    return signature(callee).parameters[name].default


@pytest.mark.parametrize(("callee", "name"), ADDED)
def test_an_amount_that_is_added_is_nothing_unless_stated(callee: Callee, name: str) -> None:
    assert default(callee, name) == 0


@pytest.mark.parametrize(("callee", "name"), MULTIPLIED)
def test_a_factor_or_a_whole_is_one_unless_stated(callee: Callee, name: str) -> None:
    assert default(callee, name) == 1
