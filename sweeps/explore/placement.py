"""`nearkv solve placement`: where FlexGen puts the tensors, for each combination of axes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from nearkv.costmodel.model.models import alike_llm
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import Part, Platform, load_platform
from nearkv.hardware.errors import InputError, warn
from nearkv.hardware.units import parse
from nearkv.solvers.placement.placement import Placement, place
from nearkv.sweeps.explore.rows import Row, Rows, sentences
from nearkv.sweeps.study.sizes import Choice, Values, in_si, size, values
from nearkv.sweeps.study.study import models_and_labels, swapped
from nearkv.sweeps.tables.table import plain

_READ = ("gpu.count", "gpu.memory", "host.memory", "disk.count", "disk.capacity")
"""Numbers of parts that a placement depends on, beside the roles of `_READ_ROLES`."""
_READ_ROLES = ("offload", "precision")
_RATES = (
    "a placement takes of gpu, host and disk what they hold; its rates are those of the role "
    "offload, fitted to one machine; set offload.* too"
)


def placements(
    models: Sequence[str | Part],
    context: Values,
    output_tokens: Values,
    platforms: Sequence[str | Platform],
    sets: Mapping[str, Sequence[Choice]],
    parts: Mapping[str, Sequence[str]],
    **choice: Any,
) -> Rows:
    """Solve one placement for each combination of models, platforms, lengths and numbers.

    Args:
        models, platforms: names, or what was read before.
        context, output_tokens: lists of sizes.
        sets: hardware number (`role.key`) -> list of values.
        parts: role -> list of parts that fill it.
        choice: `search`, `gpu_batch`, `num_batches` and `fixed`, as `solvers.placement` takes them.

    Returns:
        A row per combination.

    Raises:
        InputError: a name, number or combination that cannot be used.
    """
    _check_read(sets)
    _check_searched(choice)
    if parts:
        swaps = ", ".join(f"{role}={','.join(names)}" for role, names in parts.items())
        warn(f"--part {swaps}: {_RATES}")
    prompts = values(context, size, "--context")
    outputs = values(output_tokens, size, "--output-tokens")
    lengths = list(product(prompts, outputs))
    rows: Rows = []
    labelled = zip(*models_and_labels(models), strict=True)
    for (part, label), name in product(labelled, platforms):
        bed = load_platform(name) if isinstance(name, str) else name
        for platform in swapped(bed, parts):
            for numbers in _combinations(platform, sets):
                hw = platform.machine().with_values(numbers)
                llm = alike_llm(part, hw["precision"], "placement")
                names = {"model": label, "platform": bed.name, **platform.part_columns}
                note = {"note": _RATES} if parts else {}
                for prompt, tokens in lengths:
                    work = Workload(1.0, prompt, tokens)
                    sizes = {"context_tok": prompt, "output_tokens": tokens, **numbers}
                    row = names | sizes | _row(place(hw, llm, work, **choice)) | note
                    rows.append({column: plain(value) for column, value in row.items()})
    return rows


def _check_read(sets: Iterable[str]) -> None:
    """Refuse numbers that no placement depends on."""
    for address in sets:
        role = address.partition(".")[0]
        if address not in _READ and role not in _READ_ROLES:
            listed = ", ".join(_READ)
            raise InputError(
                f"--set {address}: no placement depends on it; set {listed} or offload.*"
            )


def _check_searched(choice: Mapping[str, Any]) -> None:
    """Refuse the walk where there is nothing to search."""
    is_stated = choice.get("gpu_batch") and choice.get("num_batches")
    if choice.get("search") == "paper" and is_stated:
        raise InputError(
            "--search paper: --gpu-batch and --num-batches state the block, so nothing is "
            "searched; leave out one of the three"
        )


def _combinations(
    platform: Platform, sets: Mapping[str, Sequence[Choice]]
) -> Iterator[dict[str, float]]:
    """Each combination of the numbers set, in SI by `role.key`."""
    lists = []
    for address, given in sets.items():
        lists.append(in_si(given, platform.key(address), f"--set {address}"))
    for combination in product(*lists):
        yield dict(zip(sets, combination, strict=True))


def _row(placement: Placement) -> dict[str, Any]:
    fits = placement.status != "infeasible"
    proven = placement.status == "optimal"
    return {
        "status": placement.status,
        "gpu_batch": placement.gpu_batch,
        "num_batches": placement.num_batches,
        "throughput_tok_s": placement.throughput_tok_s if fits else None,
        "bound_tok_s": placement.bound_tok_s if proven else None,
        "gap": placement.gap if proven else None,
        **{
            share: value if np.isfinite(value) else None
            for share, value in placement.shares.items()
        },
        "prefill_s": placement.prefill if fits else None,
        "decode_s": placement.decode if fits else None,
        **{f"{tier}_used": used if fits else None for tier, used in placement.used.items()},
        "binding": ", ".join(placement.binding),
        **{
            f"{tier}_tok_s_per_gb": worth if fits else None
            for tier, worth in placement.worth.items()
        },
        "programs": placement.programs,
        "reason": placement.reason,
    }


def shares_of(fixed: Mapping[str, str]) -> dict[str, float]:
    """Read shares that a user fixes: `0.2` or `20%`."""
    return {share: parse(text, "1", f"--fix {share}") for share, text in fixed.items()}


def why_placement(rows: Sequence[Row]) -> list[str]:
    """Say what binds each placement, and which memory would speed it up most."""
    return sentences(map(_why_placement, rows))


def _why_placement(row: Row) -> str:
    if row["throughput_tok_s"] is None:
        return f"{row['model']}: {row['reason'] or row['status']}."
    worth = {tier: row[f"{tier}_tok_s_per_gb"] or 0.0 for tier in ("gpu", "host", "disk")}
    most = max(worth, key=lambda tier: worth[tier])
    bound_by = f"{row['model']}: bound by {row['binding']}"
    if not worth[most]:
        return f"{bound_by}; more memory of any kind would not move it."
    gain = f"{worth[most]:.4g} tokens per second"
    return f"{bound_by}; one more GB of {most} memory would add {gain}."
