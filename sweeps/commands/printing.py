"""Print answers in the format that is wanted."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nearkv.sweeps.evaluation.evaluate import Columns
    from nearkv.sweeps.space.study import Study

BRIEF = [
    "system",
    "model",
    "platform",
    "trace",
    "batch",
    "context_tok",
    "output_tok",
    "status",
    "speedup",
    "note",
    "step_ms",
    "short_of",
    "short_gb",
    "batch_run",
    "throughput_tok_s",
    "bottleneck",
    "decode_tok_s",
    "alpha",
    "total_speedup",
    "bottleneck_share",
    "devices",
    "n_attention",
    "n_qkv",
    "n_fc",
    "prefill_s",
    "energy_j_tok",
    "memory_energy_j_tok",
    "tbt_ms",
    "tok_s_per_kusd",
    "kv_gpu_gb",
    "kv_host_gb",
    "kv_drive_gb",
]
"""Columns that a terminal shows of design points, the most important first."""


def show(
    rows: Sequence[dict[str, Any]],
    form: str,
    columns: Iterable[str] = (),
    title: str = "",
    pinned: Iterable[str] = (),
    below: Iterable[str] = (),
) -> None:
    """Print rows in a format; a long table on a terminal goes through a pager.

    Raises:
        InputError: an unknown format, or a standard output that is closed.
    """
    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.evaluation.table import check_format, render

    if sys.stdout is None:
        raise InputError("standard output is closed; send it somewhere")
    text = render(rows, check_format(form), columns, title, pinned, below=below)
    if form == "table" and sys.stdout.isatty() and _is_long(text):
        _page(text)
    else:
        typer.echo(text, nl=False)


def _page(text: str) -> None:
    """Show a text in the user's pager."""
    import os
    import pydoc

    os.environ.setdefault("LESS", "-FRSX")
    pydoc.pager(text)


def _is_long(text: str) -> bool:
    """Whether a text has more lines than the terminal."""
    import shutil

    return text.count("\n") >= shutil.get_terminal_size().lines


def is_readable(columns: Columns, form: str) -> bool:
    """Whether a table is short enough to be printed in a format."""
    from nearkv.sweeps.evaluation.table import MOST_SHOWN

    rows = len(next(iter(columns.values())))
    return rows <= MOST_SHOWN or form in ("csv", "json")


def show_columns(
    columns: Columns,
    form: str,
    only: str = "",
    usual: Iterable[str] = BRIEF,
    study: Study | None = None,
    requested: Iterable[str] = (),
    below: Iterable[str] = (),
) -> None:
    """Print a table of design points; where columns are chosen, all formats show those.

    Whatever varies over the design points of the study is shown to readers, always, and so are
    columns that were requested.

    Raises:
        InputError: more rows than anybody reads, or a name that is no column.
    """
    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.evaluation.table import MOST_SHOWN, records, select, varying

    swapped = [name for name in columns if name.endswith(".part")]
    axes = varying(columns, study) if study else swapped
    names = list(select(columns, only)) if only else []
    if only and form not in ("csv", "json"):
        names = [*(name for name in axes if name not in names), *names]
    chosen = {name: columns[name] for name in names} if names else columns
    if not names:
        usual = [name for name in usual if _is_telling(columns, name)]
    rows = len(next(iter(columns.values())))
    if rows <= MOST_SHOWN or form == "json":
        show(
            records(chosen),
            form,
            () if only else usual,
            pinned=names or [*axes, *requested],
            below=below,
        )
    elif form == "csv":
        from nearkv.sweeps.jobs.arrow import table_of
        from nearkv.sweeps.jobs.encode import ENCODERS

        typer.echo(ENCODERS["csv"](table_of(chosen), True), nl=False)
    else:
        limit = f"more than {MOST_SHOWN:,} rows are too many to read"
        raise InputError(f"{limit}; print them with --format csv or json")


def _is_telling(columns: Columns, name: str) -> bool:
    """Whether a column says more than that all is as usual."""
    if name not in columns:
        return False
    usual = {"status": "ok", "short_gb": 0.0, "batch_run": columns.get("batch")}
    return name not in usual or bool((columns[name] != usual[name]).any())


def say(sentences: Iterable[str]) -> None:
    """Print sentences below a table, in lines that fit."""
    from nearkv.sweeps.evaluation.terminal import wrapped

    for sentence in sentences:
        typer.echo(wrapped(sentence))


def show_point(row: dict[str, Any], form: str) -> None:
    """Print one row; on a terminal a line per quantity."""
    show([row], form)


def check_shown(columns: str, breakdown: bool, ratios: Sequence[str], method: str) -> None:
    """Refuse columns that are asked for by one option and left out by another.

    Raises:
        InputError: a breakdown or a ratio that --columns does not name, or a breakdown of a queue.
    """
    from nearkv.hardware.errors import InputError

    if breakdown and method == "simulate":
        raise InputError(
            "--breakdown needs --method fluid; a queue has no time per resource"
        )
    if breakdown and columns and "time_s:" not in columns:
        raise InputError(
            "--columns leaves out what --breakdown adds; name time_s:RESOURCE too"
        )
    for name in ratios:
        if columns and f"{name}_ratio" not in columns.split(","):
            raise InputError(f"--columns leaves out --ratio {name}; name {name}_ratio too")
