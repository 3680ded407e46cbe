"""The command line: parse, call, render. No formula and no loop over design points lives here."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from nearkv.sweeps.commands import browse, reviewing
from nearkv.sweeps.commands import designs as commands
from nearkv.sweeps.commands.options import (
    Bed,
    Format,
    Llm,
    Named,
    Only,
    Out,
    Set,
    System,
    Systems,
    axes,
    group,
    show,
    show_columns,
    with_axes,
)
from nearkv.sweeps.commands.plotting import plot
from nearkv.sweeps.commands.reporting import report
from nearkv.sweeps.commands.sweeping import check_output, save, sweep

if TYPE_CHECKING:
    from nearkv.sweeps.evaluation.evaluate import Columns
    from nearkv.sweeps.space.study import Study

app = group(
    "Predict how long-context LLM inference behaves on heterogeneous memory, and pick what is best."
)
solve = group("Find the best value of a knob, with a proof, beside what the paper's rule picks.")
app.add_typer(solve, name="solve", no_args_is_help=True)
app.add_typer(plot, name="plot", no_args_is_help=True)
browse.add_to(app)
commands.add_to(app, solve)
app.command()(sweep)
app.command()(report)
reviewing.add_to(app)

BETA = [
    *(
        "model",
        "platform",
        "batch",
        "context_tok",
        "output_tok",
        "sigma",
        "hop",
        "short_of",
        "step_ms",
    ),
    *("kv_gpu_gb", "kv_host_gb", "kv_drive_gb", "value", "t_cpu_ms", "t_csd_ms", "bound_ms"),
    *("gap", "bound_by", "rule", "rule_loss", "rule_sec54", "rule_sec54_loss"),
]
"""Columns a terminal shows of `solve beta`."""


def show_answer(found: Columns, form: str) -> None:
    """Print a solved knob: the point, the answer, the bound and the paper's rules."""
    at = (
        "system",
        "model",
        "platform",
        "trace",
        "batch",
        "context_tok",
        "output_tok",
        "short_of",
        "value",
        "gap",
        "step_ms",
    )
    show_columns(
        found, form, usual=[n for n in found if n in at or n.startswith(("bound_", "rule"))]
    )


@app.command()
@with_axes
def estimate(
    study: Study,
    system: System,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print where the time goes, line by line.")
    ] = False,
    form: Format = "table",
) -> None:
    """Predict one system on one workload.

    Example: nearkv estimate hilos --model opt-66b --batch 16 --context 64k --set csd.count=16 --explain
    """
    from nearkv.sweeps.evaluation.table import indented, records
    from nearkv.sweeps.explore.explain import explain as explain_point

    found, tree = explain_point(replace(study, systems=(system,)))
    if explain and found["status"][0] != "ok":
        reason, short = found["reason"][0], found["short_gb"][0]
        amount = f" by {short:.4g} GB" if found["status"][0] == "infeasible" else ""
        typer.echo(f"{system} has no time to explain: {reason}{amount}", err=form != "table")
        if form != "table":
            show(records(found), form)
    elif explain:
        show(
            indented(tree, "span") if form == "table" else tree,
            form,
            title=f"{system}: {found['total_s'][0]:.4g} s from the first prompt to the last token",
        )
    elif form == "table":
        show(
            [{"quantity": name, "value": value} for name, value in records(found)[0].items()], form
        )
    else:
        show(records(found), form)


@app.command()
@with_axes
def compare(
    study: Study, systems: Systems, columns: Only = "", form: Format = "table", file: Out = ""
) -> None:
    """Put systems side by side; speed-ups are against the first.

    `speedup` compares decode steps, `total_speedup` whole requests, prefill included.

    Example: nearkv compare flexgen-ssd flexgen-dram hilos --model opt-66b --context 16k:128k:x2
    """
    from nearkv.sweeps.evaluation.evaluate import compare as compared

    chosen = replace(study, systems=tuple(systems))
    if file:
        check_output(file)
    found = compared(chosen)
    if file:
        save(found, chosen, file)
    show_columns(found, form, columns)


@solve.command()
@with_axes
def alpha(study: Study, system: Named = "hilos", form: Format = "table") -> None:
    """Find the best X-cache share: exact, with a lower bound.

    Beside it stand the paper's closed form and its power of two (HILOS sec. 4.2), and what each loses.

    Example: nearkv solve alpha --model opt-66b,qwen2.5-32b --batch 16 --context 32k --platform hilos-a100
    """
    from nearkv.sweeps.explore.knobs import best_knob, why_alpha
    from nearkv.sweeps.space.study import comma_list

    found = best_knob(replace(study, systems=comma_list(system)), "alpha")
    show_answer(found, form)
    if form == "table":
        typer.echo("\n".join(why_alpha(found)))


