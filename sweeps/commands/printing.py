"""Print answers in the format that is asked for, and write them to the file that is named."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from nearkv.hardware.errors import InputError
from nearkv.sweeps.commands.files import encoded, save, save_bytes, text_format
from nearkv.sweeps.commands.messages import NO_ANSWER
from nearkv.sweeps.commands.options import View

if TYPE_CHECKING:
    from nearkv.sweeps.api.tables import Findings
    from nearkv.sweeps.study.study import Study
    from nearkv.sweeps.tables.table import Display, Rows

BRIEF = (
    "system,model,platform,trace,batch,per_round,rate_req_s,users,context_tok,output_tokens,status,"
    "speedup,note,goodput_req_s,users_served,ttft_p99_s,tpot_p99_ms,tpot_p90_ms,"
    "step_ms,short_of,short_gb,step_bottleneck,batch_run,throughput_tok_s,bottleneck,decode_tok_s,alpha,"
    "total_speedup,bottleneck_share,tp,dp,pp,ep,attention,devices,n_attention,n_qkv,n_fc,prefill_s,"
    "energy_j_tok,memory_energy_j_tok,tpot_ms,tok_s_per_kusd,kv_gpu_gb,kv_host_gb,"
    "kv_drive_gb"
)
"""Columns that a terminal shows of design points, the most important first."""
LATENCIES = "ttft_s,tpot_ms,"
"""Columns that come before these where requests arrive, and that --slo limits."""
AS_TABLE = View()
"""Default presentation of a table."""


def print_table(
    table: Findings | Rows,
    view: View = AS_TABLE,
    usual: str = "",
    study: Study | None = None,
    extra: Collection[str] = (),
    title: str = "",
    below: Iterable[str] | None = None,
) -> None:
    """Print a table as asked for, and write it to a file where one is named.

    Where no columns are chosen, all that varies over the design points of the study is shown to
    readers, and so are columns named in `extra`. What chosen columns leave out of a decision
    stands in a sentence below a terminal's table.

    Args:
        table: an answer, or rows that all have the same keys.
        view: what is asked for; where columns are chosen, all formats show those.
        usual: comma-separated columns that readers see where none is chosen, the most important
            first; all where it is empty.
        study: what the table answers, whose provenance stands beside a file.
        extra: columns that readers see even if they do not fit.
        title, below: what stands above and below a terminal's table; an answer's own conclusion
            where nothing is named.

    Raises:
        InputError: more rows than a reader sees, a name that is no column, or a file that cannot
            be written.
        typer.Exit: the only row has no answer.
    """
    from nearkv.sweeps.api.tables import rows_of
    from nearkv.sweeps.commands.below import sentences_below, warn_beyond_windows
    from nearkv.sweeps.commands.columns_shown import display
    from nearkv.sweeps.tables.table import MOST_ROWS_SHOWN

    form, written = view.form or "table", text_format(view.file)
    if usual and study and (study.arrives or study.slo):
        usual = LATENCIES + usual
    is_long = len(table) > MOST_ROWS_SHOWN
    check_readable(len(table), view)
    if view.file and not written:
        save(table, view.written, study, view.file)
    if is_long and form != "json":
        if form == "csv":
            echo(encoded(table, view.columns, "csv").decode())
        return
    rows = rows_of(table)
    if below is None:
        below = getattr(table, "conclusion", ())

    def shown_as(form: str) -> Display:
        shown = display(rows, replace(view, form=form), usual, study, extra)
        return replace(shown, title=title or shown.title)

    if written:
        shown = shown_as(written)
        text = as_text(shown, written, view)
        save_bytes(text.encode(), len(shown.rows), study, view.file)
    shown = shown_as(form)
    sentences = (*below, *sentences_below(rows, shown, view, study, extra))
    echo(as_text(replace(shown, below=sentences), form, view))
    if study:
        warn_beyond_windows(rows, study)
    check_answered(rows)


def check_readable(rows: int, view: View) -> None:
    """Refuse to show readers more rows than they can read.

    Raises:
        InputError: there are more, and no file of rows or format for programs is asked for.
    """
    from nearkv.sweeps.tables.table import MOST_ROWS_SHOWN

    if rows <= MOST_ROWS_SHOWN:
        return
    limit = f"more than {MOST_ROWS_SHOWN:,} rows are too many to read"
    if text_format(view.file):
        raise InputError(f"-o {view.file}: {limit}; write .csv, .jsonl or .parquet")
    if view.form not in ("csv", "json") and not view.file:
        raise InputError(f"{limit}; print them with --format csv or json")


def as_text(shown: Display, form: str, view: View) -> str:
    """A table in a format; a terminal's CSV has the digits of a file's."""
    from nearkv.sweeps.tables.formats import render

    if form == "csv":
        return encoded(shown.rows, "", form).decode() if shown.rows else "\n"
    return render(shown, form, view.caption, view.label)


def check_answered(table: Findings | Rows) -> None:
    """End the command where the only row is infeasible, not modelled or never meets its limits.

    Raises:
        typer.Exit: it is.
    """
    from nearkv.sweeps.api.tables import rows_of

    if len(table) != 1:
        return
    (row,) = rows_of(table)
    fails = row.get("status") in ("infeasible", "not-modelled")
    never = row.get("limit") == "never" or str(row.get("reason")).startswith("never: ")
    if fails or never or row.get("largest_batch") == 0:
        raise typer.Exit(NO_ANSWER)


def echo(text: str) -> None:
    """Print a text that ends in a newline.

    Raises:
        InputError: standard output is closed.
    """
    if sys.stdout is None:
        raise InputError("standard output is closed; send it somewhere")
    typer.echo(text, nl=False)
