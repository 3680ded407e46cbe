"""The commands `solve` for designers: tensors, batches, hardware, crossovers, sub-batches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearkv.sweeps.commands.options import (
    Beds,
    Context,
    Llm,
    Named,
    Of,
    OutputTokens,
    Parts,
    Set,
)
from nearkv.sweeps.commands.printing import show_rows
from nearkv.sweeps.commands.views import View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nearkv.sweeps.study.study import Study

PLACED = [
    "model",
    "platform",
    "context_tok",
    "output_tokens",
    "status",
    "gpu_batch",
    "num_batches",
    "throughput_tok_s",
    "wg",
    "wc",
    "wd",
    "cg",
    "cc",
    "cd",
    "hg",
    "hc",
    "binding",
    "reason",
]
"""Columns that a terminal shows of several placements."""

BATCH = [
    "system",
    "model",
    "platform",
    "context_tok",
    "output_tokens",
    "largest_batch",
    "short_of",
    "value",
    "throughput_tok_s",
    "step_ms",
]
"""Columns of `solve batch`, the most important first."""

Slo = Annotated[
    list[str],
    typer.Option(
        "--slo",
        metavar="MEASURE=VALUE",
        help="What must hold: throughput_tok_s=1.0, or step_ms=50,prefill_s=2.",
    ),
]
Search = Annotated[
    str,
    typer.Option(
        metavar="SEARCH", help="full: the proven best block; paper: FlexGen's own walk."
    ),
]
GpuBatch = Annotated[
    int | None,
    typer.Option(metavar="N", help="Sequences on the GPU at once; default: the best."),
]
NumBatches = Annotated[
    int | None, typer.Option(metavar="N", help="GPU batches of a block; default: the best.")
]
Fix = Annotated[
    list[str],
    typer.Option(metavar="SHARE=VALUE", help="A share that is fixed: wg=0.2, cc=100%."),
]
Vary = Annotated[
    str,
    typer.Option(metavar="ROLE.KEY[=LOW:HIGH]", help="The number to choose: csd.count."),
]
Along = Annotated[
    str,
    typer.Option(
        metavar="AXIS=LOW:HIGH",
        help="The axis to search: context=4k:1M, batch=1:64 or csd.count=1:64.",
    ),
]


def is_given(line: typer.Context, option: str) -> bool:
    """Whether an option is on the command line, whatever its value."""
    source = line.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def answered(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Columns that people see of an answer: all but how it was searched."""
    return [name for name in rows[0] if name not in ("method", "resolution")]


def placement(
    view: View,
    model: Llm,
    context: Context = "512",
    output_tokens: OutputTokens = "32",
    platform: Beds = "t4-flexgen",
    sets: Set = [],
    parts: Parts = [],
    search: Search = "full",
    gpu_batch: GpuBatch = None,
    num_batches: NumBatches = None,
    fix: Fix = [],
) -> None:
    """Place weights, KV cache and activations on GPU, CPU and disk.

    FlexGen's linear program (ICML 2023, sec. 4.3) and the best block, with what each memory is
    worth. The platform needs a role `offload`.

    Example: nearkv solve placement --model opt-30b --set gpu.memory=16GiB --set host.memory=200GiB
    """
    from nearkv.sweeps.explore.placement import placements, shares_of, why_placement
    from nearkv.sweeps.study.study import comma_list, pairs

    swaps = pairs(parts, "--part")
    shares = comma_list(",".join(fix))
    rows = placements(
        model,
        context,
        output_tokens,
        platform,
        pairs(sets, "--set"),
        swaps,
        search=search,
        gpu_batch=gpu_batch,
        num_batches=num_batches,
        fixed=shares_of(pairs(shares, "--fix")),
    )
    machine = [*PLACED[:2], *(f"{role}.part" for role in swaps)]
    usual = [*machine, *PLACED[2:]] if len(rows) > 1 else ()
    show_rows(rows, view, usual, below=why_placement(rows))


def batch(
    line: typer.Context,
    study: Study,
    view: View,
    system: Named = "hilos",
    slo: Slo = [],
) -> None:
    """Find the largest batch that is served at once, and the batch of best throughput.

    No batch up to the largest exceeds `bound_tok_s`.

    Example: nearkv solve batch --system hilos,flexgen-dram --model opt-66b --context 16k,64k
    """
    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.explore.batch import best_batches, why_batch
    from nearkv.sweeps.study.study import comma_list

    # its value says nothing: 16 is also what is taken where it is left out
    if is_given(line, "batch"):
        raise InputError("solve batch chooses the batch; leave out --batch")
    chosen = replace(study, systems=comma_list(system))
    rows = best_batches(chosen, slo)
    rest = [name for name in rows[0] if name not in (*BATCH, "method")]
    usual = [*BATCH, *rest]
    show_rows(rows, view, usual, below=why_batch(rows), study=chosen)


def hardware(
    study: Study,
    view: View,
    vary: Vary,
    slo: Slo = [],
    system: Named = "hilos",
) -> None:
    """Find the least hardware that meets an SLO, or what stands in the way.

    An SLO is MEASURE=VALUE (the better side), >=, <=, or a ratio as in speedup:flexgen-ssd>=5;
    all must hold.

    Example: nearkv solve hardware --model opt-66b --context 64k --vary csd.count \
--slo throughput_tok_s=0.5
    """
    from nearkv.sweeps.explore.hardware import least_hardware, why_hardware
    from nearkv.sweeps.study.study import comma_list

    chosen = replace(study, systems=comma_list(system))
    rows = least_hardware(chosen, vary, slo)
    show_rows(rows, view, answered(rows), below=why_hardware(rows), study=chosen)


def crossover(
    study: Study,
    view: View,
    along: Along,
    system: Named = "flexgen-dram,hilos",
    of: Of = "decode_tok_s",
) -> None:
    """Find where one system overtakes another along an axis.

    Example: nearkv solve crossover --system flexgen-dram,hilos --model opt-66b \
--along context=1k:1M
    """
    from nearkv.sweeps.explore.crossover import crossovers, why_crossover
    from nearkv.sweeps.study.study import comma_list

    chosen = replace(study, systems=comma_list(system))
    rows = crossovers(chosen, along, of)
    show_rows(rows, view, answered(rows), below=why_crossover(rows), study=chosen)
