"""The command line: parse, call, render. No formula and no loop over design points lives here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sweeps.run import Columns
    from sweeps.study import Study


class Commands(TyperGroup):
    """A group of commands that turns every failure a user can cause into one sentence."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; bad input exits with 2, Ctrl-C with 130."""
        from hardware.errors import InputError

        try:
            return super().invoke(ctx)
        except InputError as problem:
            typer.echo(f"nearkv: {problem}", err=True)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            typer.echo("nearkv: stopped; no file was changed", err=True)
            raise typer.Exit(130) from None
        except BrokenPipeError:
            import os
            import sys

            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None


def group(about: str) -> typer.Typer:
    """A group of commands; plain help text starts at once and pipes."""
    return typer.Typer(cls=Commands, help=about, rich_markup_mode=None, pretty_exceptions_enable=False)


app = group("Predict how long-context LLM inference behaves on heterogeneous memory, and pick what is best.")
solve = group("Find the best value of a knob, with a proof, and beside it what the paper's rule picks.")
app.add_typer(solve, name="solve", no_args_is_help=True)

System = Annotated[str, typer.Argument(help="A system; see `nearkv systems`.")]
Systems = Annotated[list[str], typer.Argument(help="Systems; the first is what the others are compared with.")]
Model = Annotated[str, typer.Option(help="Models apart by commas; see `nearkv models`. Or path/to/config.json.")]
Batch = Annotated[str, typer.Option(help="Sequences served together: 16 or 1:64:x2.")]
Context = Annotated[str, typer.Option(help="Prompt tokens a sequence: 64k or 8k:128k:x2.")]
Output = Annotated[str, typer.Option(help="Tokens each sequence generates.")]
Platform = Annotated[str, typer.Option(help="Test beds apart by commas; see `nearkv hardware`. Default: the paper's.")]
Set = Annotated[list[str], typer.Option("--set", metavar="PART.KEY=VALUE", help="Replace a number: csd.count=4,8,16.")]
Knobs = Annotated[list[str], typer.Option("--knob", metavar="KNOB=VALUE", help="Value, list, rule or auto: alpha=0.5.")]
Format = Annotated[str, typer.Option("--format", help="table, csv, json, markdown or latex.")]
Out = Annotated[
    str, typer.Option("--output-file", "-o", help="Write CSV here, and where its numbers come from beside it.")
]

BRIEF = (
    *(
        "system",
        "model",
        "platform",
        "batch",
        "context_tok",
        "output_tok",
        "alpha",
        "devices",
        "n_attention",
        "n_qkv",
        "n_fc",
        "limited_by",
        "short_gb",
    ),
    *(
        "batch_run",
        "prefill_s",
        "step_ms",
        "decode_tok_s",
        "throughput_tok_s",
        "energy_j_tok",
        "memory_energy_j_tok",
        "tok_s_per_kusd",
    ),
    *("speedup", "total_speedup"),
)
"""Columns a terminal shows; CSV and JSON hold all."""


def study_of(
    systems: Sequence[str], model: str, batch: str, context: str, output: str, platform: str,
    sets: Sequence[str], knobs: Sequence[str],
) -> Study:  # fmt: skip
    """Collect the common options."""
    from sweeps.study import Study, pairs, split

    return Study(
        tuple(systems),
        split(model),
        batch,
        context,
        output,
        split(platform),
        pairs(sets, "--set"),
        pairs(knobs, "--knob"),
    )


def answer_columns(knob: str, found: Columns) -> list[str]:
    """What a terminal shows of a solved knob: the point, the answer, the paper's rules."""
    point = ("system", "model", "platform", "batch", "context_tok", "output_tok", "limited_by", knob, "step_ms")
    return [name for name in found if name in point or name.startswith(("bound_", "paper_"))]


def show(rows: Sequence[dict[str, Any]], form: str, columns: Sequence[str] = (), title: str = "") -> None:
    """Print rows in the format asked for."""
    from sweeps.table import check_format, render

    typer.echo(render(rows, check_format(form), columns, title), nl=False)


def save(study: Study, tables: Iterable[Columns], file: str, total: int) -> None:
    """Write tables to a CSV with a progress bar, and where every number comes from beside it."""
    from pathlib import Path

    from sweeps.export import provenance, write_csv, write_text
    from sweeps.progress import progress
    from sweeps.study import blocks

    path, origin = Path(file), Path(f"{file}.provenance.json")
    sources = provenance(blocks(study))
    with progress(total) as advance:
        rows = write_csv(path, tables, advance)
    write_text(origin, sources)
    typer.echo(f"{rows:,} rows in {path}; where its numbers come from in {origin}", err=True)


