"""Share of measured runs that lie in the bands that are predicted without them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache

import numpy as np

from nearkv.costmodel.algebra.span import Numbers
from nearkv.costmodel.model.registry import find_system
from nearkv.solvers.uncertainty.draws import ranks
from nearkv.solvers.uncertainty.quantiles import interval_score, quantiles
from nearkv.solvers.uncertainty.spread import source_error
from nearkv.sweeps.evaluate.provenance import replacing
from nearkv.sweeps.study.bands import MODEL_ERROR
from nearkv.sweeps.tables.table import Row, Rows
from nearkv.sweeps.uncertainty.model_error import (
    ALL,
    ERROR_TABLE,
    MECHANISMS,
    RATIO,
    VALUE,
    error_power,
    find_error,
    model_errors,
)
from nearkv.sweeps.validation.claims import HELD_OUT, INDEPENDENT
from nearkv.sweeps.validation.evidence import EVIDENCE_SAMPLES, SampledClaim
from nearkv.sweeps.validation.prediction import is_formula

SHARE_INSIDE = 0.9
"""Share of the measurements that a band should hold [1]."""
FEWEST_SOURCES = 5
"""Least sources of a pool of one mechanism; with fewer, all mechanisms are pooled."""


def error_table(rows: Sequence[SampledClaim]) -> Rows:
    """The models' own errors by source: a row a mechanism and a source that is left out."""
    sources = sorted({row.source for row in rows})
    table = []
    for without in ("", *sources):
        others = [row for row in rows if row.source != without]
        for of in (VALUE, RATIO):
            alike = [row for row in others if row.of == of]
            for mechanism in (*dict.fromkeys(MECHANISMS.values()), ALL):
                names = {"mechanism": mechanism, "of": of, "without": without}
                table.append({**names, **_pooled(alike, mechanism)})
    return table


def _pooled(rows: Sequence[SampledClaim], mechanism: str) -> Row:
    own = [row for row in rows if row.mechanism == mechanism]
    enough = len({row.source for row in own}) >= FEWEST_SOURCES
    pool = own if enough else rows
    errors, inputs, sources = [], [], []
    for row in pool:
        errors.append(np.mean(np.log(row.predicted / row.stated)))
        inputs.append(np.mean(np.nanstd(np.log(row.samples), axis=1)))
        sources.append(row.source)
    law = source_error(np.array(errors), np.array(inputs), sources)
    return {
        "pool": mechanism if enough else ALL,
        "rows": len(pool),
        "sources": len(set(sources)),
        "inside": np.nan,
        **{name: float(f"{value:.3g}") for name, value in asdict(law).items()},
    }


@dataclass(frozen=True)
class BandCheck:
    """A claim and its 90 % band, which is made without any row of its source.

    Attributes:
        row: the claim.
        inside: True if all that it states lies in the band.
        width: upper over lower end [1].
        score: interval score, of logarithms [1].
    """

    row: SampledClaim
    inside: bool
    width: float
    score: float


def check_band(row: SampledClaim) -> BandCheck:
    """Compare a claim with its band."""
    samples = np.log(row.samples) + _model_error(row)
    if row.claim.over in find_system(row.claim.system).optima:
        samples = np.minimum(samples, np.maximum(np.log(row.samples), 0.0))
    stated = np.log(row.stated)
    low, high = quantiles(samples, [(1 - SHARE_INSIDE) / 2, (1 + SHARE_INSIDE) / 2])
    inside = bool(np.all((low <= stated) & (stated <= high)))
    score = interval_score(low, high, stated, SHARE_INSIDE)
    width = float(np.exp(np.mean(high - low)))
    return BandCheck(row, inside, width, float(np.mean(score)))


def _model_error(row: SampledClaim) -> Numbers:
    """Draws of the model's own error of a claim's logarithm [1]."""
    metric = row.claim.metric
    # the formulas of runs are times
    power = 1 if is_formula(metric) else error_power(metric)
    return power * find_error(row.mechanism, row.of, row.source).law.quantile(_ranks())


@cache
def _ranks() -> Numbers:
    # of a sequence of its own: in the claims' own sequences its place differs
    drawn = ranks((MODEL_ERROR,), EVIDENCE_SAMPLES, 1)[MODEL_ERROR]
    return np.random.default_rng(0).permutation(drawn)


def measure_coverage(rows: Sequence[SampledClaim]) -> Rows:
    """Coverage of all rows, the papers', strangers', ratios, and each mechanism's."""
    groups: dict[str, list[BandCheck]] = {}
    for row in rows:
        names = ["all", "ratios" if row.of == RATIO else f"most time: {row.mechanism}"]
        if row.paper in HELD_OUT:
            names.append("strangers")
        elif row.paper != INDEPENDENT:
            names.append("papers")
        result = check_band(row)
        for name in names:
            groups.setdefault(name, []).append(result)
    return [{"rows_of": name, **_summary(group)} for name, group in groups.items()]


def record(rows: Sequence[SampledClaim]) -> None:
    """Write the laws of the models' errors, which every band is made of from then on."""
    table = error_table(rows)
    _write(table)
    checks = [check_band(row) for row in rows]
    for line in table:
        inside = [
            check.inside
            for check in checks
            if check.row.of == line["of"] and line["pool"] in (check.row.mechanism, ALL)
        ]
        line["inside"] = float(f"{np.mean(inside):.3g}")
    _write(table)


def _write(table: Rows) -> None:
    with replacing(ERROR_TABLE) as file:
        writer = csv.DictWriter(file, list(table[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
    model_errors.cache_clear()


def _summary(results: Sequence[BandCheck]) -> Row:
    inside = np.array([result.inside for result in results])
    sources = np.array([result.row.source for result in results])
    of_source = [np.mean(inside[sources == name]) for name in np.unique(sources)]
    return {
        "sources": len(of_source),
        "rows": len(results),
        "inside": float(np.mean(inside)),
        "inside_by_source": float(np.mean(of_source)),
        "width": float(np.median([result.width for result in results])),
        "score": float(np.mean([result.score for result in results])),
    }
