"""Commands that answer a designer: where tensors go, how large a batch, how much hardware, which designs pay."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearkv.sweeps.commands.options import Format, Named, Only, Set, System, show, with_axes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nearkv.sweeps.space.study import Study

PLACED = (
    *(
        "model",
        "platform",
        "context_tok",
        "output_tok",
        "status",
        "gpu_batch",
        "num_batches",
        "throughput_tok_s",
    ),
    *("wg", "wc", "wd", "cg", "cc", "cd", "hg", "hc", "binding", "reason"),
)
"""Columns a terminal shows of several placements."""


def add_to(app: typer.Typer, solve: typer.Typer) -> None:
    """Register the commands."""
    for command in (placement, batch, hardware, crossover, subbatch):
        solve.command()(command)
    for command in (pareto, sensitivity):
        app.command()(command)


def show_reasons(rows: Sequence[dict[str, Any]], form: str) -> None:
    """Print rows; on a terminal without how they were found, and why there is no answer below them."""
    hidden = ("method", "looked_at", "gap", "reason")
    show(rows, form, [name for name in rows[0] if name not in hidden])
    if form == "table":
        for reason in dict.fromkeys(row["reason"] for row in rows if row["reason"]):
            typer.echo(reason)


def placement(
    model: Annotated[
        str, typer.Option(help="Models apart by commas; see `nearkv models`. Or path/config.json.")
    ],
    context: Annotated[
        str, typer.Option(help="Prompt tokens a sequence: 512 or 256:4k:x2.")
    ] = "512",
    output: Annotated[str, typer.Option(help="Tokens each sequence generates.")] = "32",
    platform: Annotated[
        str, typer.Option(help="Test beds with a role `offload`, apart by commas.")
    ] = "t4-flexgen",
    sets: Set = [],
    search: Annotated[
        str, typer.Option(help="full: the proven best block; paper: FlexGen's own walk.")
    ] = "full",
    gpu_batch: Annotated[
        int | None, typer.Option(help="Sequences on the GPU at once, instead of the best.")
    ] = None,
    num_batches: Annotated[
        int | None, typer.Option(help="GPU batches of a block, instead of the best.")
    ] = None,
    fix: Annotated[
        list[str], typer.Option(metavar="SHARE=VALUE", help="A share given: wg=0.2, cc=100%.")
    ] = [],
    form: Format = "table",
) -> None:
    """Place weights, KV cache and activations on GPU, CPU and disk.

    FlexGen's linear program (ICML 2023, sec. 4.3) and the best block, with what each memory is worth.

    Example: nearkv solve placement --model opt-30b --set gpu.memory=16GiB --set host.memory=200GiB
    """
    from nearkv.sweeps.evaluation.table import check_format
    from nearkv.sweeps.explore.placement import placements, shares_of
    from nearkv.sweeps.space.study import pairs

    check_format(form)
    given = {
        "gpu_batch": gpu_batch,
        "num_batches": num_batches,
        "fixed": shares_of(pairs(fix, "--fix")),
    }
    rows = placements(
        model, context, output, platform, pairs(sets, "--set"), search=search, **given
    )
    if form == "table" and len(rows) == 1:
        show([{"quantity": name, "value": value} for name, value in rows[0].items()], form)
    else:
        show(rows, form, PLACED)


@with_axes
def batch(study: Study, system: Named = "hilos", form: Format = "table") -> None:
    """Find the largest batch that is served at once, and the batch of best throughput.

    Neither takes --batch into account; no batch up to the largest exceeds `bound_tok_s`.

    Example: nearkv solve batch --system hilos,flexgen-dram --model opt-66b --context 16k,64k
    """
    from nearkv.sweeps.explore.sizing import best_batches
    from nearkv.sweeps.space.study import comma_list

    show(best_batches(replace(study, systems=comma_list(system))), form)


@with_axes
def hardware(
    study: Study,
    vary: Annotated[
        str, typer.Option(metavar="PART.KEY[=LOW:HIGH]", help="The number to choose: csd.count.")
    ],
    target: Annotated[
        list[str],
        typer.Option(metavar="COLUMN>=VALUE", help="What to reach: throughput_tok_s=1.0."),
    ],
    system: Named = "hilos",
    form: Format = "table",
) -> None:
    """Find the least hardware that reaches a target, or what stands in the way.

    Targets: COLUMN=VALUE (the better side), >=, <=, or a ratio as in speedup:flexgen-ssd>=5; all must hold.

    Example: nearkv solve hardware --model opt-66b --context 64k --vary csd.count --target throughput_tok_s=0.5
    """
    from nearkv.sweeps.explore.sizing import least_hardware
    from nearkv.sweeps.space.study import comma_list

    show_reasons(least_hardware(replace(study, systems=comma_list(system)), vary, target), form)


@with_axes
def crossover(
    study: Study,
    along: Annotated[
        str,
        typer.Option(metavar="AXIS=LOW:HIGH", help="context=4k:1M, batch=1:64 or csd.count=1:64."),
    ],
    system: Named = "flexgen-dram,hilos",
    of: Annotated[str, typer.Option(help="The column to compare by.")] = "decode_tok_s",
    form: Format = "table",
) -> None:
    """Find where one system overtakes another along an axis.

    Example: nearkv solve crossover --system flexgen-dram,hilos --model opt-66b --along context=1k:1M
    """
    from nearkv.sweeps.explore.crossover import crossovers
    from nearkv.sweeps.space.study import comma_list

    show_reasons(crossovers(replace(study, systems=comma_list(system)), along, of), form)


@with_axes
def pareto(
    study: Study,
    file_of_study: Annotated[
        str, typer.Argument(metavar="[STUDY.toml]", help="A study, instead of axes.")
    ] = "",
    system: Named = "",
    by: Annotated[
        str, typer.Option(help="Two or three columns apart by commas.")
    ] = "throughput_tok_s,cost_usd",
    where: Annotated[
        list[str], typer.Option(metavar="COLUMN<=VALUE", help="Leave out the rest: step_ms<=200.")
    ] = [],
    columns: Only = "",
    form: Format = "table",
) -> None:
    """Keep the designs of a sweep that no other beats in every column.

    More is better of rates and endurance, less of all else.

    Example: nearkv pareto --system hilos --model opt-66b --batch 1:64:+1 --set csd.count=1:16:+1
    """
    from nearkv.sweeps.evaluation.table import records, select
    from nearkv.sweeps.explore.pareto import pareto as undominated
    from nearkv.sweeps.space.study import comma_list
    from nearkv.sweeps.space.study_files import either

    chosen = either(file_of_study, replace(study, systems=comma_list(system)))
    found = undominated(chosen, by, where)
    sets = (name for name in found if "." in name)
    point = (
        "system",
        "model",
        "platform",
        "batch",
        "context_tok",
        "output_tok",
        *sets,
        "devices",
        "step_ms",
    )
    show(records(select(found, columns)), form, () if columns else (*point, *comma_list(by)))


@with_axes
def sensitivity(
    study: Study,
    system: System,
    of: Annotated[str, typer.Option(help="The column to look at.")] = "throughput_tok_s",
    form: Format = "table",
) -> None:
    """Say which hardware numbers a prediction hangs on, and how far its assumptions reach.

    Example: nearkv sensitivity hilos --model opt-66b --batch 16 --context 64k
    """
    from nearkv.sweeps.explore.sensitivity import sensitivity as swayed

    rows, band = swayed(replace(study, systems=(system,)), of)
    show(rows, form)
    if form == "table":
        typer.echo(
            f"{of} = {band[of]:.4g}; 5 % to 95 % of {band['samples']:,} quasi-random samples over the ranges of "
            f"{band['factors']} assumed or fitted numbers: {band['q05']:.4g} to {band['q95']:.4g}"
            + (f"; {band['unfit']:,} samples did not fit" if band["unfit"] else "")
        )


def subbatch(
    model: Annotated[str, typer.Option(help="A model; see `nearkv models`.")],
    requests: Annotated[
        str, typer.Option(help="Contexts in flight: 2k,3k,4k,5k, a trace, or FILE.csv.")
    ],
    prompts: Annotated[
        str, typer.Option(help="Prompts that wait: 96,1k. A trace brings its own.")
    ] = "",
    platform: Annotated[str, typer.Option(help="A test bed with DIMM-PIM.")] = "dgx-a100-pim",
    placement: Annotated[
        str, typer.Option(help="balanced, or random: each request on one rankset.")
    ] = "balanced",
    time_limit: Annotated[
        float, typer.Option(help="Seconds to search; what is not proved by then is said so.")
    ] = 10.0,
    slack: Annotated[
        float, typer.Option(help="Time prompts may add to the fastest decoding.", min=0.0)
    ] = 0.02,
    seed: Annotated[
        int, typer.Option(help="Of what is drawn: a trace, random ranksets.", min=0)
    ] = 0,
    sets: Set = [],
    form: Format = "table",
) -> None:
    """Split one iteration of L3 into sub-batches and chunks: proven best.

    Beside it stands the paper's greedy (L3 sec. 5.3), by tokens alone and by modelled times.

    Example: nearkv solve subbatch --requests 2k,3k,4k,5k --model gpt-175b --platform dgx-a100-pim --format json
    """
    from nearkv.sweeps.explore.subbatch import SubbatchPoint, brief
    from nearkv.sweeps.explore.subbatch import subbatch as answered
    from nearkv.sweeps.space.study import pairs

    asked = (model, platform, requests, prompts, placement, seed, time_limit, slack)
    rows = answered(SubbatchPoint(*asked, pairs(sets, "--set")))
    show(brief(rows) if form == "table" else rows, form)
