"""Show answers in the format that is asked for."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from nearkv.sweeps.commands.options import View
from nearkv.sweeps.commands.writing import check_output, save, save_text, text_format

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nearkv.sweeps.evaluate.evaluate import Columns
    from nearkv.sweeps.study.study import Study
    from nearkv.sweeps.tables.layout import Display

BRIEF = [
    "system",
    "model",
    "platform",
    "trace",
    "batch",
    "context_tok",
    "output_tokens",
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
    "tpot_ms",
    "tok_s_per_kusd",
    "kv_gpu_gb",
    "kv_host_gb",
    "kv_drive_gb",
]
"""Columns that a terminal shows of design points, the most important first."""


TABLE = View()
"""How a table is shown by default."""


def is_readable(columns: Columns, form: str) -> bool:
    """Whether a table is short enough to be printed in a format."""
    from nearkv.sweeps.tables.table import MOST_SHOWN

    rows = len(next(iter(columns.values())))
    return rows <= MOST_SHOWN or form in ("csv", "json")


def show_rows(
    rows: list[dict[str, Any]],
    view: View = TABLE,
    usual: Iterable[str] = (),
    title: str = "",
    below: Iterable[str] = (),
    study: Study | None = None,
) -> None:
    """Show rows as asked for, and write them to a file where one is named.

    Args:
        rows: all with the same keys.
        view: what is asked for; where columns are chosen, all formats show those.
        usual: columns that people see where none is chosen.
        title, below: what stands above and below a terminal's table.
        study: what the rows answer, for the provenance beside a file.

    Raises:
        InputError: an unknown column, or a file that cannot be written.
    """
    from nearkv.sweeps.explore.rows import columns_of
    from nearkv.sweeps.study.study import comma_list
    from nearkv.sweeps.tables.layout import Display
    from nearkv.sweeps.tables.table import check_columns

    names = comma_list(view.columns) if rows else ()
    if names:
        check_columns(rows[0], names)
    if view.file:
        check_output(view.file)
    chosen = [{name: row[name] for name in names} for row in rows] if names else rows
    if view.file and not text_format(view.file):
        save(columns_of(chosen), study, view.file)
    if view.pivot and rows:
        _show_pivot(rows, view, names, below, study)
        return
    shown = Display(chosen, () if names else tuple(usual), names, title, tuple(below))
    _show(shown, view, study)


def _show_pivot(
    rows: Sequence[dict[str, Any]],
    view: View,
    axes: Sequence[str],
    below: Iterable[str],
    study: Study | None,
) -> None:
    """Print a table with a column for each value of one of its columns."""
    from nearkv.sweeps.study.study import comma_list
    from nearkv.sweeps.tables.pivot import pivoted

    wide = pivoted(rows, view.pivot, comma_list(view.columns), axes)
    _show(replace(wide, below=tuple(below)), view, study)


def _show(shown: Display, view: View, study: Study | None) -> None:
    """Print a table as asked for, and write it where a file for readers is named.

    Raises:
        InputError: an unknown format, or a standard output that is closed.
    """
    from nearkv.sweeps.tables.formats import render

    form = text_format(view.file)
    if form:
        text = render(shown, form, view.caption, view.label)
        save_text(text, len(shown.rows), study, view.file)
    echo(render(shown, view.form_or("table"), view.caption, view.label))


def echo(text: str) -> None:
    """Print a text that ends in a newline.

    Raises:
        InputError: standard output is closed.
    """
    from nearkv.hardware.errors import InputError

    if sys.stdout is None:
        raise InputError("standard output is closed; send it somewhere")
    typer.echo(text, nl=False)


def show_columns(
    columns: Columns,
    view: View = TABLE,
    usual: Iterable[str] = BRIEF,
    study: Study | None = None,
    requested: Iterable[str] = (),
    below: Iterable[str] = (),
) -> None:
    """Show a table of design points as asked for, and write it to a file where one is named.

    Whatever varies over the design points of the study is shown to readers, always, and so are
    columns that were requested.

    Args:
        columns: the table.
        view: what is asked for; where columns are chosen, all formats show those.
        usual: columns that people see where none is chosen, the most important first.
        study: what the table answers.
        requested: columns that people see whatever fits.
        below: sentences below a terminal's table.

    Raises:
        InputError: more rows than anybody reads, a name that is no column, or a file that cannot
            be written.
    """
    from nearkv.sweeps.tables.layout import Display
    from nearkv.sweeps.tables.table import MOST_SHOWN, records, select, varying

    form = view.form_or("table")
    rows = len(next(iter(columns.values())))
    if view.file:
        check_output(view.file)
        _check_readers_file(view.file, rows)
    if view.file and not text_format(view.file):
        save(select(columns, view.columns), study, view.file)
        if not is_readable(columns, form):
            return
    axes = [name for name in columns if name.endswith(".part")]
    if study and study.systems:
        axes = varying(columns, study)
    if view.pivot and rows <= MOST_SHOWN:
        _show_pivot(records(columns), view, axes, below, study)
        return
    names = list(select(columns, view.columns)) if view.columns else []
    if names and form not in ("csv", "json"):
        names = [*(name for name in axes if name not in names), *names]
    chosen = {name: columns[name] for name in names} if names else columns
    if rows > MOST_SHOWN and form != "json":
        _print_many(chosen, form)
        return
    telling = [name for name in usual if _is_telling(columns, name)]
    pinned = names or [*axes, *requested]
    usual = () if names else tuple(telling)
    _show(Display(records(chosen), usual, pinned, below=tuple(below)), view, study)


def _check_readers_file(file: str, rows: int) -> None:
    """Refuse a file for readers of more rows than anybody reads.

    Raises:
        InputError: there are so many.
    """
    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.tables.table import MOST_SHOWN

    if text_format(file) and rows > MOST_SHOWN:
        limit = f"more than {MOST_SHOWN:,} rows are too many to read"
        raise InputError(f"-o {file}: {limit}; write .csv, .jsonl or .parquet")


def _print_many(columns: Columns, form: str) -> None:
    """Print more rows than anybody reads.

    Raises:
        InputError: in a format for readers.
    """
    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.jobs.arrow import table_of
    from nearkv.sweeps.jobs.encode import ENCODERS
    from nearkv.sweeps.tables.table import MOST_SHOWN

    if form != "csv":
        limit = f"more than {MOST_SHOWN:,} rows are too many to read"
        raise InputError(f"{limit}; print them with --format csv or json")
    typer.echo(ENCODERS["csv"](table_of(columns), True), nl=False)


def busy(columns: Columns) -> list[str]:
    """Columns of seconds by resource, those left out that no design point waits for."""
    from nearkv.sweeps.evaluate.requested import TIMES

    seconds = {
        name: columns[name].astype(float) for name in columns if name.startswith(TIMES)
    }
    return [name for name, values in seconds.items() if (values > 0).any()]


def laid_out(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as a terminal's table, to stand below another."""
    from nearkv.sweeps.tables.layout import Display
    from nearkv.sweeps.tables.terminal import lay_out

    return lay_out(Display(rows)).rstrip()


def _is_telling(columns: Columns, name: str) -> bool:
    """Whether a column says more than that all is as usual."""
    if name not in columns:
        return False
    usual = {"status": "ok", "short_gb": 0.0, "batch_run": columns.get("batch")}
    return name not in usual or bool((columns[name] != usual[name]).any())


def numbers_by_kind(rows: Sequence[dict[str, Any]]) -> str:
    """How many numbers there are, and where they come from."""
    counts = Counter(row["kind"] for row in rows)
    parts = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
    return f"{len(rows)} numbers: {parts}."
