"""`nearkv.estimate`: one design point, and where its time goes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np

from nearkv.costmodel.algebra.span import Real, Span
from nearkv.costmodel.model.estimate import Estimate, missing_bytes
from nearkv.hardware.errors import InputError, check_known
from nearkv.sweeps.api.arguments import LoadAxes, Models, Names, Value, study_of
from nearkv.sweeps.api.tables import table_of_rows
from nearkv.sweeps.evaluate.columns import BOTTLENECK, STEP_BOTTLENECK, columns, on_request
from nearkv.sweeps.evaluate.probe import Probe
from nearkv.sweeps.explore.explain import ONE_STEP, time_tree
from nearkv.sweeps.study.grid import Block, scalar
from nearkv.sweeps.study.sizes import names
from nearkv.sweeps.study.study import Study, one_block
from nearkv.sweeps.tables.table import Row, Rows, cell_text, records

if TYPE_CHECKING:
    import pandas as pd

ROOM = ("memory", "capacity", "count")
"""Numbers of a part that decide what it holds."""
SHARED_ROOM = {"both": ("gpu.pool", "lpddr.memory", "lpddr.count")}
"""Memories that hold something together -> the numbers that decide what they hold."""
Phase = Literal["prefill", "step", "total"]


@dataclass(frozen=True)
class Prediction:
    """The columns of one design point by name, and tables of where its time goes.

    The tables are empty where `status` is not ok; a simulated queue has but the first, as its time
    is no sum of spans.

    Attributes:
        study: the question.
        block: its design point, with machine and model.
        values: every column of the point.
        estimate: what the system answered: spans of time and memory needs, as it returned them.
    """

    study: Study
    block: Block
    values: Mapping[str, Any]
    estimate: Estimate

    def __getitem__(self, column: str) -> Any:
        check_known("column", [column], self.values)
        return self.values[column]

    @property
    def status(self) -> str:
        """`ok`, `infeasible` or `not-modelled`; `self["reason"]` says why."""
        return str(self.values["status"])

    @cached_property
    def tree(self) -> Rows:
        """The time tree, a row a span; see `explain`."""
        self.check_has_tree()
        return time_tree(self.estimate)

    @property
    def conclusion(self) -> str:
        """Say how long it takes, and which resource takes most of it, in words."""
        shares: dict[str, float] = {}
        for row in self.tree:
            if row["word"] == "leaf" and not row["span"].startswith(ONE_STEP):
                resource = row["resource"]
                shares[resource] = shares.get(resource, 0.0) + row["share"]
        longest = max(shares, key=lambda resource: shares[resource])
        total = f"{self['total_s']:.4g} s from the first prompt to the last token"
        spent = f"{shares[longest]:.0%} of this time is spent on {longest}"
        return f"{self['system']}: {total}; {spent}."

    @property
    def shortage(self) -> str:
        """Why the design point has no answer, in words."""
        if self.status == "infeasible":
            return f"{self['reason']} by {cell_text(self['short_gb'])} GB"
        return str(self["reason"])

    @cached_property
    def footprint(self) -> Rows:
        """Rows of each memory: what it must hold in all, then each content that it holds.

        Returns:
            A row has `memory`, `content` (`all`, or what it is), `needed_gb`, and for `all`
            `available_gb` and `missing_gb` [GB]. Contents of no bytes are left out.
        """
        rows = []
        fits = self.estimate.fits
        for memory, (needed, available) in fits.tiers.items():
            row: Row = {"memory": memory, "content": "all"}
            row["needed_gb"] = scalar(needed) / 1e9
            row["available_gb"] = scalar(available) / 1e9
            row["missing_gb"] = scalar(missing_bytes(needed, available)) / 1e9
            rows.append(row)
            for content, amount in fits.contents.get(memory, {}).items():
                if size := scalar(amount) / 1e9:
                    part = {"memory": memory, "content": content, "needed_gb": size}
                    rows.append(part | {"available_gb": None, "missing_gb": None})
        return rows

    @property
    def contents(self) -> str:
        """Name the largest content of the memory that is short, in words; empty where none is."""
        short = self["short_of"]
        within = [row for row in self.footprint if row["memory"] == short][1:]
        if not within:
            return ""
        largest = max(within, key=lambda row: float(row["needed_gb"]))
        return (
            f"{self.shortage}; most of what it must hold is "
            f"{largest['content']}, {cell_text(largest['needed_gb'])} GB."
        )

    @property
    def lifted_by(self) -> str:
        """Numbers of the machine, each with a value at which all memories hold enough, in words.

        A number is tried at the factor that brings what is missing; empty where none is enough.
        """
        short, platform = self["short_of"], self.block.platform
        if not short:
            return ""
        hw, *_ = self.block.inputs(self.block.grid.whole)
        needed, available = map(scalar, self.estimate.fits.tiers[short])
        if available <= 0:  # no multiple of it is enough
            return ""
        lifting = []
        for address in (*(f"{short}.{key}" for key in ROOM), *SHARED_ROOM.get(short, ())):
            role, _, key = address.partition(".")
            if role not in hw.roles or key not in hw[role]:
                continue
            number = platform.key(address)
            step = 1.0 if number.whole else 1e9
            part = hw[role]
            # of memories that hold something together only that of the number grows
            grows_alone = role != short and key in ROOM
            room = scalar(part.count * part.memory) if grows_alone else available
            factor = 1 + (needed - available) / room
            enough = step * math.ceil(factor * scalar(part[key]) / step)
            if self._fits_with(address, enough):
                lifting.append(f"{address} = {number.text(enough)}")
        return f"{' or '.join(lifting)} would do." if lifting else ""

    def _fits_with(self, address: str, value: float) -> bool:
        """True if the design point has an answer with another number of the machine."""
        changed = {address: np.array([value])}
        answer = Probe(self.block).answer(numbers=changed)
        return bool(np.all(answer.estimate.fits.ok))

    def check_has_tree(self) -> None:
        """Refuse to explain by averages what is simulated event by event.

        Raises:
            InputError: it is.
        """
        if self.study.method == "simulate":
            raise InputError(
                "a simulated queue has no time tree, nor time per resource; explain --method fluid"
            )

    def table(self) -> pd.DataFrame:
        """The design point as a table of one row, as `nearkv.compare` gives it."""
        return table_of_rows([self.values])

    def explain(self) -> pd.DataFrame:
        """The time tree, parents before their parts, with the equation of each leaf.

        Columns: `span`, `word` (how its parts are composed), `seconds`, `share` of the total,
        and of a leaf `amount`, `unit`, `resource` and `equation`.
        """
        import pandas as pd

        if self.status != "ok":
            return pd.DataFrame()
        return table_of_rows(self.tree)

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
        """Bytes and operations of each resource.

        Columns: `resource`, `verb`, `unit`, `amount`.
        """
        import pandas as pd

        rows = []
        for _, leaf, times in self._span(phase).leaves():
            amount = np.multiply(times, leaf.amount)
            rows.append((leaf.resource, leaf.verb, leaf.unit, scalar(amount)))
        keys = ["resource", "verb", "unit"]
        table = pd.DataFrame(rows, columns=[*keys, "amount"])
        if self.status != "ok":
            return table.head(0)
        return table.groupby(keys, as_index=False).sum()

    def _span(self, phase: Phase) -> Span:
        self.check_has_tree()
        span: Span = getattr(self.estimate, phase)
        return span

    def _shares(self, key: str, seconds: Mapping[str, Real], span: Span) -> pd.DataFrame:
        """A row a name: its seconds, and their share of the span's."""
        import pandas as pd

        rows = [(name, scalar(value)) for name, value in seconds.items()]
        table = pd.DataFrame(rows, columns=[key, "seconds"])
        table["share"] = table["seconds"] / scalar(span.seconds)
        return table if self.status == "ok" else table.head(0)

    def __repr__(self) -> str:
        brief = ("prefill_s", "step_ms", "total_s")
        shown = [f"{name}={self[name]:.4g}" for name in brief if self[name]]
        answer = ", ".join(shown) or self["reason"]
        return f"<Prediction {self['system']} {self['model']}: {answer}>"

    def _repr_html_(self) -> str:
        import pandas as pd

        column = pd.Series(dict(self.values), dtype=object).fillna("")
        return column.rename("value").to_frame().to_html()


