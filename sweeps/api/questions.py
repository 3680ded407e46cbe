"""The questions: what would a system do, which is best, and what does the answer depend on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Unpack

from nearkv.sweeps.api.arguments import (
    Axes,
    LoadAxes,
    Models,
    Names,
    Value,
    names_of,
    path_of,
    study_of,
    study_or_axes,
)
from nearkv.sweeps.api.tables import Findings
from nearkv.sweeps.study.sizes import names
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.tables.table import Row

if TYPE_CHECKING:
    import pandas as pd

    from nearkv.sweeps.jobs.progress import SweepRun


def compare(
    systems: Study | Names,
    model: Models | None = None,
    *,
    ratio: Names = (),
    breakdown: bool = False,
    also: Names = (),
    empty: bool = False,
    **axes: Unpack[LoadAxes],
) -> pd.DataFrame:
    """Put systems side by side, a row per design point.

    Args:
        systems: names, the first of which the others are compared with; or a `Study`, which holds
            models and axes too.
        model: names, config.json files or `load_model` objects.
        ratio: columns to give ratios of besides, as `COLUMN_ratio`.
        breakdown: add the seconds of each resource, as `time_s:RESOURCE`.
        also: columns on request to add, as `footprint_gb:kv`.
        empty: keep columns without any number.
        axes: batch, context, output_tokens, rate, platform, sets, knobs; see `LoadAxes`.

    Returns:
        A row a design point, without columns that have no number, with

        - all columns of `columns()`, with `bottleneck` and `step_bottleneck`;
        - `speedup` of a decode step and `total_speedup` of whole requests, prefill included, over
          the first system, on its first platform and with its first knob values; NaN where either
          has no answer;
        - `note`: where platforms differ.

        `table.attrs` holds the `conclusion`, which system is best, in sentences, the `units` of the
        columns, and the `provenance` of the numbers as JSON.

    Raises:
        InputError: an argument that cannot be used.

    >>> table = compare(["flexgen-ssd", "hilos"], model="opt-66b", context=[16_384, 65_536])
    >>> table[["system", "context_tok", "speedup"]].round(2).values.tolist()[:2]
    [['flexgen-ssd', 16384, 1.0], ['flexgen-ssd', 65536, 1.0]]
    """
    study = study_of(systems, model, axes)
    return compare_findings(study, ratio, breakdown, also).table(empty)


def compare_findings(
    study: Study, ratio: Names = (), breakdown: bool = False, also: Names = ()
) -> Findings:
    """The answer of `compare`, before it is a DataFrame."""
    from nearkv.sweeps.evaluate.columns import TIME_PREFIX, on_request
    from nearkv.sweeps.evaluate.compare import compare_systems, conclusion

    ratios = names(ratio, "ratio")
    extra = on_request(names(also, "also"))
    columns = compare_systems(study, ratios, (*extra, TIME_PREFIX) if breakdown else extra)
    return Findings(columns, conclusion(study, columns), study)


def sweep(
    study: Study | Value | None = None,
    *,
    systems: Names | None = None,
    model: Models | None = None,
    columns: Names | None = None,
    breakdown: bool = False,
    also: Names = (),
    empty: bool = False,
    **axes: Unpack[LoadAxes],
) -> pd.DataFrame:
    """Evaluate a grid of design points into one table.

    Grids of more than two million rows are for `nearkv sweep -o`, which writes files.

    Args:
        study: a `Study`, or the file of one, in place of the other arguments.
        systems: names.
        model: names, config.json files or `load_model` objects.
        columns: the columns to return, in this order; all by default.
        breakdown: add the seconds of each resource, as `time_s:RESOURCE`.
        also: columns on request to add, as `footprint_gb:kv`.
        empty: keep columns without any number.
        axes: batch, context, output_tokens, rate, platform, sets, knobs; see `LoadAxes`.

    Returns:
        A row a design point; `table.attrs["conclusion"]` says how many have an answer.

    Raises:
        InputError: an argument that cannot be used, or too many rows.

    >>> table = sweep(systems="hilos", model="opt-66b", context=range(8192, 32769, 8192))
    >>> table["context_tok"].tolist()
    [8192, 16384, 24576, 32768]
    """
    only = names_of(columns, "columns") if columns is not None else ()
    also = (*only, *names(also, "also"))
    chosen = study_or_axes(study, systems, model, axes)
    return sweep_findings(chosen, also, breakdown, only).table(empty or bool(only))


def sweep_findings(
    study: Study, also: Names = (), breakdown: bool = False, only: Iterable[str] = ()
) -> Findings:
    """The answer of `sweep`, before it is a DataFrame."""
    from nearkv.sweeps.evaluate.columns import (
        BOTTLENECK,
        TIME_PREFIX,
        evaluate,
        on_request,
        stack,
    )
    from nearkv.sweeps.evaluate.no_effect import checked_blocks
    from nearkv.sweeps.tables.table import counted, select

    extra = on_request(names(also, "also"))
    if breakdown:
        extra = (*extra, BOTTLENECK, TIME_PREFIX)
    answer = stack(evaluate(checked_blocks(study), extra))
    points = counted(len(answer["status"]), "design point")
    answered = int((answer["status"] == "ok").sum())
    sentence = f"{points}, {answered:,} of them with an answer."
    return Findings(select(answer, ",".join(only)), [sentence], study)


def pareto(
    study: Study | Value | None = None,
    *,
    systems: Names | None = None,
    model: Models | None = None,
    by: Names = "throughput_tok_s,cost_usd",
    where: Iterable[str] = (),
    also: Names = (),
    run: SweepRun | None = None,
    empty: bool = False,
    **axes: Unpack[Axes],
) -> pd.DataFrame:
    """Keep the Pareto-optimal designs of a sweep.

    Args:
        study: a `Study`, or the file of one, in place of systems, model and axes.
        systems, model, axes: as `sweep` takes them.
        by: two or three columns; more is better of rates and endurance, less of the rest.
        where: limits, as `step_ms<=200`; designs outside are left out first.
        also: columns on request to add, as `bottleneck`.
        run: how a large space is searched; by default without a word.
        empty: keep columns without any number.

    Returns:
        The Pareto-optimal designs, with all columns; `table.attrs["conclusion"]` says in a
        sentence how many there are.

    Raises:
        InputError: an argument that cannot be used, or no design is left.

    >>> counts = {"csd.count": [1, 2, 4]}
    >>> table = pareto(systems="hilos", model="opt-30b", context="8k", sets=counts)
    >>> table["csd.count"].tolist()
    [4.0, 2.0, 1.0]
    """
    chosen = study_or_axes(study, systems, model, axes)
    return pareto_findings(chosen, by, where, also, run).table(empty)


def pareto_findings(
    study: Study,
    by: Names,
    where: Iterable[str] = (),
    also: Names = (),
    run: SweepRun | None = None,
) -> Findings:
    """The answer of `pareto`, before it is a DataFrame."""
    from nearkv.sweeps.explore.pareto import ALONE, find_front
    from nearkv.sweeps.tables.table import counted, reach

    limits = [where] if isinstance(where, str) else list(where)
    sides = names_of(by, "by")
    extra = names(also, "also")
    front = find_front(study, ",".join(sides), limits, run or ALONE, extra)
    designs = counted(len(front[sides[0]]), "design")
    beaten = f"that no other of the same workload beats in {' and '.join(sides)}"
    reached = ", ".join(f"{side} {reach(front[side])}" for side in sides)
    sentence = f"{designs} {beaten}; {reached}."
    return Findings(front, [sentence], study)


def sensitivity(
    system: Study | Value,
    model: Models | None = None,
    *,
    of: str = "throughput_tok_s",
    sobol: bool = False,
    **axes: Unpack[Axes],
) -> pd.DataFrame:
    """Say which hardware numbers a prediction depends on.

    Args:
        system, model, axes: as `estimate` takes them: one design point.
        of: the column that depends.
        sobol: give shares of the band's variance in place of elasticities, and in
            `width_if_known` how wide the band is once a number is known.

    Returns:
        A row a number, that with the largest swing first, with

        - `elasticity`: percent of change for one percent;
        - `swing`: where it is known within a range only, the largest relative change there.

        `table.attrs["band"]` holds the band of the prediction, that of `estimate` (90 % unless
        `band` is given): `low`, `middle` and `high`; `table.attrs["conclusion"]` says it in
        sentences.

    Raises:
        InputError: an argument that cannot be used, or a point without an answer.

    >>> table = sensitivity("hilos", "opt-66b", context="64k")
    >>> bool(table["swing"].dropna().is_monotonic_decreasing)
    True
    """
    found, band = sensitivity_findings(
        study_of(system, model, axes), path_of(of, "of"), sobol
    )
    table = found.table()
    if not sobol:
        table.attrs["band"] = band
    return table


def sensitivity_findings(
    study: Study, of: str, sobol: bool = False
) -> tuple[Findings, Row]:
    """The answer of `sensitivity`, before it is a DataFrame, and its band, empty with `sobol`."""
    from nearkv.sweeps.explore.sensitivity import find_elasticities, importance

    if sobol:
        return Findings(*importance(study, of)), {}
    rows, band = find_elasticities(study, of)
    drawn = f"{band['factors']} uncertain numbers and the model error"
    reach = f"its {band['level']:g} % band over {drawn}: {band['low']:.4g} to {band['high']:.4g}"
    sentences = [f"{of} = {band[of]:.4g}; {reach}."]
    if band["fits_share"] < 1:
        sentences.append(
            f"The design fits in {100 * band['fits_share']:.3g} % of the draws."
        )
    return Findings(rows, sentences), band
