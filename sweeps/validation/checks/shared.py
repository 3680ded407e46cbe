"""Checks that more than one paper needs: parameters, KV bytes, traffic of a decode step."""

from __future__ import annotations

from nearkv.costmodel.registry import find_system
from nearkv.costmodel.span import Real
from nearkv.costmodel.workload import Workload
from nearkv.sweeps.validation.checks import check, model_on


@check
def parameters(name: str) -> Real:
    """Parameters of a model, computed from its shape [1]."""
    return model_on("hilos-a100", name)[1].parameters


@check
def kv_gigabytes(name: str, batch: str, context: str) -> Real:
    """KV cache of a model at 16 bit [GB]."""
    llm = model_on("hilos-a100", name)[1]
    return llm.layers * llm.kv_bytes(float(batch), float(context)) / 1e9


@check
def step_bytes(platform: str, system: str, resource: str, knobs: str = "") -> Real:
    """Bytes a resource carries in one decode step of OPT-66B, a layer, sequence and hidden unit [B]."""
    hw, llm = model_on(platform, "opt-66b")
    work = Workload(16.0, 32768.0, 2.0).at(32768.0)
    requested = {
        name: float(value) for name, value in (item.split("=") for item in knobs.split(";") if item)
    }
    traffic = find_system(system)(hw, llm, work, requested).step.traffic()
    carried = sum((amount for (name, _), amount in traffic.items() if name == resource), 0.0)
    return carried / (llm.layers * 16.0 * llm.hidden)
