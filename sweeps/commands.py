"""Commands that answer a designer: where tensors go, how large a batch, how much hardware, which designs pay."""

from __future__ import annotations

from typing import Annotated

import typer

from sweeps.options import Format, Set, show

PLACED = (
    *("model", "platform", "context_tok", "output_tok", "status", "gpu_batch", "num_batches", "throughput_tok_s"),
    *("wg", "wc", "wd", "cg", "cc", "cd", "hg", "hc", "binding", "reason"),
)
"""Columns a terminal shows of several placements."""


def add_to(app: typer.Typer, solve: typer.Typer) -> None:
    """Register the commands."""
    solve.command()(placement)


def placement(
    model: Annotated[str, typer.Option(help="Models apart by commas; see `nearkv models`. Or path/config.json.")],
    context: Annotated[str, typer.Option(help="Prompt tokens a sequence: 512 or 256:4k:x2.")] = "512",
    output: Annotated[str, typer.Option(help="Tokens each sequence generates.")] = "32",
    platform: Annotated[str, typer.Option(help="Test beds with a role `offload`, apart by commas.")] = "t4-flexgen",
    sets: Set = [],
    search: Annotated[str, typer.Option(help="full: the proven best block; paper: FlexGen's own walk.")] = "full",
    gpu_batch: Annotated[int | None, typer.Option(help="Sequences on the GPU at once, instead of the best.")] = None,
    num_batches: Annotated[int | None, typer.Option(help="GPU batches of a block, instead of the best.")] = None,
    fix: Annotated[list[str], typer.Option(metavar="SHARE=VALUE", help="A share given: wg=0.2, cc=100%.")] = [],
    form: Format = "table",
) -> None:
    """Place weights, KV cache and activations on GPU, CPU and disk.

    FlexGen's linear program (ICML 2023, sec. 4.3) and the best block, with what each memory is worth.

    Example: nearkv solve placement --model opt-30b --set gpu.memory=16GiB --set host.memory=200GiB
    """
    from sweeps.placements import placements, shares_of
    from sweeps.study import pairs
    from sweeps.table import check_format

    check_format(form)
    given = {"gpu_batch": gpu_batch, "num_batches": num_batches, "fixed": shares_of(pairs(fix, "--fix"))}
    rows = placements(model, context, output, platform, pairs(sets, "--set"), search=search, **given)
    if form == "table" and len(rows) == 1:
        show([{"quantity": name, "value": value} for name, value in rows[0].items()], form)
    else:
        show(rows, form, PLACED)