systems = group("List the systems; `systems show NAME` prints one with its knobs.")
models = group("List the models; `models show NAME` prints every number with its source.")
hardware = group("List platforms and parts; `hardware show NAME` prints every number with its source.")
for name, catalogue in (("systems", systems), ("models", models), ("hardware", hardware)):
    app.add_typer(catalogue, name=name, invoke_without_command=True)


@systems.callback()
def list_systems(ctx: typer.Context, form: Format = "table") -> None:
    """List the systems, each with the paper it comes from and its knobs.

    Example: nearkv systems
    """
    from sweeps.catalogue import system_rows

    if ctx.invoked_subcommand is None:
        show(system_rows(), form)


@systems.command("show")
def show_system(name: System, form: Format = "table") -> None:
    """Print a system's knobs: what each does, its range, its default and the paper's rules.

    Example: nearkv systems show hilos
    """
    from sweeps.catalogue import knob_rows, summary_of

    show(knob_rows(name), form, title=summary_of(name))


@models.callback()
def list_models(ctx: typer.Context, form: Format = "table") -> None:
    """List the models with their shapes.

    Example: nearkv models --format markdown
    """
    from sweeps.catalogue import model_rows

    if ctx.invoked_subcommand is None:
        show(model_rows(), form)


@models.command("show")
def show_model(name: str, form: Format = "table") -> None:
    """Print every number of a model with unit, SI value, kind and source.

    Example: nearkv models show mixtral-8x7b
    """
    from sweeps.catalogue import part_numbers

    show(part_numbers(name, "model"), form)


@hardware.callback()
def list_hardware(ctx: typer.Context, form: Format = "table") -> None:
    """List the platforms and the parts they are made of.

    Example: nearkv hardware
    """
    from sweeps.catalogue import hardware_rows

    if ctx.invoked_subcommand is None:
        show(hardware_rows(), form)


@hardware.command("show")
def show_hardware(name: str, set_: Set = [], form: Format = "table") -> None:
    """Print every number of a platform or a part with unit, SI value, kind, source and range.

    Example: nearkv hardware show hilos-a100 --set csd.count=16
    """
    from sweeps.catalogue import hardware_numbers
    from sweeps.study import pairs

    show(hardware_numbers(name, pairs(set_, "--set")), form)


@app.command()
def estimate(
    system: System, model: Model, batch: Batch = "16", context: Context = "32k", output: Output = "64",
    platform: Platform = "", set_: Set = [], knob: Knobs = [], form: Format = "table",
    explain: Annotated[bool, typer.Option("--explain", help="Print where the time goes, line by line.")] = False,
) -> None:  # fmt: skip
    """Predict one system on one workload.

    Example: nearkv estimate hilos --model opt-66b --batch 16 --context 64k --set csd.count=16 --explain
    """
    from sweeps.questions import explain as explain_point
    from sweeps.table import check_format, records

    check_format(form)
    found, tree = explain_point(study_of([system], model, batch, context, output, platform, set_, knob))
    if explain:
        show(tree, form, title=f"{system}, {model}: {found['total_s'][0]:.4g} s in all")
    elif form == "table":
        show([{"quantity": name, "value": value} for name, value in records(found)[0].items()], form)
    else:
        show(records(found), form)


@app.command()
def compare(
    systems: Systems, model: Model, batch: Batch = "16", context: Context = "32k", output: Output = "64",
    platform: Platform = "", set_: Set = [], knob: Knobs = [], form: Format = "table", file: Out = "",
) -> None:  # fmt: skip
    """Put systems side by side; speed-ups are against the first.

    Example: nearkv compare flexgen-ssd flexgen-dram hilos --model opt-66b --context 16k:128k:x2
    """
    from sweeps.run import compare as compared
    from sweeps.table import records

    study = study_of(systems, model, batch, context, output, platform, set_, knob)
    found = compared(study)
    if file:
        save(study, [found], file, len(found["system"]))
    show(records(found), form, BRIEF)


@app.command()
def sweep(
    study_file: Annotated[str, typer.Argument(metavar="[STUDY.toml]", help="A study; or give the axes below.")] = "",
    system: Annotated[str, typer.Option(help="Systems apart by commas.")] = "",
    model: Annotated[str, typer.Option(help="Models apart by commas.")] = "", batch: Batch = "16",
    context: Context = "32k", output: Output = "64", platform: Platform = "", set_: Set = [], knob: Knobs = [],
    form: Format = "csv", file: Out = "",
) -> None:  # fmt: skip
    """Evaluate a grid of design points into CSV, to a file or to standard output.

    Example: nearkv sweep --system hilos --model opt-66b --context 8k:128k:x2 --set csd.count=4,8,16 -o out.csv
    """
    from sweeps.run import chunks, table
    from sweeps.study import blocks, load_study, split
    from sweeps.table import records

    if study_file:
        study = load_study(study_file)
    else:
        study = study_of(split(system), model, batch, context, output, platform, set_, knob)
    if file:
        laid = blocks(study)
        save(study, chunks(laid), file, sum(block.grid.size for block in laid))
    else:
        show(records(table(study)), form, BRIEF)


