"""`nearkv solve placement`: where FlexGen puts the tensors, for each combination of axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nearkv.costmodel.model.models import require_alike
from nearkv.hardware.errors import InputError, warn
from nearkv.hardware.units import parse
from nearkv.solvers.placement.placement import Placement, place
from nearkv.sweeps.evaluate.probe import Probe
from nearkv.sweeps.explore.lines import searched, warn_of_idle
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.tables.table import Row, Rows, plain

_RATES_NOTE = (
    "a placement takes of gpu, host and disk what they hold; its rates are those of the role "
    "offload, fitted to one machine; set offload.* too"
)


def find_placements(study: Study, **choice: Any) -> Rows:
    """Solve one placement at each design point.

    Args:
        study: models, platforms, lengths and hardware numbers; its systems do not count.
        choice: `search`, `gpu_batch`, `num_batches` and `fixed`, as `solvers.placement` takes them.

    Returns:
        A row a design point.

    Raises:
        InputError: a name, number or combination that cannot be used.
    """
    _check_searched(choice)
    if 0 in study.context:
        raise InputError("--context 0: the linear program plans prompts; give 1 or more")
    note = {}
    if study.parts:
        note = {"note": _RATES_NOTE}
        swaps = ", ".join(
            f"{role}={','.join(names)}" for role, names in study.parts.items()
        )
        warn(f"--part {swaps}: {_RATES_NOTE}")
    rows: Rows = []
    read: set[str] = set()
    for block in searched(study):
        probe = Probe(block)
        unseen = ("batch", *block.system.knobs)
        for point, box in enumerate(block.grid.boxes(1)):
            hw, llm, work, _ = block.at(block.grid.mesh(box), read=read)
            names = probe.names(point, unseen)
            del names["system"]
            require_alike(llm, names["model"], "placement")
            rows.append(names | _row(place(hw, llm, work, **choice)) | note)
    warn_of_idle(study, read, "placement")
    return rows


def _check_searched(choice: Mapping[str, Any]) -> None:
    """Refuse the walk where there is nothing to search."""
    is_stated = choice.get("gpu_batch") and choice.get("num_batches")
    if choice.get("search") == "paper" and is_stated:
        raise InputError(
            "--search paper: --gpu-batch and --num-batches state the block, so nothing is "
            "searched; leave out one of the three"
        )


def _row(placement: Placement) -> dict[str, Any]:
    """The columns of a placement; blank where none fits, or where nothing is proven."""
    proven = placement.status == "optimal"
    worth = {f"{tier}_tok_s_per_gb": rate for tier, rate in placement.worth.items()}
    answer = {
        "status": placement.status,
        "gpu_batch": placement.gpu_batch,
        "num_batches": placement.num_batches,
        "throughput_tok_s": placement.throughput_tok_s or None,
        "bound_tok_s": placement.bound_tok_s if proven else None,
        "gap": placement.gap if proven else None,
        **placement.shares,
        "prefill_s": placement.prefill,
        "decode_s": placement.decode,
        **{f"{tier}_used": used for tier, used in placement.used.items()},
        "binding": ", ".join(placement.binding),
        **worth,
        "programs": placement.programs,
        "reason": placement.reason,
    }
    return {column: plain(value) for column, value in answer.items()}


def shares_of(fixed: Mapping[str, str]) -> dict[str, float]:
    """Read shares that a user fixes: `0.2` or `20%`."""
    return {share: parse(text, "1", f"--fix {share}") for share, text in fixed.items()}


def why_placement(row: Row) -> str:
    """Say what binds a placement, and which memory would speed it up most."""
    if row["throughput_tok_s"] is None:
        return f"{row['model']}: {row['reason'] or row['status']}."
    worth = {tier: row[f"{tier}_tok_s_per_gb"] or 0.0 for tier in ("gpu", "host", "disk")}
    most = max(worth, key=lambda tier: worth[tier])
    bound_by = f"{row['model']}: bound by {row['binding']}"
    if not worth[most]:
        return f"{bound_by}; more memory of any kind would not move it."
    gain = f"{worth[most]:.4g} tokens per second"
    return f"{bound_by}; one more GB of {most} memory would add {gain}."