@solve.command()
@with_axes
def spill(study: Study, system: Named = "hilos", form: Format = "table") -> None:
    """Find the best spill interval c by trying every one.

    Beside it stands the paper's page over entry (HILOS sec. 4.3), and what it loses.

    Example: nearkv solve spill --model opt-30b,opt-66b --context 16k --platform hilos-a100
    """
    from nearkv.sweeps.explore.knobs import best_knob
    from nearkv.sweeps.space.study import comma_list

    show_answer(best_knob(replace(study, systems=comma_list(system)), "interval"), form)


@solve.command()
@with_axes
def beta(study: Study, form: Format = "table") -> None:
    """Find the best split of the KV cache between host DRAM and SmartSSD: exact, with a lower bound.

    Beside it stand eq. 4 and the formula of sec. 5.4 (HillInfer), and what each loses.

    Example: nearkv solve beta --model qwen-7b --batch 8 --context 12k --platform aipc-4090
    """
    from nearkv.sweeps.explore.beta import best_beta, why_beta

    found = best_beta(study)
    show_columns(found, form, usual=BETA)
    if form == "table":
        typer.echo("\n".join(why_beta(found)))


@solve.command()
def mapping(
    model: Llm,
    batch: Annotated[str, typer.Option(help="Sequences served together: 32 or 1:64:x2.")] = "32",
    context: Annotated[
        str, typer.Option(help="Tokens a sequence has in this step: 1k or 256:2048:+256.")
    ] = "1k",
    platform: Bed = "gh-asymmetric",
    sets: Set = [],
    method: Annotated[
        str, typer.Option(help="exact, greedy (Algorithm 1), milp or brute.")
    ] = "exact",
    columns: Only = "",
    form: Format = "table",
) -> None:
    """Find the heads of each sub-layer to put on HBM, for one decode step.

    Beside it stand Algorithm 1 and the paper's majors (H2M2 sec. 3.3, 4.3), and how far they are from the optimum.

    Example: nearkv solve mapping --model gpt3-175b --batch 32 --context 1024 --method exact
    """
    from nearkv.sweeps.explore.mapping import BRIEF as ANSWER
    from nearkv.sweeps.explore.mapping import best_mapping

    found = best_mapping(axes(model, batch, context, "1", platform, sets), method)
    show_columns(found, form, columns, ANSWER)


@solve.command("mapping-trace")
def mapping_trace(
    model: Llm,
    requests: Annotated[str, typer.Option(help="Sequences served together.")] = "32",
    iterations: Annotated[str, typer.Option(help="Decode steps.")] = "128",
    finish: Annotated[
        float, typer.Option(help="Chance that a request finishes in a step and is replaced.")
    ] = 0.02,
    shortest: Annotated[str, typer.Option(help="Tokens of the shortest new request.")] = "1",
    longest: Annotated[str, typer.Option(help="Tokens of the longest request: 2k.")] = "2k",
    seed: Annotated[int, typer.Option(help="Of the random lengths.")] = 0,
    platform: Bed = "gh-asymmetric",
    sets: Set = [],
    form: Format = "table",
) -> None:
    """Map anew in every step while requests finish at random (H2M2 sec. 5.3).

    `speedup_migrating` pays for heads that change sides, `moves` is the share of steps in which some do.

    Example: nearkv solve mapping-trace --model gpt3-175b --iterations 128 --seed 1
    """
    from nearkv.sweeps.explore.dynamic import SYSTEMS, random_trace, replay
    from nearkv.sweeps.space.sizes import size
    from nearkv.sweeps.space.study import one_point

    asked = {
        "requests": requests,
        "iterations": iterations,
        "shortest": shortest,
        "longest": longest,
    }
    counts = {name: int(size(text, f"--{name}")) for name, text in asked.items()}
    trace = random_trace(**counts, finish=finish, seed=seed)
    hw, llm = one_point(
        replace(axes(model, "1", "1", "1", platform, sets), systems=("asymmetric",))
    )
    show_columns(replay(hw, llm, trace, SYSTEMS), form, usual=())


if __name__ == "__main__":
    app()
