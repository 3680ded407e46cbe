"""Columns of a table that readers see: those asked for, or what varies and what matters most."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nearkv.hardware.errors import InputError, a_few
from nearkv.sweeps.commands.options import View
from nearkv.sweeps.evaluate.catalogue import column_rows
from nearkv.sweeps.study.bands import Band
from nearkv.sweeps.study.sizes import comma_list
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.tables.pivot import pivoted
from nearkv.sweeps.tables.table import Display, Row, Rows, check_columns, marked, varying


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
    if not rows:
        return Display(rows)
    names = list(comma_list(view.columns))
    if names:
        _refuse_absent(rows[0], names)
        check_columns(rows[0], names)
    several = study and study.systems and len(rows) > 1
    axes = varying(rows[0], study) if study and several else []
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
    """Refuse a column that other answers have, or a number that is not set, and say when.

    Raises:
        InputError: there is such a name.
    """
    definitions = {column["column"]: column["what"] for column in column_rows()}
    for name in names:
        if name not in row and name in definitions:
            meaning = definitions[name]
            others = f"rows have: {a_few(sorted(row), like=name)}"
            raise InputError(f"--columns {name}: no row here has it ({meaning}); {others}")
        role, dot, _ = name.partition(".")
        if dot and not any(column.startswith(f"{role}.") for column in row):
            stated = "a number of the machine is a column where --set states it"
            raise InputError(f"--columns {name}: no row here has it; {stated}")


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


def ends_of(study: Study) -> tuple[str, str]:
    """Ends of the names of columns that hold the lower and upper end of a band, as `_p05`."""
    low, _, high = Band(float(study.band), study.samples, 0).suffixes
    return f"_{low}", f"_{high}"


def _is_as_usual(row: Row, name: str) -> bool:
    """True if a cell holds the usual value."""
    expected = {"status": "ok", "short_gb": 0, "batch_run": row.get("batch")}
    return name in expected and bool(row[name] == expected[name])
