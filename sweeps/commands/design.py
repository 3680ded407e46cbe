"""The command `nearkv design`: which machine to build or buy within a budget."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from nearkv.hardware.errors import InputError
from nearkv.sweeps.commands import options
from nearkv.sweeps.commands.files import check_new, check_output, save, write_new
from nearkv.sweeps.commands.messages import tell
from nearkv.sweeps.commands.options import argument, flag, option
from nearkv.sweeps.commands.printing import print_table
from nearkv.sweeps.study.sizes import comma_list

MACHINE_COLUMNS = (
    "server,origin,cost_usd,ttft_s,tpot_ms,gpus,bits,usd_mtok,throughput_tok_s,hosts,hbms,lpddrs,dram_gib,ssds,csds,"
    "batch_run,power_w,bottleneck"
)
"""Columns that a terminal shows, the most important first."""
BREAK_EVEN_COLUMNS = (
    "budget_usd,context_tok,batch,owner_wins,at,at_p05,at_p95,unit,usd_per_gb,usd_per_gb_p05,"
    "usd_per_gb_p95,factor,part,owner,rival"
)
"""Columns of a number at which cells change hands."""
CELL_COLUMNS = "budget_usd,context_tok,batch,technology"
"""Columns that come before these where workloads are a grid."""


@options.with_options(
    options.axes("context", "output_tokens", "knobs", "plugins"),
    options.View,
)
def design(
    line: typer.Context,
    systems: Annotated[
        str,
        argument(
            "SYSTEMS|STUDY.toml",
            "Comma-separated systems, all by default, or a study file with a model and sizes.",
        ),
    ] = "",
    budget: Annotated[
        list[str],
        option(
            "LIMITS",
            "Most that the machine may cost, draw and fill: 100kUSD, 30USD/h, 10kW, 8U; several "
            "prices make a grid.",
        ),
    ] = [],
    classes: Annotated[
        list[str],
        option(
            "NAME:CONTEXT:OUTPUT:RATE",
            "A class of requests, its rate a second, that as many machines serve as it takes: "
            "chat:4k:256:2.5.",
            "--class",
        ),
    ] = [],
    slo: Annotated[
        list[str], option("LIMITS", "Limits that columns must keep: tpot_ms=66,ttft_s=10.")
    ] = [],
    minimize: Annotated[
        str, option("COLUMN", "Make this column least; by default cost_usd.")
    ] = "",
    maximize: Annotated[
        str,
        option(
            "COLUMN", "Make this column highest; by default of a grid throughput_tok_s."
        ),
    ] = "",
    pareto: Annotated[
        str,
        option(
            "COLUMNS",
            "Keep the machines that no other beats in all of two or three columns: "
            "cost_usd,tpot_ms.",
        ),
    ] = "",
    users: Annotated[
        str,
        option(
            "NUMBERS",
            "Sequences that start together and must all be held at once, in place of --batch: 16.",
        ),
    ] = "",
    batch: Annotated[
        str,
        option(
            "SIZES",
            "Sequences that start together, all at once or in the rounds that are best: 16, 8,64.",
        ),
    ] = "16",
    per_round: Annotated[
        str,
        option(
            "SIZES",
            "Try rounds of at most so many sequences of --batch; by default of all powers of two: "
            "4,16.",
        ),
    ] = "",
    best_per: Annotated[
        str,
        option(
            "COLUMN",
            "Keep in each cell of a grid the best machine of each system, or technology.",
        ),
    ] = "",
    borders: Annotated[
        str,
        option(
            "FILE.csv", "Write between which sizes of a grid the best technology changes."
        ),
    ] = "",
    break_even: Annotated[
        str,
        option(
            "PART.NUMBER",
            "Find the value at which systems with such a part win or lose a cell: lpddr.price.",
        ),
    ] = "",
    servers: Annotated[
        str,
        option(
            "SERVERS",
            "Servers to build, or path/file.toml; all of the catalogue by default.",
            "--server",
        ),
    ] = "",
    prices: Annotated[
        str,
        option("FILE.csv", "Prices of your own: part,usd[,low,high,basis,date,source]."),
    ] = "",
    years: Annotated[
        float | None,
        option("NUMBER", "Years over which a purchase is paid for; 4 by default."),
    ] = None,
    usd_kwh: Annotated[
        float | None, option("USD", "Price of electricity; 0.1 by default.")
    ] = None,
    pue: Annotated[
        float | None,
        option("FACTOR", "Power of the building over the machine's; 1.4 by default."),
    ] = None,
    utilisation: Annotated[
        float | None, option("SHARE", "Share of the hours with requests; 0.7 by default.")
    ] = None,
    rent: Annotated[
        bool,
        flag("--rent", "Rank rented machines, too, by usd_hour or usd_mtok."),
    ] = False,
    seconds: Annotated[
        float, option("SECONDS", "Stop after these, with the best so far.")
    ] = math.inf,
    machine_out: Annotated[
        str,
        option("FILE.toml", "Write the machine of the first row, which --platform reads."),
    ] = "",
    model: options.OneModel = "",
    sets: Annotated[
        list[str],
        option(
            "precision.KEY=VALUE",
            "Bits of elements, by default those that a server's platform states: "
            "precision.weight=q4_k_m, precision.kv=fp8.",
            "--set",
        ),
    ] = [],
    installable: Annotated[
        bool,
        flag(
            "--installable",
            "Only engines, which can be installed, on servers that are sold.",
        ),
    ] = False,
    band: Annotated[
        float | None,
        option(
            "PERCENT",
            "Draw all uncertain numbers, and say how often a machine is the best; of --break-even "
            "say between which values this share of the draws lies: 90.",
        ),
    ] = None,
    resume: Annotated[
        bool, flag("--resume", "Go on with a grid whose -o FILE was begun, and stopped.")
    ] = False,
) -> None:
    """Find the machine that serves a workload best within a budget, of all that may be built.

    Several contexts, batches or prices make a grid, with a row for each cell and system.

    Example: nearkv design --model gpt-oss-120b --context 64k --output-tokens 1k --users 16 \
