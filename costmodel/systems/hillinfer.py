"""HillInfer: tokens scored where they live, in host DRAM and in one SmartSSD (paper: hillinfer sec. 4).

Symbols: M_c, M_s bytes of K and V in host DRAM (hot) and in the SmartSSD (cold), beta = M_c / M_s,
alpha retained share, sigma skew, m chunks.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nearkv.costmodel.capacity import fits
from nearkv.costmodel.compose import overlap, pipeline, serial
from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.eviction import (
    PLACEMENT,
    RETENTION,
    Tiers,
    fits_in,
    gpu_layer,
    place,
    prefill_layer,
    put_away,
    where_kv_lives,
)
from nearkv.costmodel.mechanisms.offload import output_head
from nearkv.costmodel.mechanisms.scoring import (
    PRECISIONS,
    SOURCES,
    Pools,
    cpu_path,
    csd_path,
    narrow_copies,
)
from nearkv.costmodel.registry import NO_KNOBS, Knob, system
from nearkv.costmodel.resources import csd, gpu, link
from nearkv.costmodel.span import Real
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine

STATIC_HOT_SHARE = 0.75
"""60 of the 80 % off the GPU (sec. 3.2): HKM without APP."""


def static_split(hw: Machine, llm: LLM, work: Workload, _: Mapping[str, Real] = NO_KNOBS) -> Real:
    """60/20 between host and SmartSSD (sec. 3.2) [1]."""
    return STATIC_HOT_SHARE


@system(
    "hillinfer",
    platform="aipc-4090",
    cite="hillinfer",
    owns=("gpu", "host", "csd"),
    knobs={
        "hot_share": Knob(
            "share of the KV off the GPU that host DRAM holds, beta / (1 + beta) (APP, sec. 4.3)",
            rules={"static": static_split},
        ),
        "retention": RETENTION,
        "sigma": Knob(
            "skew: the share of the cold pool's tokens' worth that the hot pool serves (HKM, sec. 4.3)",
            high=0.99, default=0.5,
        ),
        "hop": Knob(
            "how tokens come from the SmartSSD: straight to the GPU (eq. 4), or stored in the host first (sec. 5.4)",
            high=1, default=1, kind="choice", choices=("direct", "through-host"),
        ),
        "chunks": Knob(
            "score blocks a layer, m (HIE, sec. 4.2)", low=1, high=256, default=16, kind="count",
        ),
        "score_precision": Knob(
            "width of a key where it is scored (CEC, sec. 4.4)",
            high=2, default=1, kind="choice", choices=PRECISIONS,
        ),
        "score_source": Knob(
            "where scoring reads keys: FP16 in flash, a narrow copy in flash, or one in the accelerator's DRAM",
            high=2, default=0, kind="choice", choices=SOURCES,
        ),
        "placement": PLACEMENT,
        "memory": Knob("DRAM the KV cache may take, M_0 (eq. 3)", kind="count", sets="host.kv_memory"),
    },
)  # fmt: skip
def hillinfer(
    hw: Machine, llm: LLM, work: Workload, *, hot_share: Real, retention: Real, sigma: Real, hop: Real,
    chunks: Real, score_precision: Real, score_source: Real, placement: Real,
) -> Estimate:  # fmt: skip
    """CPU and SmartSSD score their own pools side by side, a layer ahead of the GPU; only retained tokens move.

    Args:
        hw: roles gpu, gpu_link, host (with kv_memory), csd, csd_link.
        llm, work: what runs.
        hot_share: M_c / (M_c + M_s) [1].
        retention: alpha [1].
        sigma: share of the cold pool's selected tokens that HKM has moved to the hot pool [1].
        hop: 0 straight to the GPU, 1 stored in the host first.
        chunks: score blocks a layer [1].
        score_precision, score_source: index into PRECISIONS and SOURCES.
        placement: sets the GPU's share only: 0 static, 1 by capacity.

    Returns:
        Prefill, one decode step and what fits; `host` is M_c <= M_0.
        Source: HillInfer sec. 4.2 to 4.4, eq. 2, 3.
    """
    on_gpu = place(hw, llm, work, placement).gpu
    tiers = Tiers(on_gpu, hot_share * (1 - on_gpu), (1 - hot_share) * (1 - on_gpu))
    gpu_, dev = gpu(hw), csd(hw, llm.group)
    gpu_link, lanes = link(hw, "gpu_link", "pcie"), link(hw, "csd_link", "pcie")
    kv = llm.kv_bytes(work.batch, work.context)
    pools = Pools(tiers.host * kv, tiers.drive * kv, retention, sigma, hop)
    launches = np.minimum(work.batch, 1.0)

    layer_ahead = overlap(
        cpu=cpu_path(hw, pools),
        csd=csd_path(hw, llm, pools, score_precision, score_source, chunks, launches),
        put_away=put_away(llm.kv_bytes(work.batch, 1), tiers, gpu_link, lanes, dev.write),
    )
    layer = gpu_layer(llm, work, on_gpu + retention * (1 - on_gpu), gpu_)
    head = output_head(llm, work.batch, gpu_)
    copies = narrow_copies(
        llm,
        tiers.drive * llm.layers * llm.kv_bytes(work.batch, work.final),
        score_precision,
        score_source,
    )
    stored = put_away(llm.kv_bytes(work.batch, work.prompt), tiers, gpu_link, lanes, dev.write)
    capacity_check = fits_in(hw, llm, work, tiers, "csd", dev.capacity, copies.flash)
    return Estimate(
        prefill=serial(layers=llm.layers * prefill_layer(llm, work, gpu_, stored), head=head),
        step=serial(layers=pipeline(llm.layers, prefetch=layer_ahead, gpu=layer), head=head),
        fits=fits(**capacity_check, csd_dram=(copies.dram, hw.csd.count * hw.csd.memory)),
        work=work,
        batch_run=work.batch,
        accelerator_power={"csd": dev.kernel_power},
        also=where_kv_lives(llm, work, tiers),
    )
