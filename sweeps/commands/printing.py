"""Print answers in the format that is asked for, and write them to the file that is named."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearkv.hardware.errors import InputError
from nearkv.sweeps.commands.options import View
from nearkv.sweeps.study.sizes import comma_list

if TYPE_CHECKING:
    import pandas as pd

    from nearkv.sweeps.study.study import Study
    from nearkv.sweeps.tables.table import Display, Row, Rows


BRIEF = (
    "system,model,platform,trace,batch,rate_req_s,users,context_tok,output_tokens,status,"
    "speedup,note,goodput_req_s,users_served,ttft_p99_s,tpot_p99_ms,tpot_p90_ms,"
    "step_ms,short_of,short_gb,step_bottleneck,batch_run,throughput_tok_s,bottleneck,decode_tok_s,alpha,"
    "total_speedup,bottleneck_share,tp,dp,pp,ep,attention,devices,n_attention,n_qkv,n_fc,prefill_s,"
    "energy_j_tok,memory_energy_j_tok,tpot_ms,tok_s_per_kusd,kv_gpu_gb,kv_host_gb,"
    "kv_drive_gb"
)
"""Columns that a terminal shows of design points, the most important first."""
LATENCIES = "ttft_s,tpot_ms,"
"""Columns that come before these where requests arrive."""

QUIET_SECONDS = 2.0
"""Time after which a terminal says that a command is at work [s]."""
OF_THEIR_OWN = (["design"], ["pareto"], ["sweep"])
"""Commands that show how far they are."""
NO_ANSWER = 3
"""Exit code of a command whose only row has no answer, so that scripts see it."""

A_MINUTE = {"ttft_s": 60.0, "tpot_ms": 60e3}
"""A minute to a first token, or to any other, in the unit of its column."""
SHORTAGE = {"reason", "short_of"}
"""Columns that say why a design does not fit."""
AS_TABLE = View()
"""Default presentation of a table."""

GIVES_MORE = {
    "gpu": "; gpu.memory, gpu.count and engine.paged_memory give more",
    "host": "; host.memory and host.usable give more",
    "both": "; gpu.pool gives more, or lpddr.memory and lpddr.count",
}
"""Memory that is short -> the numbers that decide what it holds."""


def print_table(
    table: pd.DataFrame | Rows,
    view: View = AS_TABLE,
    usual: str = "",
    study: Study | None = None,
    extra: Iterable[str] = (),
    title: str = "",
    below: Iterable[str] | None = None,
) -> None:
    """Print a table as asked for, and write it to a file where one is named.

    Where no columns are chosen, all that varies over the design points of the study is shown to
    readers, and so are columns named in `extra`. What chosen columns leave out of a decision
    stands in a sentence below a terminal's table.

    Args:
        table: rows, as a DataFrame or as dictionaries that all have the same keys.
        view: what is asked for; where columns are chosen, all formats show those.
        usual: comma-separated columns that readers see where none is chosen, the most important
            first; all where it is empty.
        study: what the table answers, whose provenance stands beside a file.
        extra: columns that readers see even if they do not fit.
        title, below: what stands above and below a terminal's table; a DataFrame's own conclusion
            where nothing is named.

    Raises:
        InputError: more rows than a reader sees, a name that is no column, or a file that cannot
            be written.
        typer.Exit: the only row has no answer.
    """
    from nearkv.sweeps.api.tables import rows_of
    from nearkv.sweeps.tables.table import MOST_ROWS_SHOWN

    form, written = view.form or "table", text_format(view.file)
    if usual and study and study.arrives:
        usual = LATENCIES + usual
    if view.file:
        check_output(view.file)
    is_long = len(table) > MOST_ROWS_SHOWN
    if is_long:
        _check_long(view, form)
    if view.file and not written:
        save(table, view.written, study, view.file)
    if is_long and form != "json":
        if form == "csv":
            echo(encoded(table, view.columns, "csv").decode())
        return
    rows = rows_of(table)
    if below is None:
        below = getattr(table, "attrs", {}).get("conclusion", ())

    def shown_as(form: str) -> Display:
        shown = display(rows, replace(view, form=form), usual, study, extra)
        return replace(shown, title=title or shown.title)

    if written:
        shown = shown_as(written)
        text = text_of(shown, written, view)
        save_bytes(text.encode(), len(shown.rows), study, view.file)
    shown = shown_as(form)
    prices = prices_of(study, [*comma_list(view.columns), *extra])
    coverage = coverage_of(study, shown.names)
    told = (
        *below,
        *left_out(rows, shown, view),
        *coverage,
        *prices,
        *papers_settings(study),
    )
    echo(text_of(replace(shown, below=told), form, view))
    check_answered(rows)


def _check_long(view: View, form: str) -> None:
    """Refuse to show readers more rows than they can read."""
    from nearkv.sweeps.tables.table import MOST_ROWS_SHOWN

    limit = f"more than {MOST_ROWS_SHOWN:,} rows are too many to read"
    if text_format(view.file):
        raise InputError(f"-o {view.file}: {limit}; write .csv, .jsonl or .parquet")
    if form not in ("csv", "json") and not view.file:
        raise InputError(f"{limit}; print them with --format csv or json")


def text_of(shown: Display, form: str, view: View) -> str:
    """A table in a format; a terminal's CSV has the digits of a file's."""
    from nearkv.sweeps.tables.formats import render

    if form == "csv":
        return encoded(shown.rows, "", form).decode() if shown.rows else "\n"
    return render(shown, form, view.caption, view.label)


def prices_of(study: Study | None, names: Collection[str]) -> list[str]:
    """Say what the prices of a study cover, where columns that were asked for show them."""
    from nearkv.costmodel.model.metrics import is_of_costs
    from nearkv.sweeps.evaluate.prices import price_sentences
    from nearkv.sweeps.study.study import blocks

    if study is None or not study.systems or not is_of_costs(names):
        return []
    return price_sentences(blocks(study))


def coverage_of(study: Study | None, names: Collection[str]) -> list[str]:
    """Say how many measured runs lie in bands as those of the columns that are shown."""
    if study is None or not study.band:
        return []
    from nearkv.sweeps.study.study import blocks
    from nearkv.sweeps.uncertainty.made_of import coverage_told
    from nearkv.sweeps.uncertainty.model_error import RATIO, VALUE

    ends = {name for name in names if name.endswith(ends_of(study))}
    ratios = {name for name in ends if "speedup_" in name or "_ratio_" in name}
    kinds = {VALUE: ends - ratios, RATIO: ratios}
    shown = [kind for kind, columns in kinds.items() if columns]
    return [coverage_told(blocks(study), shown)] if shown else []


def ends_of(study: Study) -> tuple[str, str]:
    """Ends of the names of columns that hold the lower and upper end of a band, as `_p05`."""
    from nearkv.sweeps.study.bands import Band

    low, _, high = Band(float(study.band), study.samples, 0).suffixes
    return f"_{low}", f"_{high}"


def with_ends(names: Sequence[str], rows: Rows, study: Study | None) -> list[str]:
    """Names of columns, and behind each time, rate and ratio the ends of its band."""
    if study is None or not study.band:
        return list(names)
    from nearkv.sweeps.uncertainty.model_error import error_power

    shown: dict[str, None] = {}
    for name in names:
        ends = [f"{name}{end}" for end in ends_of(study)]
        errs = error_power(name) != 0 or name.endswith(("speedup", "_ratio"))
        has_ends = errs and any(row.get(ends[0]) is not None for row in rows)
        shown |= dict.fromkeys([name, *ends] if has_ends else [name])
    return list(shown)


def check_answered(table: pd.DataFrame | Rows) -> None:
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


def display(
    rows: Rows,
    view: View,
    usual: str,
    study: Study | None,
    extra: Iterable[str],
) -> Display:
    """The columns of a table that readers see; the arguments are those of `print_table`.

    Raises:
        InputError: a name that is no column, or a pivot of what is none.
    """
    from nearkv.sweeps.tables.pivot import pivoted
    from nearkv.sweeps.tables.table import Display, check_columns, marked

    if not rows:
        return Display(rows)
    names = list(comma_list(view.columns))
    if names:
        _refuse_absent(rows[0], names)
        check_columns(rows[0], names)
    axes = axes_of(rows, study)
    for_readers = view.form not in ("csv", "json")
    if for_readers:
        rows = marked(rows, names)
    if view.pivot:
        return pivoted(rows, view.pivot, names, axes)
    if names and for_readers:
        names = with_ends(names, rows, study)
        # rows that differ in a column that is not shown would look alike
        names = [*(axis for axis in axes if axis not in names), *names]
    if names:
        return Display([{name: row[name] for name in names} for row in rows], (), names)
    telling = [
        name
        for name in dict.fromkeys(comma_list(usual))
        if name in rows[0] and not all(_is_as_usual(row, name) for row in rows)
    ]
    return Display(rows, with_ends(telling, rows, study), [*axes, *extra])


def _refuse_absent(row: Row, names: Sequence[str]) -> None:
    """Refuse a column that other answers have, and say when one does.

    Raises:
        InputError: there is such a name.
    """
    from nearkv.sweeps.evaluate.catalogue import column_rows

    definitions = {column["column"]: column["what"] for column in column_rows()}
    for name in names:
        if name not in row and name in definitions:
            meaning = definitions[name]
            raise InputError(f"--columns {name}: no row here has it ({meaning})")


def axes_of(rows: Rows, study: Study | None) -> list[str]:
    """Columns that the study varies, where a table has several rows."""
    from nearkv.sweeps.tables.table import varying

    return varying(rows[0], study) if study and study.systems and len(rows) > 1 else []


def left_out(rows: Rows, shown: Display, view: View) -> list[str]:
    """Sentences on what a table leaves out and a reader must know: machines, and why no answer.

    Args:
        rows: with all columns.
        shown: what a reader sees of them.
        view: as of `print_table`.
    """
    if not rows:
        return []
    from nearkv.sweeps.tables.unequal import unequal

    sentences = []
    differ = len({row.get("platform") for row in rows}) > 1
    names_no_machine = bool(view.columns) and differ and "platform" not in shown.names
    if view.pivot or names_no_machine:
        sentences += unequal(rows, shown.names)
    why = [*_unanswered(rows, shown.names), *_blanks(rows, view), *_slow(rows, view)]
    short = next((row for row in rows if row.get("status") == "infeasible"), {})
    if "system" in short:
        asked = f"nearkv estimate {short['system']} ... --footprint"
        more = GIVES_MORE.get(str(short.get("short_of")), "")
        why.append(f"{asked} lists what lies in each memory{more}.")
    return [*sentences, *dict.fromkeys(why)]


def _unanswered(rows: Rows, shown: Collection[str]) -> list[str]:
    """Sentences on rows without an answer, where the columns that are shown do not say why."""
    sentences = []
    for row in rows:
        name, status = row.get("system", "It"), row.get("status")
        reason, short_of = row.get("reason"), row.get("short_of")
        if status == "not-modelled" and reason and "reason" not in shown:
            sentences.append(f"n/m: {name}: {reason}.")
        if status == "infeasible" and short_of and not SHORTAGE & {*shown}:
            sentences.append(f"OOM: {name} lacks memory in {short_of}.")
    return sentences


OF_POWER = {"power_w", "energy_j_tok", "decode_energy_j_tok"}
"""Columns that need the power of every device that a system owns."""
NO_POWER = (
    "a device that it owns states no idle_power, or no kernel_power_... of its kernel"
)
"""Reason why a row that runs has none of these."""


def _blanks(rows: Rows, view: View) -> list[str]:
    """Sentences on systems that run and have no number in a column that was asked for."""
    from nearkv.costmodel.model.metrics import COLUMNS, COSTS
    from nearkv.sweeps.tables.table import counted

    sentences = []
    for name in comma_list(view.columns):
        if name not in COLUMNS or name in COSTS:
            continue
        runs = [row for row in rows if row.get("status") == "ok"]
        counts = Counter(str(row.get("system")) for row in runs if row[name] is None)
        for system, count in counts.items():
            where = f"at {counted(count, 'design point')}"
            why = NO_POWER if name in OF_POWER else f"`nearkv columns show {name}` says why"
            sentences.append(f"-: {system} runs {where} without {name}; {why}.")
    return sentences


def _slow(rows: Rows, view: View) -> list[str]:
    """Sentences on answers that nobody would wait for, where machines to buy are compared."""
    import numpy as np

    from nearkv.costmodel.model.metrics import is_of_costs
    from nearkv.sweeps.tables.table import counted, reach

    if "server" not in rows[0] and not is_of_costs(comma_list(view.columns)):
        return []
    sentences = []
    for name, minute in A_MINUTE.items():
        values = [row.get(name) for row in rows if row.get("status", "ok") == "ok"]
        known = np.array(values, float)
        slow = known[known > minute]
        if len(slow):
            of = f"{len(slow)} of {counted(len(rows), 'row')}"
            sentences.append(f"slow: {name} {reach(slow)} in {of}, more than a minute.")
    return sentences


def _is_as_usual(row: Row, name: str) -> bool:
    """True if a cell holds the usual value."""
    expected = {"status": "ok", "short_gb": 0, "batch_run": row.get("batch")}
    return name in expected and bool(row[name] == expected[name])


def echo(text: str) -> None:
    """Print a text that ends in a newline.

    Raises:
        InputError: standard output is closed.
    """
    if sys.stdout is None:
        raise InputError("standard output is closed; send it somewhere")
    typer.echo(text, nl=False)


def counted_by(rows: Rows, column: str, noun: str) -> str:
    """Count the rows, and those of each value of a column, the most first."""
    from nearkv.sweeps.tables.table import counted

    counts = Counter(row[column] for row in rows)
    parts = ", ".join(f"{count} {value}" for value, count in counts.most_common())
    return f"{counted(len(rows), noun)}: {parts}."


# --- files ----------------------------------------------------------------------------------------


def check_output(file: str) -> None:
    """Refuse a file that a table could not be written to.

    Raises:
        InputError: no form is known by that name, or something is in the way.
    """
    from nearkv.sweeps.jobs.outputs import check_place

    check_place(Path(file))


def text_format(file: str) -> str:
    """The format of a file for readers; empty for files of rows, of which all are written."""
    if not file:
        return ""
    from nearkv.sweeps.jobs.outputs import TEXTS

    return TEXTS.get(Path(file).suffix, "")


def save(table: pd.DataFrame | Rows, only: str, study: Study | None, file: str) -> None:
    """Write the columns of a comma-separated list, and beside them where every number comes from.

    Raises:
        InputError: a name that is no column, or a file that cannot be written.
    """
    from nearkv.sweeps.jobs.outputs import form_of

    save_bytes(encoded(table, only, form_of(Path(file))), len(table), study, file)


def encoded(table: pd.DataFrame | Rows, only: str, form: str) -> bytes:
    """The columns of a comma-separated list as a program reads them.

    Raises:
        InputError: a name that is no column.
    """
    import pandas as pd

    from nearkv.sweeps.jobs.formats import encoded, table_of
    from nearkv.sweeps.tables.table import check_columns

    frame, names = pd.DataFrame(table), list(comma_list(only))
    check_columns(frame, names)
    return encoded(table_of(frame[names] if names else frame), form)


def save_bytes(content: bytes, rows: int, study: Study | None, file: str) -> None:
    """Write a table to a file, and beside it where every number comes from."""
    from nearkv.sweeps.jobs.outputs import write_content

    tell(write_content(content, rows, Path(file), study))


def printable(line: str) -> str:
    """The line without characters that move a terminal's cursor, as a file's name may hold."""
    return "".join(letter if letter.isprintable() else " " for letter in line)


def tell(line: str) -> None:
    """Print a line on standard error, beside the output; a terminal's lines wrap at words."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    with suppress(OSError):
        console.print(printable(line), soft_wrap=not console.is_terminal, crop=False)


