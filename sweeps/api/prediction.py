"""What `nearkv.estimate` returns: one design point, and where its time goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd

from nearkv.costmodel.algebra.span import Real, Span
from nearkv.costmodel.model.estimate import Estimate
from nearkv.solvers.knobs import resolve_knobs
from nearkv.sweeps.api.tables import table_of_rows
from nearkv.sweeps.explore.explain import (
    check_has_tree,
    one_point,
    point_columns,
    time_tree,
)
from nearkv.sweeps.study.study import Study, blocks
from nearkv.sweeps.tables.table import records

Phase = Literal["prefill", "step", "total"]


@dataclass(frozen=True)
class Prediction:
    """The columns of one design point by name, and tables of where its time goes.

    The tables are empty where `status` is not ok; a simulated queue has but the first, as its time
    is no sum of spans.

    Attributes:
        study: the question.
        values: every column of the point.
    """

    study: Study
    values: Mapping[str, Any]

    def __getitem__(self, column: str) -> Any:
        return self.values[column]

    @property
    def status(self) -> str:
        """`ok`, `infeasible` or `not-modelled`; `self["reason"]` says why."""
        return str(self.values["status"])

    @cached_property
    def estimate(self) -> Estimate:
        """What the system answered: spans of time and memory needs, as it returned them."""
        (block,) = blocks(self.study)
        hw, llm, work, requested = block.inputs(block.grid.whole)
        return resolve_knobs(block.system, hw, llm, work, requested).estimate

    def table(self) -> pd.DataFrame:
        """The design point as a table of one row, as `nearkv.compare` gives it."""
        return table_of_rows([self.values])

    def explain(self) -> pd.DataFrame:
        """The time tree, parents before their parts, with the equation of each leaf.

        Columns: `span`, `word` (how its parts are composed), `seconds`, `share` of the total,
        and of a leaf `amount`, `unit`, `resource` and `equation`.
        """
        if self.status != "ok":
            return pd.DataFrame()
        return table_of_rows(time_tree(one_point(self.study)))

    def breakdown(self, phase: Phase = "total") -> pd.DataFrame:
        """Wall-clock seconds that each leaf accounts for; they sum to those of the phase.

        Columns: `span`, `seconds`, `share`.
        """
        span = self._span(phase)
        return self._shares("span", span.breakdown(), span)

    def busy(self, phase: Phase = "total") -> pd.DataFrame:
        """Seconds that each resource works, and their share of the phase: its utilisation.

        Columns: `resource`, `seconds`, `share`.
        """
        span = self._span(phase)
        return self._shares("resource", span.busy(), span)

    def traffic(self, phase: Phase = "total") -> pd.DataFrame:
        """What each resource carries or computes.

        Columns: `resource`, `verb`, `unit`, `amount`.
        """
        rows = []
        for _, leaf, times in self._span(phase).leaves():
            amount = np.multiply(times, leaf.amount)
            rows.append((leaf.resource, leaf.verb, leaf.unit, _scalar(amount)))
        keys = ["resource", "verb", "unit"]
        table = pd.DataFrame(rows, columns=[*keys, "amount"])
        if self.status != "ok":
            return table.head(0)
        return table.groupby(keys, as_index=False).sum()

    def _span(self, phase: Phase) -> Span:
        check_has_tree(self.study.method)
        span: Span = getattr(self.estimate, phase)
        return span

    def _shares(self, key: str, seconds: Mapping[str, Real], span: Span) -> pd.DataFrame:
        """A row a name: its seconds, and their share of the span's."""
        rows = [(name, _scalar(value)) for name, value in seconds.items()]
        table = pd.DataFrame(rows, columns=[key, "seconds"])
        table["share"] = table["seconds"] / _scalar(span.seconds)
        return table if self.status == "ok" else table.head(0)

    def __repr__(self) -> str:
        names = ("prefill_s", "step_ms", "total_s")
        shown = [f"{name}={self[name]:.4g}" for name in names if self[name]]
        answer = ", ".join(shown) or self["reason"]
        return f"<Prediction {self['system']} {self['model']}: {answer}>"

    def _repr_html_(self) -> str:
        column = pd.Series(dict(self.values), dtype=object).fillna("")
        return column.rename("value").to_frame().to_html()


def predict(study: Study) -> Prediction:
    """Evaluate a study of one design point.

    Raises:
        InputError: the study cannot be evaluated, or holds more than one point.
    """
    (values,) = records(point_columns(one_point(study)))
    return Prediction(study, values)


def _scalar(value: object) -> float:
    return float(np.ravel(np.asarray(value))[0])
