"""HILOS: attention near storage, cooperative X-cache, delayed KV writeback (paper: hilos sec. 4).

The parts of a layer, and the rules for alpha and c, are in `mechanisms.near_storage.x_cache`.

Symbols: b batch, alpha share of the batch kept as X, c spill interval.
"""

from __future__ import annotations

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.near_storage.writeback import WRITEBACK
from nearkv.costmodel.mechanisms.near_storage.x_cache import (
    ALPHA,
    DEVICE_WEIGHTS,
    INTERVAL,
    Caching,
    capacity_check,
    decode_layer,
    devices_of,
    kernel_power,
    place_weights,
    prefill_layer,
    unbuilt_kernels,
)
from nearkv.costmodel.mechanisms.prompt_chunks import LARGEST_CHUNK
from nearkv.costmodel.mechanisms.weights.residency import (
    CHUNK,
    SOLVED_APART,
    WEIGHTS,
    weights_on_storage,
)
from nearkv.costmodel.mechanisms.weights.streaming import (
    ATTENDS,
    path_from_devices,
    weights_from,
)
from nearkv.costmodel.model.estimate import Estimate, missed
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import Knob, system
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

UNBUILT = (
    "no attention kernel was built for its query heads per KV head: those of 1, 4 and 5 take "
    "several passes, or leave multipliers idle"
)
"""Note on models beyond Table 3, those with a latent among them."""


@system(
    "hilos",
    platform="hilos-a100",
    cite="hilos",
    technology="near drives",
    owns=("gpu", "host", "csd", "chassis"),
    knobs={
        "chunk": CHUNK,
        "alpha": ALPHA,
        "interval": INTERVAL,
        "writeback": WRITEBACK,
        "weights": WEIGHTS,
        "ssd_weights": DEVICE_WEIGHTS,
        "devices": Knob(
            "number of computational storage devices", kind="count", sets="csd.count"
        ),
    },
    attends=ATTENDS,
    lacks={"sparse": "Table 3 has no kernel that scores keys and gathers the best of them"},
    reversals=(SOLVED_APART, LARGEST_CHUNK),
)
def hilos(
    hw: Machine,
    llm: LLM,
    work: Workload,
    *,
    alpha: Real,
    interval: Real,
    writeback: Real,
    weights: Real,
    ssd_weights: Real,
) -> Estimate:
    """Attention beside the flash, X-cache on the GPU, weights streamed layer by layer.

    Args:
        hw: roles gpu, gpu_link, host, uplink, csd.
        llm, work: what runs.
        alpha: share of the batch kept as X [1].
        interval: spill interval c [tokens].
        writeback: 0 naive, 1 delayed.
        weights: where weights live, as in `mechanisms.weights.residency`.
        ssd_weights: least share on the devices of what is not on the GPU [1].

    Returns:
        Prefill, one decode step and what fits; all of `work.batch` runs together.
        Source: HILOS sec. 4.1 to 4.3; T_GPU counts K and V (erratum of sec. 4.2).
    """
    b, caching = work.batch, Caching(alpha, interval, writeback)
    tiers = place_weights(hw, llm, work, weights, ssd_weights, caching)
    path = path_from_devices(hw, devices_of(hw, llm))
    streamed = weights_from(hw, llm, tiers, path).keeping(work)
    answer = Estimate(
        prefill=streamed.over_layers(
            lambda layer_type: prefill_layer(hw, layer_type, work, alpha), b
        ),
        step=streamed.over_layers(
            lambda layer_type: decode_layer(hw, layer_type, work, caching), b
        ),
        fits=capacity_check(hw, streamed, work, caching),
        work=work,
        batch_run=b,
        columns={"x_over_kv": llm.x_over_kv},
        accelerator_power={"csd": kernel_power(hw, llm)},
        attention={"csd": 1 - alpha, "gpu": alpha},
        notes={UNBUILT: unbuilt_kernels(hw, llm)},
    )
    on_storage = weights_on_storage(hw, llm)
    stated = "its paper has 1.68 times flexgen-ssd's tokens a dollar at best"
    return missed(answer, stated, "hilos-cost-175b-vs-ssd", on_storage)
