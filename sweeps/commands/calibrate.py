"""The command `nearkv calibrate`: numbers of a platform fitted to measurements or claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from nearkv.sweeps.commands import options
from nearkv.sweeps.commands.options import option
from nearkv.sweeps.commands.printing import print_table, tell

if TYPE_CHECKING:
    from pathlib import Path


def calibrate(
    claims: Annotated[str, option("PAPER", "Fit to its measured claims: hilos.")] = "",
    measurements: Annotated[
        str,
        option(
            "FILE.csv", "Fit to runs: system,model,batch,context,output_tokens,step_ms."
        ),
    ] = "",
    platform: Annotated[
        str,
        option("PLATFORM", "The machine; default: that of the claims, or of the system."),
    ] = "",
    factor: Annotated[
        list[str], option("ROLE.KEY", "A number to fit: derate.pcie. At most six.")
    ] = [],
    without: Annotated[
        list[str], option("ROW", "Leave out: 'line 5', or a claim's id.")
    ] = [],
    file: Annotated[
        str, option("FILE.toml", "Write the fitted platform.", "--output-file", "-o")
    ] = "",
    columns: options.ColumnsOption = "",
    form: options.Format = "table",
) -> None:
    """Fit assumed numbers of a platform inside their ranges; say what the rows do not determine.

    By default those of kind assumed or fitted that move the rows most, at most six. Intervals
    hold for all factors at once with 95 %. A row left out is predicted by a fit to the others.
    FILE.toml then serves as --platform.

    Example: nearkv calibrate --measurements my.csv --platform aipc-4090 -o my.toml
    """
    from nearkv.sweeps.api import evidence
    from nearkv.sweeps.tables.formats import check_format

    check_format(form)
    place = _toml_place(file) if file else None
    fit = evidence.calibrate(
        measurements or None,
        claims=claims,
        platform=platform,
        factors=factor,
        without=without,
    )
    if place:
        fit.save(place)
        tell(f"wrote {place}; use it as --platform {place}")
    view = options.View(columns, form)
    is_whole = form == "table" and not columns
    print_table(fit.factors, view, below=() if is_whole else fit.summary)
    if is_whole:
        print_table(fit.residuals, view, below=fit.summary)


def _toml_place(file: str) -> Path:
    """Path at which a fitted platform can be written, checked before the fit."""
    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.evaluate.provenance import check_writable, place_of

    if not file.endswith(".toml"):
        raise InputError(f"--output-file {file}: a platform is a .toml file; name it so")
    place = place_of(file)
    if place.is_dir():
        raise InputError(f"--output-file {file} is a folder; name a file in it")
    check_writable(place)
    return place
