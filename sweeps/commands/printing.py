"""Print answers in the format that is wanted."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nearkv.sweeps.evaluation.evaluate import Columns

BRIEF = [
    "system",
    "model",
    "platform",
    "trace",
    "batch",
    "context_tok",
    "output_tok",
    "alpha",
    "devices",
    "n_attention",
    "n_qkv",
    "n_fc",
    "status",
    "short_of",
    "short_gb",
    "note",
    "batch_run",
    "prefill_s",
    "step_ms",
    "decode_tok_s",
    "throughput_tok_s",
    "energy_j_tok",
    "memory_energy_j_tok",
    "tbt_ms",
    "tok_s_per_kusd",
    "kv_gpu_gb",
    "kv_host_gb",
    "kv_drive_gb",
    "speedup",
    "total_speedup",
]
"""Columns that a terminal shows of design points; CSV and JSON hold all."""


def show(
    rows: Sequence[dict[str, Any]], form: str, columns: Iterable[str] = (), title: str = ""
) -> None:
    """Print rows in a format.

    Raises:
        InputError: an unknown format, or a standard output that is closed.
    """
    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.evaluation.table import check_format, render

    if sys.stdout is None:
        raise InputError("standard output is closed; send it somewhere")
    typer.echo(render(rows, check_format(form), columns, title), nl=False)


def show_columns(columns: Columns, form: str, only: str = "", usual: Iterable[str] = BRIEF) -> None:
    """Print a table of design points; where columns are chosen, all formats show those.

    Raises:
        InputError: more rows than anybody reads, or a name that is no column.
    """
    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.evaluation.table import MOST_SHOWN, records, select

    chosen = select(columns, only)
    rows = len(next(iter(chosen.values())))
    if rows <= MOST_SHOWN or form == "json":
        show(records(chosen), form, () if only else usual)
    elif form == "csv":
        from nearkv.sweeps.jobs.arrow import table_of
        from nearkv.sweeps.jobs.encode import ENCODERS

        typer.echo(ENCODERS["csv"](table_of(chosen), True), nl=False)
    else:
        limit = f"more than {MOST_SHOWN:,} rows are too many to read"
        raise InputError(f"{limit}; print them with --format csv or json")


def show_point(row: dict[str, Any], form: str) -> None:
    """Print one row; on a terminal a line a quantity."""
    if form == "table":
        show([{"quantity": name, "value": value} for name, value in row.items()], form)
    else:
        show([row], form)