@solve.command()
def alpha(
    model: Model, system: Annotated[str, typer.Option(help="Systems with this knob.")] = "hilos", batch: Batch = "16",
    context: Context = "32k", output: Output = "64", platform: Platform = "", set_: Set = [], knob: Knobs = [],
    form: Format = "table",
) -> None:  # fmt: skip
    """Find the best X-cache share: exact, with a lower bound, beside the paper's closed form (HILOS sec. 4.2).

    Example: nearkv solve alpha --model opt-66b,qwen2.5-32b --batch 16 --context 32k --platform hilos-a100
    """
    from sweeps.questions import best_knob, why_alpha
    from sweeps.study import split
    from sweeps.table import records

    found = best_knob(study_of(split(system), model, batch, context, output, platform, set_, knob), "alpha")
    show(records(found), form, answer_columns("alpha", found))
    if form == "table":
        typer.echo("\n".join(why_alpha(found)))


@solve.command()
def spill(
    model: Model, system: Annotated[str, typer.Option(help="Systems with this knob.")] = "hilos", batch: Batch = "16",
    context: Context = "32k", output: Output = "64", platform: Platform = "", set_: Set = [], knob: Knobs = [],
    form: Format = "table",
) -> None:  # fmt: skip
    """Find the best spill interval c by trying every one, beside the paper's page / entry (HILOS sec. 4.3).

    Example: nearkv solve spill --model opt-30b,opt-66b --context 16k --platform hilos-a100
    """
    from sweeps.questions import best_knob
    from sweeps.study import split
    from sweeps.table import records

    found = best_knob(study_of(split(system), model, batch, context, output, platform, set_, knob), "interval")
    show(records(found), form, answer_columns("interval", found))


@solve.command()
def mapping(
    model: Model, batch: Batch = "32", context: Annotated[str, typer.Option(help="Tokens attended to.")] = "1k",
    platform: Platform = "gh-asymmetric", set_: Set = [],
    method: Annotated[str, typer.Option(help="exact, greedy (Algorithm 1), milp or brute.")] = "exact",
    form: Format = "table",
) -> None:  # fmt: skip
    """Find the heads of each sub-layer to put on HBM, beside the paper's greedy and majors (H2M2 sec. 3.3, 4.3).

    Example: nearkv solve mapping --model gpt3-175b --batch 32 --context 1024 --method exact
    """
    from sweeps.mapping import BRIEF as ANSWER
    from sweeps.mapping import best_mapping
    from sweeps.table import records

    study = study_of(["asymmetric"], model, batch, context, "1", platform, set_, [])
    show(records(best_mapping(study, method)), form, ANSWER)


@solve.command("mapping-trace")
def mapping_trace(
    model: Annotated[str, typer.Option(help="One model; see `nearkv models`.")],
    requests: Annotated[int, typer.Option(help="Sequences served together.")] = 32,
    iterations: Annotated[int, typer.Option(help="Decode steps.")] = 128,
    finish: Annotated[float, typer.Option(help="Chance that a request finishes in a step and is replaced.")] = 0.02,
    shortest: Annotated[int, typer.Option(help="Tokens of the shortest new request.")] = 1,
    longest: Annotated[int, typer.Option(help="Tokens of the longest request.")] = 2048,
    seed: Annotated[int, typer.Option(help="Of the random lengths.")] = 0,
    platform: Annotated[str, typer.Option(help="One test bed.")] = "gh-asymmetric", set_: Set = [],
    form: Format = "table",
) -> None:  # fmt: skip
    """Map anew in every step while requests finish at random and are replaced (H2M2 sec. 5.3).

    Example: nearkv solve mapping-trace --model gpt3-175b --iterations 128 --seed 1
    """
    from sweeps.dynamic import SYSTEMS, random_trace, replay
    from sweeps.study import one_point
    from sweeps.table import records

    trace = random_trace(requests, iterations, finish, shortest, longest, seed)
    hw, llm = one_point(study_of(["asymmetric"], model, "1", "1", "1", platform, set_, []))
    show(records(replay(hw, llm, trace, SYSTEMS)), form)


if __name__ == "__main__":
    app()
