"""Checks that more than one paper needs: parameters, KV bytes, traffic of a decode step."""

from __future__ import annotations

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.registry import find_system
from nearkv.costmodel.model.workload import Workload
from nearkv.sweeps.validation.checks import check
from nearkv.sweeps.validation.checks.asking import model_on, published_choices

CONTEXT = 32768.0
"""Context of the step whose traffic is compared [tokens]."""
BATCH = 16.0


@check
def step_bytes(platform: str, system: str, resource: str, knobs: str = "") -> Real:
    """Bytes that a resource carries in one decode step of OPT-66B, per layer, sequence and hidden
    unit [B].
    """
    hw, llm = model_on(platform, "opt-66b")
    work = Workload(BATCH, CONTEXT, 2.0).at(CONTEXT)
    requested = published_choices(find_system(system))
    for item in filter(None, knobs.split(";")):
        name, _, value = item.partition("=")
        requested[name] = float(value)
    traffic = find_system(system)(hw, llm, work, requested).step.traffic()
    carried: Real = 0.0
    for (name, _), amount in traffic.items():
        if name == resource:
            carried = carried + amount
    return carried / (llm.layers * BATCH * llm.hidden)


@check
def step_bytes_a_token(platform: str, system: str, resource: str, knobs: str = "") -> Real:
    """`step_bytes` per token of context (HILOS sec. 4.1, INF² sec. 2.2) [B]."""
    return step_bytes(platform, system, resource, knobs) / CONTEXT
