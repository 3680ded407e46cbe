"""How a table is shown, as a user asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """What the options of a table say.

    Attributes:
        form: `--format`; empty for the command's own.
        columns: `--columns`, comma-separated.
        file: `-o`.
        pivot: `--pivot`.
        caption, label: of a LaTeX table.
    """

    form: str = ""
    columns: str = ""
    file: str = ""
    pivot: str = ""
    caption: str = ""
    label: str = ""

    def form_or(self, usual: str) -> str:
        """The format asked for, or the usual one."""
        return self.form or usual

    @property
    def is_for_people(self) -> bool:
        """Whether a terminal's table is asked for."""
        return self.form in ("", "table")


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