def estimate(
    system: Study | Value,
    model: Models | None = None,
    *,
    also: Names = (),
    **axes: Unpack[LoadAxes],
) -> Prediction:
    """Predict one system on one workload.

    Args:
        system: its name, as in `systems()`, or a study of one design point.
        model: a name, a config.json or a `load_model` object.
        also: columns on request to add, as `footprint_gb:kv`.
        axes: batch, context, output_tokens, rate, platform, sets, knobs; see `LoadAxes`.

    Raises:
        InputError: an argument that cannot be used, or more than one design point.

    >>> point = estimate("hilos", "opt-66b", context="64k", sets={"csd.count": 16})
    >>> point.status, point["platform"], point["context_tok"]
    ('ok', 'hilos-a100', 65536)
    >>> leaves = point.breakdown("step")
    >>> bool(abs(leaves["seconds"].sum() * 1e3 / point["step_ms"] - 1) < 1e-9)
    True
    """
    study = study_of(system, model, axes)
    block = one_block(study)
    extra = (BOTTLENECK, STEP_BOTTLENECK, *on_request(names(also, "also")))
    resolved = block.resolved(block.grid.whole)
    (values,) = records(columns(block, block.grid.whole, extra=extra, resolved=resolved))
    return Prediction(study, block, values, resolved.estimate)