--slo tpot_ms=66 --budget 100kUSD
    """
    from nearkv.sweeps.api import design
    from nearkv.sweeps.api.tables import Findings, findings_of
    from nearkv.sweeps.explore.design.atlas import NO_BORDERS

    view = options.view_of(line)
    question = _question(line)
    if machine_out:
        check_new(Path(machine_out))
    if borders:
        _check_borders(borders, view.file)
    table = design.design(**question, report=_progress(), file=view.file)
    is_grid = "borders" in table.attrs
    if borders:
        save(Findings(table.attrs["borders"] or NO_BORDERS), "", None, borders)
    machine, command = table.attrs["machine"][0], table.attrs["command"][0]
    if machine_out and not machine:
        raise InputError(
            "--machine-out: the first row has no machine; ask for another cell"
        )
    if machine_out:
        write_new(Path(machine_out), machine)
    below = table.attrs["conclusion"]
    if machine:
        after = "" if machine_out else " after --machine-out best.toml"
        written = f"{command} {machine_out or 'best.toml'}"
        below = [*below, f"The first row is what `{written}` prints{after}."]
    made_best = minimize or maximize or pareto or "cost_usd"
    usual = f"class,nodes,busy,req_s,system,{made_best},{MACHINE_COLUMNS}"
    if break_even:
        usual = BREAK_EVEN_COLUMNS
    elif is_grid:
        made_best = minimize or maximize or "throughput_tok_s"
        usual = f"{CELL_COLUMNS},system,{made_best},best_share,reason,{MACHINE_COLUMNS}"
    print_table(findings_of(table), view, usual, title=table.attrs["asked"], below=below)
    if table.attrs["interrupted"]:
        raise KeyboardInterrupt("stopped; the answer is the best of what was tried")


def _check_borders(borders: str, file: str) -> None:
    """Refuse a file of borders that cannot be written, or that the table would replace.

    Raises:
        InputError: it is one.
    """
    check_output(borders)
    if file and Path(borders).resolve() == Path(file).resolve():
        raise InputError(f"--borders {borders}: -o writes that file, too; choose another")


def _question(line: typer.Context) -> dict[str, Any]:
    """Arguments of `nearkv.design`, from the words of the command.

    Raises:
        InputError: users beside a batch, nothing to resume, or a study that cannot be read.
    """
    from nearkv.hardware.server import sold_servers
    from nearkv.sweeps.study.study_files import load_study

    stated, arguments = options.stated_words(line), options.arguments(line)
    arguments["borders"] = bool(arguments["borders"])
    if arguments["resume"] and not line.params["file"]:
        begun = "give the -o FILE that it was begun with"
        raise InputError(f"--resume goes on with a grid; {begun}")
    if arguments["users"] and "batch" in stated:
        raise InputError("--users is the batch to serve at once; leave out --batch")
    del arguments["machine_out"]
    arguments["plugin"] = arguments.pop("plugins")
    terms = {
        name: arguments.pop(name) for name in ("years", "usd_kwh", "pue", "utilisation")
    }
    arguments["terms"] = {name: value for name, value in terms.items() if value is not None}
    if arguments.pop("installable"):
        arguments["servers"] = sold_servers(comma_list(arguments["servers"]))
    is_study = arguments["systems"].endswith(".toml")
    if is_study:
        study = load_study(arguments["systems"], arguments.pop("plugin"))
        arguments["systems"] = study.but(systems=options.chosen_of(line, study.systems))
    else:
        named = comma_list(arguments["systems"])
        arguments["systems"] = options.chosen_of(line, named)
    if is_study or arguments["classes"]:
        for name in {"batch", "context", "output_tokens", "knobs"} - stated.keys():
            del arguments[name]
    return {name: value for name, value in arguments.items() if value or name in stated}


def _progress() -> Callable[[int, int], None]:
    """Report on a terminal how far a search is, from its second second on."""
    start = time.monotonic()

    def report(done: int, of_all: int) -> None:
        if sys.stderr.isatty() and time.monotonic() - start > 1:
            tell(f"{done:,} of {of_all:,} done")

    return report
