"""How a study file says that its figure is drawn: its table `[figure]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from nearkv.hardware.errors import InputError, unknown
from nearkv.sweeps.study.sizes import comma_list

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("bars", "lines", "breakdown", "stack")


@dataclass(frozen=True)
class Drawing:
    """What `[figure]` of a study file says.

    Attributes:
        kind: bars, lines, breakdown (seconds by resource) or stack (columns on top of each other).
        value: the column that is drawn; of a stack several, comma-separated.
        over: the column along the axis.
        by: columns whose values, in a row, name a bar or a line.
        baseline: such a name; every group is divided by it.
        panels: the column with a panel for each of its values.
        log: bars on a logarithmic scale.
    """

    kind: str
    value: str = ""
    over: str = ""
    by: tuple[str, ...] = ("system",)
    baseline: str = ""
    panels: str = ""
    log: bool = False

    @property
    def values(self) -> tuple[str, ...]:
        """The columns that are drawn."""
        return comma_list(self.value)


def drawing_of(content: Mapping[str, Any], name: str) -> Drawing:
    """Return how a study file says that it is drawn.

    Raises:
        InputError: it does not say so, or not in keys and kinds that exist.
    """
    options = content.get("figure")
    if not isinstance(options, dict):
        raise InputError(
            f"{name}: has no [figure] table, which says how it is drawn; "
            "`nearkv figure` lists studies that do"
        )
    known = [key.name for key in fields(Drawing)]
    for key in options:
        if key not in known:
            raise unknown("key", key, known, f"{name}: figure")
    if options.get("kind") not in KINDS:
        raise unknown("kind", str(options.get("kind")), KINDS, f"{name}: figure")
    by = options.get("by", ["system"])
    if not isinstance(by, list) or {type(column) for column in by} - {str}:
        raise InputError(f"{name}: figure: by must be a list of columns, as ['system']")
    for key, value in options.items():
        kind, word = (bool, "true or false") if key == "log" else (str, "text")
        if key != "by" and not isinstance(value, kind):
            raise InputError(f"{name}: figure: {key} must be {word}, not {value!r}")
    for key in ("baseline", "log"):
        if options.get(key) and options["kind"] != "bars":
            raise InputError(f"{name}: figure: {key} is of bars, not of {options['kind']}")
    return Drawing(**(options | {"by": tuple(by)}))


def check_drawn(rows: pd.DataFrame, drawing: Drawing, name: str) -> None:
    """Check that the table has every column that the drawing names, and those that it needs.

    Raises:
        InputError: naming the key and the column.
    """
    named = {"value": drawing.values, "by": drawing.by, "over": comma_list(drawing.over)}
    named["panels"] = comma_list(drawing.panels)
    for key in ("value", "over"):
        if drawing.kind != "breakdown" and not named[key]:
            raise InputError(
                f"{name}: figure: {key} is missing; name a column of the table"
            )
    for key, columns in named.items():
        for column in columns:
            if column not in rows:
                known = [str(name) for name in rows.columns]
                raise unknown("column", column, known, f"{name}: figure: {key}")
