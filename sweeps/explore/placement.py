"""Where the tensors go, for every model, prompt, output and set number asked for: FlexGen's placement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np

from nearkv.costmodel.llm import llm_of
from nearkv.costmodel.workload import Workload
from nearkv.hardware.catalog import Platform, load_llm, load_platform
from nearkv.hardware.machine import Machine
from nearkv.solvers.placement.placement import Placement, place
from nearkv.sweeps.evaluation.table import plain
from nearkv.sweeps.space.sizes import number, size, values
from nearkv.sweeps.space.study import comma_list

Rows = list[dict[str, Any]]


def placements(
    models: str, context: str, output: str, platforms: str, sets: Mapping[str, str], **choice: Any
) -> Rows:
    """Solve one placement for every combination.

    Args:
        models, platforms: names apart by commas.
        context, output: lists of sizes.
        sets: hardware number (`role.key`) -> list of values.
        choice: `search`, `gpu_batch`, `num_batches` and `fixed`, as `nearkv.solvers.placement.placement.place` takes them.

    Returns:
        A row a combination.

    Raises:
        InputError: a name, number or combination that cannot be used.
    """
    prompts, outputs = values(context, size, "--context"), values(output, size, "--output")
    rows: Rows = []
    for model, platform in product(comma_list(models), comma_list(platforms)):
        part = load_llm(model)
        shape = {name: quantity.si for name, quantity in part.numbers.items()}
        for changed, hw in _machines(load_platform(platform), sets):
            llm = llm_of(shape, hw["precision"])
            for prompt, tokens in product(prompts, outputs):
                point = {
                    "model": part.name,
                    "platform": platform,
                    "context_tok": prompt,
                    "output_tok": tokens,
                }
                found = place(hw, llm, Workload(1.0, prompt, tokens), **choice)
                row: dict[str, Any] = point | changed | _row(found)
                rows.append({name: plain(value) for name, value in row.items()})
    return rows


def _machines(
    platform: Platform, sets: Mapping[str, str]
) -> Iterator[tuple[dict[str, float], Machine]]:
    lists = [
        values(text, number(platform.key(address)), f"--set {address}")
        for address, text in sets.items()
    ]
    for combination in product(*lists):
        changed = dict(zip(sets, combination, strict=True))
        yield changed, platform.machine().with_values(changed)


def _row(found: Placement) -> dict[str, Any]:
    fits, proven = found.status != "infeasible", found.status == "optimal"
    return {
        "status": found.status,
        "gpu_batch": found.gpu_batch,
        "num_batches": found.num_batches,
        "throughput_tok_s": found.throughput_tok_s if fits else None,
        "bound_tok_s": found.bound_tok_s if proven else None,
        "gap": found.gap if proven else None,
        **{share: value if np.isfinite(value) else None for share, value in found.shares.items()},
        "prefill_s": found.prefill if fits else None,
        "decode_s": found.decode if fits else None,
        **{f"{tier}_used": used if fits else None for tier, used in found.used.items()},
        "binding": ", ".join(found.binding),
        **{f"{tier}_tok_s_per_gb": worth if fits else None for tier, worth in found.worth.items()},
        "programs": found.programs,
        "reason": found.reason,
    }


def shares_of(fixed: Mapping[str, str]) -> dict[str, float]:
    """Read shares a user fixes: `0.2` or `20%`."""
    from nearkv.hardware.quantity import parse

    return {share: parse(text, "1", f"--fix {share}") for share, text in fixed.items()}
