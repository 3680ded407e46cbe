"""The machine of H2M2, its models and systems, for tests. Sections are those of the paper."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from support.systems import model

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import find_system
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.machine import Machine
from nearkv.solvers.knobs import Resolved, resolve_knobs

FAMILY = (
    "lpddr-only",
    "hierarchical",
    "naive-granularity",
    "q-major",
    "a-major",
    "f-major",
    "flexgen-mapping",
    "h2m2",
    "oracle",
    "asymmetric",
    "hbm-8",
)
LENGTHS = np.arange(256.0, 2049.0, 256.0)  # fig. 3: GPT3 from 256 to 2048
HW = load_platform("gh-decoders").machine()
GPT3 = model("gpt3-175b", HW)
CHINCHILLA = model("chinchilla-70b", HW)
LLAMA2 = model("llama2-70b", HW)


def step_work(batch: Real, context: Real) -> Workload:
    """One decode step at a context."""
    return Workload(batch, context, 1.0, fixed_context=context)


def resolve(
    name: str,
    llm: LLM,
    batch: Real,
    context: Real,
    hw: Machine = HW,
    settings: Mapping[str, float] = {},
) -> Resolved:
    """One decode step of a system, its other knobs at their defaults."""
    system = find_system(name)
    knobs = {n: settings.get(n, knob.default) for n, knob in system.knobs.items()}
    return resolve_knobs(system, hw, llm, step_work(batch, context), knobs)


def seconds(
    name: str, llm: LLM, batch: Real, context: Real, hw: Machine = HW
) -> NDArray[np.float64]:
    """Seconds of one decode step that fits [s]."""
    estimate = resolve(name, llm, batch, context, hw).estimate
    assert np.all(estimate.fits.ok)
    return np.asarray(estimate.step.seconds)


def speedup(name: str, llm: LLM, batch: float, context: Real) -> NDArray[np.float64]:
    """Over one LPDDR memory for both chips, the paper's baseline [1]."""
    return seconds("lpddr-only", llm, batch, context) / seconds(name, llm, batch, context)
