"""The options of a sweep: which rows stay, who evaluates, what it says."""

from __future__ import annotations

from typing import Annotated

import typer

Top = Annotated[int | None, typer.Option(metavar="N", help="Keep only the N best rows.")]
By = Annotated[
    str,
    typer.Option(
        metavar="COLUMN", help="What --top and --best-per compare by; throughput_tok_s."
    ),
]
BestPer = Annotated[
    str,
    typer.Option(
        metavar="COLUMNS", help="Keep only the best row for each of their values."
    ),
]
Jobs = Annotated[int, typer.Option(metavar="N", help="Processes that evaluate.")]
Scheduler = Annotated[
    str,
    typer.Option(metavar="ADDRESS", help="Evaluate on a Dask cluster: tcp://host:8786."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with a file that was not finished.")
]
Yes = Annotated[
    bool,
    typer.Option(
        "--yes",
        help="Begin with more than 10^9 rows to write, 10^10 to compare, or a small disk.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show neither estimate nor progress.")]


def ask(question: str) -> bool:
    """Ask the user, where there is one; else the answer is no."""
    import sys

    try:
        return sys.stdin.isatty() and typer.confirm(question, err=True)
    except typer.Abort:
        raise KeyboardInterrupt from None
