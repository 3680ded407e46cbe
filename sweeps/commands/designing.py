"""The commands `solve` for designers: tensors, batches, hardware, crossovers, sub-batches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearkv.sweeps.commands.options import (
    Bed,
    Context,
    Format,
    Llm,
    Named,
    Of,
    OutputTokens,
    Seed,
    Set,
    with_axes,
)
from nearkv.sweeps.commands.printing import show, show_point

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nearkv.sweeps.space.study import Study

PLACED = [
    "model",
    "platform",
    "context_tok",
    "output_tok",
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
Targets = Annotated[
    list[str],
    typer.Option(
        "--target", metavar="COLUMN>=VALUE", help="What to reach: throughput_tok_s=1.0."
    ),
]
Along = Annotated[
    str,
    typer.Option(
        metavar="AXIS=LOW:HIGH", help="context=4k:1M, batch=1:64 or csd.count=1:64."
    ),
]
InFlight = Annotated[
    str,
    typer.Option(
        "--requests",
        metavar="SIZES",
        help="Contexts in flight: 2k,3k,4k,5k, a trace, or FILE.csv.",
    ),
]
Prompts = Annotated[
    str,
    typer.Option(metavar="SIZES", help="Prompts that wait: 96,1k. A trace brings its own."),
]
Ranksets = Annotated[
    str,
    typer.Option(
        "--placement",
        metavar="RULE",
        help="balanced, or random: each request on one rankset.",
    ),
]
TimeLimit = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", help="To search; what is not proven by then is marked so."
    ),
]
Slack = Annotated[
    float,
    typer.Option(
        metavar="SHARE", min=0.0, help="Time prompts may add to the fastest decoding."
    ),
]


def show_reasons(rows: Sequence[dict[str, Any]], form: str) -> None:
    """Print rows; on a terminal without their method, reasons and notes below them."""
    hidden = ("method", "resolution", "reason", "note")
    show(rows, form, [name for name in rows[0] if name not in hidden])
    if form == "table":
        sentences = [row[name] for name in ("reason", "note") for row in rows if row[name]]
        for sentence in dict.fromkeys(sentences):
            typer.echo(sentence)


def placement(
    model: Llm,
    context: Context = "512",
    output: OutputTokens = "32",
    platform: Bed = "t4-flexgen",
    sets: Set = [],
    search: Search = "full",
    gpu_batch: GpuBatch = None,
    num_batches: NumBatches = None,
    fix: Fix = [],
    form: Format = "table",
) -> None:
    """Place weights, KV cache and activations on GPU, CPU and disk.

    FlexGen's linear program (ICML 2023, sec. 4.3) and the best block, with what each memory is
    worth. The platform needs a role `offload`.

    Example: nearkv solve placement --model opt-30b --set gpu.memory=16GiB --set host.memory=200GiB
    """
    from nearkv.sweeps.evaluation.table import check_format
    from nearkv.sweeps.explore.placement import placements, shares_of
    from nearkv.sweeps.space.study import pairs

    check_format(form)
    rows = placements(
        model,
        context,
        output,
        platform,
        pairs(sets, "--set"),
        search=search,
        gpu_batch=gpu_batch,
        num_batches=num_batches,
        fixed=shares_of(pairs(fix, "--fix")),
    )
    if len(rows) == 1:
        show_point(rows[0], form)
    else:
        show(rows, form, PLACED)


@with_axes
def batch(study: Study, system: Named = "hilos", form: Format = "table") -> None:
    """Find the largest batch that is served at once, and the batch of best throughput.

    No batch up to the largest exceeds `bound_tok_s`.

    Example: nearkv solve batch --system hilos,flexgen-dram --model opt-66b --context 16k,64k
    """
    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.explore.batches import best_batches
    from nearkv.sweeps.space.study import Study, comma_list

    if study.batch != Study.batch:
        raise InputError("solve batch chooses the batch; leave out --batch")
    show(best_batches(replace(study, systems=comma_list(system))), form)


@with_axes
def hardware(
    study: Study,
    vary: Vary,
    target: Targets,
    system: Named = "hilos",
    form: Format = "table",
) -> None:
    """Find the least hardware that reaches a target, or what stands in the way.

    Targets: COLUMN=VALUE (the better side), >=, <=, or a ratio as in speedup:flexgen-ssd>=5;
    all must hold.

    Example: nearkv solve hardware --model opt-66b --context 64k --vary csd.count \
--target throughput_tok_s=0.5
    """
    from nearkv.sweeps.explore.sizing import least_hardware
    from nearkv.sweeps.space.study import comma_list

    chosen = replace(study, systems=comma_list(system))
    show_reasons(least_hardware(chosen, vary, target), form)


@with_axes
def crossover(
    study: Study,
    along: Along,
    system: Named = "flexgen-dram,hilos",
    of: Of = "decode_tok_s",
    form: Format = "table",
) -> None:
    """Find where one system overtakes another along an axis.

    Example: nearkv solve crossover --system flexgen-dram,hilos --model opt-66b \
--along context=1k:1M
    """
    from nearkv.sweeps.explore.crossover import crossovers
    from nearkv.sweeps.space.study import comma_list

    show_reasons(crossovers(replace(study, systems=comma_list(system)), along, of), form)


def subbatch(
    model: Llm,
    requests: InFlight,
    prompts: Prompts = "",
    platform: Bed = "dgx-a100-pim",
    placement: Ranksets = "balanced",
    time_limit: TimeLimit = 10.0,
    slack: Slack = 0.02,
    seed: Seed = 0,
    sets: Set = [],
    form: Format = "table",
) -> None:
    """Split one iteration of L3 into sub-batches and chunks: proven best.

    Beside it stands the paper's greedy (L3 sec. 5.3), by tokens alone and by modelled times.
    The platform needs DIMM-PIM.

    Example: nearkv solve subbatch --requests 2k,3k,4k,5k --model gpt-175b --platform dgx-a100-pim
    """
    from nearkv.sweeps.explore.subbatch import SubbatchPoint, brief
    from nearkv.sweeps.explore.subbatch import subbatch as solved
    from nearkv.sweeps.space.study import pairs

    point = SubbatchPoint(
        model=model,
        platform=platform,
        requests=requests,
        prompts=prompts,
        placement=placement,
        seed=seed,
        time_limit=time_limit,
        slack=slack,
        sets=pairs(sets, "--set"),
    )
    rows = solved(point)
    show(brief(rows) if form == "table" else rows, form)
