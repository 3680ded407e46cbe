"""Checks of H2M2's statements about what HBM holds and Algorithm 1.

Source: H2M2 sec. 4.3, fig. 3 and 14.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from nearkv.costmodel.mechanisms.hbm_lpddr.head_mapping import (
    SUBLAYERS,
    decoder_bytes,
    footprint,
)
from nearkv.costmodel.mechanisms.hbm_lpddr.head_tables import head_tables
from nearkv.costmodel.mechanisms.hbm_lpddr.paging import fragmentation
from nearkv.costmodel.model.workload import Workload
from nearkv.solvers.mapping.policies import greedy
from nearkv.sweeps.validation.checks import check
from nearkv.sweeps.validation.checks.asking import model_on
from nearkv.sweeps.validation.checks.h2m2 import (
    BATCHES,
    LENGTHS,
    PLATFORM,
    Values,
    all_of,
    estimate,
    solved,
)


def _on_hbm(name: str) -> dict[str, Values]:
    """Bytes of each sub-layer on HBM at every length [GB]."""
    also = estimate("h2m2", name).also
    return {part: np.asarray(also[f"hbm_{part}_gb"]) for part in SUBLAYERS}


@check
def hbm_fill(name: str) -> Values:
    """Share of HBM that H2M2 fills, at every length (fig. 14) [1]."""
    _, hw, _ = solved("h2m2", name)
    used = np.asarray(estimate("h2m2", name).also["hbm_used_gb"]) * 1e9
    filled: Values = used / (hw.hbm.count * hw.hbm.memory)
    return filled


@check
def attention_takes_over(name: str) -> float:
    """Whether attention's bytes on HBM rise with length, to within one KV head, and those of fc
    fall.

    Source: Fig. 14.
    """
    on_hbm = _on_hbm(name)
    _, _, llm = solved("h2m2", name)
    one_head = footprint(llm, estimate("h2m2", name).work, 1.0, 0.0, 0.0)["attention"]
    head = np.asarray(one_head) / 1e9
    rises = np.diff(on_hbm["attention"]) >= -head[1:]
    falls = np.diff(on_hbm["fc"]) <= 0
    return all_of(rises & falls)


@check
def qkv_is_moderate(name: str) -> float:
    """Whether qkv-linear holds, at every length, bytes between those of fc and of attention.

    Source: Fig. 14.
    """
    on_hbm = _on_hbm(name)
    low = np.minimum(on_hbm["attention"], on_hbm["fc"])
    high = np.maximum(on_hbm["attention"], on_hbm["fc"])
    return all_of((on_hbm["qkv"] >= low) & (on_hbm["qkv"] <= high))


@check
def mapped_in_order(*models: str) -> float:
    """Whether Algorithm 1 maps each sub-layer as if the later ones took no room (sec. 4.3.2)."""
    for name in models:
        _, hw, llm = solved("h2m2", name)
        tables = head_tables(hw, llm, estimate("h2m2", name).work)
        chosen = greedy(tables).units
        for last in (1, 2):
            hbm = _first_only(tables.hbm, last)
            lpddr = _first_only(tables.lpddr, last)
            alone = greedy(replace(tables, hbm=hbm, lpddr=lpddr)).units
            for mapped, mapped_alone in zip(chosen[:last], alone[:last], strict=True):
                if not np.array_equal(mapped, mapped_alone):
                    return 0.0
    return 1.0


def _first_only(tables: Any, last: int) -> Any:
    """The tables of the first sub-layers; those of the others are free."""
    return tuple(table * (place < last) for place, table in enumerate(tables))


@check
def attention_share_of_bytes(name: str) -> Values:
    """The KV cache's share of a model's bytes, at every length (fig. 3) [1]."""
    _, llm = model_on(PLATFORM, name)
    batch, lengths = BATCHES[name], LENGTHS[name]
    work = Workload(batch, lengths, 1.0).at(lengths)
    cache = footprint(llm, work, llm.heads, 0.0, 0.0)["attention"]
    return np.asarray(cache / decoder_bytes(llm, batch, lengths))


@check
def fragmentation_as_printed(name: str) -> float:
    """Most bytes that Eq. 2 counts, the used part of last pages, over all lengths [MB].

    Source: Sec. 4.2.1.
    """
    resolved, hw, llm = solved("h2m2", name)
    units = [resolved.knobs[f"n_{part}"] for part in SUBLAYERS]
    counted = fragmentation(hw, llm, resolved.estimate.work, *units).as_printed
    return float(np.max(counted) / 1e6)
