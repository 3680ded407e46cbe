"""The questions: what would a system do, which is best, and what does the answer depend on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

import pandas as pd

from nearkv.sweeps.api.arguments import (
    Axes,
    Models,
    Names,
    Value,
    names_of,
    study_of,
    study_or_axes,
    text_of,
)
from nearkv.sweeps.api.prediction import Prediction, predict
from nearkv.sweeps.api.tables import table_of_columns, table_of_rows
from nearkv.sweeps.study.study import Study


def estimate(system: Value, model: Models, **axes: Unpack[Axes]) -> Prediction:
    """Predict one system on one workload.

    Args:
        system: its name; see `systems()`.
        model: a name, a config.json or a `load_model` object.
        axes: batch, context, output_tokens, platform, sets, knobs, trace; see `Axes`.

    Raises:
        InputError: an argument that cannot be used, or more than one design point.

    >>> point = estimate("hilos", "opt-66b", context="64k", sets={"csd.count": 16})
    >>> point.status, point["platform"], point["context_tok"]
    ('ok', 'hilos-a100', 65536)
    >>> leaves = point.breakdown("step")
    >>> bool(abs(leaves["seconds"].sum() * 1e3 / point["step_ms"] - 1) < 1e-9)
    True
    """
    return predict(study_of(system, model, axes))


def compare(
    systems: Names,
    model: Models,
    *,
    ratio: Names = (),
    breakdown: bool = False,
    **axes: Unpack[Axes],
) -> pd.DataFrame:
    """Put systems side by side, a row per design point.

    Args:
        systems: names; the first is what the others are compared with.
        model: names, config.json files or `load_model` objects.
        ratio: columns to give ratios of besides, as `COLUMN_ratio`.
        breakdown: add the seconds of each resource, as `time_s:RESOURCE`.
        axes: batch, context, output_tokens, platform, sets, knobs, trace; see `Axes`.

    Returns:
        All columns, with the `bottleneck`, `speedup` (of a decode step) and `total_speedup` (of
        whole requests, prefill included) over the first system, on its first platform and with
        its first knob values; NaN where either has no answer. `note` says where platforms differ.

    Raises:
        InputError: an argument that cannot be used.

    >>> table = compare(["flexgen-ssd", "hilos"], model="opt-66b", context=[16_384, 65_536])
    >>> table[["system", "context_tok", "speedup"]].round(2).values.tolist()[:2]
    [['flexgen-ssd', 16384, 1.0], ['flexgen-ssd', 65536, 1.0]]
    """
    from nearkv.sweeps.evaluate.compare import compare as compared
    from nearkv.sweeps.evaluate.requested import TIMES

    ratios = names_of(ratio, "ratio") if ratio else ()
    extra = (TIMES,) if breakdown else ()
    return table_of_columns(compared(study_of(systems, model, axes), ratios, extra))


def sweep(
    study: Study | Value | None = None,
    *,
    systems: Names | None = None,
    model: Models | None = None,
    columns: Names | None = None,
    breakdown: bool = False,
    **axes: Unpack[Axes],
) -> pd.DataFrame:
    """Evaluate a grid of design points into one table.

    Grids of more than two million rows are for `nearkv sweep -o`, which writes files.

    Args:
        study: a `Study`, or the file of one, in place of the other arguments.
        systems: names.
        model: names, config.json files or `load_model` objects.
        columns: the columns to return, in this order; all by default.
        breakdown: add the seconds of each resource, as `time_s:RESOURCE`.
        axes: batch, context, output_tokens, platform, sets, knobs, trace; see `Axes`.

    Raises:
        InputError: an argument that cannot be used, or too many rows.

    >>> table = sweep(systems="hilos", model="opt-66b", context=range(8192, 32769, 8192))
    >>> table["context_tok"].tolist()
    [8192, 16384, 24576, 32768]
    """
    from nearkv.sweeps.evaluate.evaluate import evaluate, stack
    from nearkv.sweeps.evaluate.no_effect import checked_blocks
    from nearkv.sweeps.evaluate.requested import BOTTLENECK, TIMES, on_request
    from nearkv.sweeps.tables.table import select

    only = names_of(columns, "columns") if columns is not None else ()
    extra = (*on_request(only), BOTTLENECK, TIMES) if breakdown else on_request(only)
    study_blocks = checked_blocks(study_or_axes(study, systems, model, axes))
    answer = stack(evaluate(study_blocks, extra))
    return table_of_columns(select(answer, ",".join(only)))


def pareto(
    study: Study | Value | None = None,
    *,
    systems: Names | None = None,
    model: Models | None = None,
    by: Names = "throughput_tok_s,cost_usd",
    where: Iterable[str] = (),
    **axes: Unpack[Axes],
) -> pd.DataFrame:
    """Keep the designs of a sweep that no other beats in every column.

    Args:
        study: a `Study`, or the file of one, in place of systems, model and axes.
        systems, model, axes: as `sweep` takes them.
        by: two or three columns; more is better of rates and endurance, less of the rest.
        where: limits, as `step_ms<=200`; designs outside are left out first.

    Raises:
        InputError: an argument that cannot be used, or no design is left.

    >>> counts = {"csd.count": [1, 2, 4]}
    >>> table = pareto(systems="hilos", model="opt-30b", context="8k", sets=counts)
    >>> table["csd.count"].tolist()
    [4, 2, 1]
    """
    from nearkv.sweeps.explore.pareto import pareto as undominated

    chosen = study_or_axes(study, systems, model, axes)
    limits = [where] if isinstance(where, str) else list(where)
    return table_of_columns(undominated(chosen, text_of(by, "by"), limits))


def sensitivity(
    system: Value,
    model: Models,
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
        A row a number, the most important first, with its `elasticity` (percent of change for one
        percent). `table.attrs["band"]` holds the band of the prediction, that of `estimate`
        (90 % unless `band` is given): `low`, `middle` and `high`.

    Raises:
        InputError: an argument that cannot be used, or a point without an answer.

    >>> table = sensitivity("hilos", "opt-66b", context="64k")
    >>> bool(table["elasticity"].abs().is_monotonic_decreasing)
    True
    """
    from nearkv.sweeps.explore.sensitivity import importance
    from nearkv.sweeps.explore.sensitivity import sensitivity as elasticities

    study = study_of(system, model, axes)
    of = text_of(of, "of")
    if sobol:
        return table_of_rows(importance(study, of).rows)
    rows, band = elasticities(study, of)
    table = table_of_rows(rows)
    table.attrs["band"] = band
    return table