@contextmanager
def telling_time(words: Sequence[str]) -> Iterator[None]:
    """Say on a terminal after two seconds, and then less and less often, that a command works.

    Args:
        words: of the command; of those that show how far they are nothing is said.
    """
    import threading

    over, name = threading.Event(), " ".join(words[:2])

    def tell_time() -> None:
        waited, more = 0.0, QUIET_SECONDS
        while not over.wait(more):
            waited += more
            more = waited
            tell(f"{name}: {waited:.0f} s so far")

    if sys.stderr is None or not sys.stderr.isatty() or words[:1] in OF_THEIR_OWN:
        yield
        return
    thread = threading.Thread(target=tell_time, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def ask(question: str) -> bool:
    """Ask the user; where there is no terminal to ask on, the answer is no."""
    try:
        return sys.stdin.isatty() and typer.confirm(question, err=True)
    except typer.Abort:
        raise KeyboardInterrupt from None


def write_toml(name: str, text_of: Callable[[str], str], option: str) -> None:
    """Write NAME.toml, and say which option takes it.

    Args:
        name: of the file, with or without its ending.
        text_of: the text, from the name without its ending.
        option: what takes the file.

    Raises:
        InputError: the file exists, or cannot be written.
    """
    file = Path(f"{name.removesuffix('.toml')}.toml")
    write_new(file, text_of(file.stem))
    typer.echo(printable(f"wrote {file}; use it as {option} {file}"))


def check_new(file: Path) -> None:
    """Refuse a file that exists, or cannot be written.

    Raises:
        InputError: it is such a file.
    """
    import os

    from nearkv.sweeps.evaluate.provenance import place_of

    place_of(file)
    if os.path.lexists(file):
        raise InputError(f"{file}: cannot be written (File exists); choose another name")


def write_new(file: Path, text: str) -> None:
    """Write a file that does not exist yet.

    Raises:
        InputError: it does, or cannot be written.
    """
    from nearkv.sweeps.evaluate.provenance import write_text

    check_new(file)
    write_text(file, text)


def report_problems(file: str, sentences: Sequence[str]) -> None:
    """Print what is wrong with a file of the user's; exit 1 where something is."""
    for sentence in sentences or [f"{file}: nothing is wrong"]:
        typer.echo(printable(sentence))
    if sentences:
        raise typer.Exit(1)


# --- knobs that are solved, where papers set them -------------------------------------------------


MOST_ROWS_TOLD = 64
"""Rows of a table below which the sentence stands; more are read by a program."""
TOLD_BEYOND = 0.1
"""Difference of whole requests from which on their ratio is told [1]."""


def tell_solved(
    study: Study,
    view: View,
    table: pd.DataFrame | Rows,
    published: Callable[[Study], pd.DataFrame | Rows] | None = None,
) -> None:
    """Print on a terminal that knobs are solved which a paper sets, and what its settings take.

    Args:
        study: what was asked.
        view: how its answer is shown.
        table: the answer.
        published: answers a study in the form of `table`; without it, no times are compared.
    """
    from nearkv.sweeps.api.tables import rows_of

    is_read = view.is_for_people and not view.file and sys.stdout.isatty()
    is_solved = not study.published and _unstated(study)
    if not is_read or len(table) > MOST_ROWS_TOLD or not is_solved:
        return
    sentence = "knobs solved; --published for the papers' settings"
    if published is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are those of the first answer
            papers = published(study.but(published=True, band=None))
        sentence += "".join(_times_as_long(rows_of(table), rows_of(papers)))
    print_table([], title=f"{sentence}.")


def papers_settings(study: Study | None) -> list[str]:
    """Name the knobs that --published set, and to which values or rules."""
    if study is None or not study.published:
        return []
    settings = _unstated(study)
    listed = "; ".join(f"{name} {' '.join(knobs)}" for name, knobs in settings.items())
    return [f"--published: {listed or 'no knob is set by a paper'}."]


def _unstated(study: Study) -> dict[str, list[str]]:
    """Knobs that a system's paper sets and the study does not, as KNOB=SETTING, by system."""
    from nearkv.costmodel.model.registry import find_system

    stated = {*study.knobs, *study.zipped}
    settings: dict[str, list[str]] = {}
    for system in map(find_system, study.systems):
        for name, knob in system.knobs.items():
            if knob.published and name not in stated:
                setting = f"{name}={knob.published}"
                settings.setdefault(system.name, []).append(setting)
    return settings


def _times_as_long(rows: Rows, papers: Rows) -> list[str]:
    """Ratios of whole requests by papers' settings over solved ones, where they are notable."""
    ratios: dict[str, list[float]] = {}
    short: dict[str, str] = {}
    for row, paper in zip(rows, papers, strict=True):
        system = row.get("system", "")
        if row.get("total_s") and paper.get("total_s"):
            ratios.setdefault(system, []).append(paper["total_s"] / row["total_s"])
        elif row.get("total_s"):
            short[system] = f"; {system} does not always fit with them"
    told = []
    for system, of_system in ratios.items():
        least, most = min(of_system), max(of_system)
        if most > 1 + TOLD_BEYOND or least < 1 - TOLD_BEYOND:
            ends = dict.fromkeys(f"{ratio:.3g}" for ratio in (least, most))
            told.append(f"; {system} takes {' to '.join(ends)} times as long with them")
    return [*told, *short.values()]
