"""Statements that no column of a table answers: each a small computation over the models, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from costmodel.llm import LLM, llm_of
from costmodel.registry import find
from costmodel.span import Real
from costmodel.workload import Workload
from hardware.catalog import load_llm, load_platform
from hardware.machine import Machine

Check = Callable[..., Any]

CHECKS: dict[str, Check] = {}
"""Check name -> function of the claim's `system` field, split at commas, giving the predicted value(s)."""


def check(function: Check) -> Check:
    """Register a check under its function's name."""
    CHECKS[function.__name__] = function
    return function


def model_on(platform: str, name: str) -> tuple[Machine, LLM]:
    """A platform and a model at its element widths."""
    hw = load_platform(platform).machine()
    shape: dict[str, Real] = {key: number.si for key, number in load_llm(name).numbers.items()}
    return hw, llm_of(shape, hw["precision"])


@check
def traffic_a_token(platform: str, system: str, knobs: str, resource: str, over_context: str) -> Real:
    """Bytes a resource carries in one step, a layer, sequence and hidden unit [B]; a token where asked."""
    hw, llm = model_on(platform, "opt-66b")
    context = 32768.0
    work = Workload(16.0, context, 2.0).at(context)
    settings = {key: float(value) for key, value in (item.split("=") for item in knobs.split(";") if item)}
    traffic = find(system)(hw, llm, work, settings).step.traffic()
    carried = sum(amount for (name, _), amount in traffic.items() if name == resource)
    return np.asarray(carried / (llm.layers * 16.0 * llm.hidden * (context if over_context == "yes" else 1.0)))


@check
def parameters(name: str) -> Real:
    """Parameters of a model, computed from its shape [1]."""
    return model_on("hilos-a100", name)[1].parameters


@check
def kv_gigabytes(name: str, batch: str, context: str) -> Real:
    """KV cache of a model at 16 bit [GB]."""
    llm = model_on("hilos-a100", name)[1]
    return llm.layers * llm.kv_bytes(float(batch), float(context)) / 1e9
