"""Rows a fit is held to: a user's measurements, or the claims of a paper that a column answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nearkv.costmodel.metrics import COLUMNS
from nearkv.costmodel.registry import find_system
from nearkv.hardware.catalog import Platform, load_platform
from nearkv.hardware.errors import InputError, unknown
from nearkv.sweeps.evaluation.probe import Probe, column
from nearkv.sweeps.space.study import NONE, Numbers, Study, blocks, pairs
from nearkv.sweeps.validation.claims import Claim, laid, load
from nearkv.sweeps.validation.measurements import Measurement, read_runs

Predict = Callable[[Mapping[str, Numbers]], Numbers]
"""Hardware numbers by `role.key`, k values each in SI -> predictions (k, rows)."""


@dataclass(frozen=True)
class Evidence:
    """What a fit is held to.

    Attributes:
        what: where it comes from, for readers.
        source: key into sources.toml.
        platform: whose numbers are fitted.
        names: of the rows.
        stated: what each row states or measured.
        predict: what the models say of each row.
    """

    what: str
    source: str
    platform: Platform
    names: tuple[str, ...]
    stated: Numbers
    predict: Predict


def without(evidence: Evidence, rows: Sequence[str]) -> Evidence:
    """Leave rows out, by name; the id of a claim stands for both of its ends.

    Raises:
        InputError: no such row.
    """
    named = [
        {row for row in rows if name in (row, f"{row} low", f"{row} high")}
        for name in evidence.names
    ]
    for row in rows:
        if not any(row in found for found in named):
            raise unknown("row", row, evidence.names, "--without")
    kept = [i for i, found in enumerate(named) if not found]

    def predict(numbers: Mapping[str, Numbers]) -> Numbers:
        found: Numbers = evidence.predict(numbers)[:, kept]
        return found

    names = tuple(evidence.names[i] for i in kept)
    return replace(evidence, names=names, stated=evidence.stated[kept], predict=predict)


def ask(
    probe: Probe,
    of: str,
    numbers: Mapping[str, Numbers],
    axes: Mapping[str, Numbers] = NONE,
    infeasible: bool = True,
) -> Numbers:
    """A column for k values of some numbers at all design points of a block, or at other values of its axes.

    Numbers that the block sets itself stay as set.

    Args:
        probe: the block.
        of: the column.
        numbers: hardware numbers by `role.key` [SI].
        axes: values of axes, one each point.
        infeasible: what does not fit has its time all the same; else it is NaN.

    Returns:
        (k, points).
    """
    count = len(next(iter(numbers.values()), np.zeros(1)))
    size = len(next(iter(axes.values()), np.zeros(probe.size)))
    point = np.zeros(size, np.intp) if axes else np.arange(size)
    own = probe.block.sets.values()
    free = {
        address: np.repeat(values, size)
        for address, values in numbers.items()
        if address not in own
    }
    answer = probe.answer(
        np.tile(point, count), {name: np.tile(v, count) for name, v in axes.items()}, free
    )
    found = COLUMNS[of].compute(answer) if infeasible else column(answer, of, count * size)
    return np.broadcast_to(found, (count * size,)).reshape(count, size).astype(float)


def measured(file: str, platform: str = "") -> Evidence:
    """Read a user's measurements.

    Args:
        file: a CSV; see `nearkv.sweeps.validation.measurements`.
        platform: the machine; by default the test bed of the first row's system.

    Raises:
        InputError: a bad file, or a run that the machine cannot do.
    """
    of, runs = read_runs(Path(file))
    if not runs:
        raise InputError(f"{file}: holds no runs; write one row a run")
    bed = load_platform(platform or find_system(runs[0].system).platform)
    groups: dict[tuple[str, str, str, str], list[int]] = {}
    for i, run in enumerate(runs):
        groups.setdefault((run.system, run.model, run.knob, run.set), []).append(i)
    asked = [
        (rows, _probe(runs[rows[0]], bed.name), _axes([runs[i] for i in rows]))
        for rows in groups.values()
    ]
    for rows, probe, axes in asked:
        _check_fits(probe, axes, [runs[i] for i in rows])

    def predict(numbers: Mapping[str, Numbers]) -> Numbers:
        found = np.empty((len(next(iter(numbers.values()))), len(runs)))
        for rows, probe, axes in asked:
            found[:, rows] = ask(probe, of, numbers, axes)
        return found

    names = tuple(run.where.rpartition(", ")[2] for run in runs)
    return Evidence(
        f"{of} of {file}", "user", bed, names, np.array([run.measured for run in runs]), predict
    )


def _probe(run: Measurement, platform: str) -> Probe:
    words = {
        option: (item for item in text.split(";") if item)
        for option, text in (("set", run.set), ("knob", run.knob))
    }
    try:
        sets, knobs = (pairs(items, option) for option, items in words.items())
        laid = blocks(
            Study((run.system,), (run.model,), platforms=(platform,), sets=sets, knobs=knobs)
        )
    except InputError as problem:
        raise InputError(f"{run.where}: {problem}") from None
    if len(laid) != 1 or laid[0].grid.size != 1:
        raise InputError(f"{run.where}: a run has one value of each knob and set, not a list")
    return Probe(laid[0])


def _axes(runs: Sequence[Measurement]) -> dict[str, Numbers]:
    return {
        "batch": np.array([run.batch for run in runs]),
        "context_tok": np.array([run.context for run in runs]),
        "output_tok": np.array([run.output for run in runs]),
    }


def _check_fits(probe: Probe, axes: Mapping[str, Numbers], runs: Sequence[Measurement]) -> None:
    try:
        fits = probe.answer(np.zeros(len(runs), np.intp), axes).estimate.fits
    except InputError as problem:
        raise InputError(f"{runs[0].where}: {problem}") from None
    ok, short = np.broadcast_arrays(fits.ok, fits.short_of, np.empty(len(runs)))[:2]
    for run, fine, memory in zip(runs, ok, short, strict=True):
        if not fine:
            raise InputError(
                f"{run.where}: {run.system} does not fit there, {memory} is short of memory; correct the row, "
                "or the platform"
            )


# --- claims -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClaimQuestion:
    """A claim and the blocks that answer it.

    Attributes:
        claim: what is stated.
        asked, over: who is asked, and whose answer divides it; none where nothing does.
        fits: design points where both fit at the platform's own numbers.
    """

    claim: Claim
    asked: tuple[Probe, ...]
    over: tuple[Probe, ...]
    fits: Numbers

    @property
    def stated(self) -> dict[str, float]:
        """What each row states: one value, or both ends where a grid is compared with them."""
        low, high, name = float(self.claim.low), float(self.claim.high), self.claim.id
        return {name: low} if self._single else {f"{name} low": low, f"{name} high": high}

    def reduce(self, found: Numbers) -> Numbers:
        """Predictions (k, points) as rows (k, 1 or 2)."""
        kept = found[:, self.fits.astype(bool)]
        if self.claim.take == "mean":
            mean: Numbers = np.mean(kept, axis=1, keepdims=True)
            return mean
        ends = np.stack([kept.min(axis=1), kept.max(axis=1)], axis=1)
        if self.claim.take == "max":
            return ends[:, 1:]
        return ends[:, :1] if self._single else ends

    @property
    def _single(self) -> bool:
        return self.claim.take in ("max", "min", "mean") or np.sum(self.fits) == 1


def claimed(paper: str, platform: str = "") -> Evidence:
    """Collect the measured and simulated claims of a paper whose metric is a column.

    Left out are bounds (`take` every: one that is kept says nothing), rows with a proof that they
    are inconsistent, played queues, and questions on machines with other derates: a test bed that
    differs in its GPU alone is fitted together with the rest.

    Args:
        paper: whose claims.
        platform: the machine; by default the one most of these claims are asked on.

    Raises:
        InputError: no such paper, or no such claim of it on that machine.
    """
    usable = [claim for claim in load(paper) if _usable(claim)]
    beds = Counter(laid(claim)[0].platform.name for claim in usable)
    if not beds or (platform and platform not in beds):
        where = (
            f" on {platform}; they are on {', '.join(sorted(beds))}" if platform and beds else ""
        )
        raise InputError(f"no measured claim of {paper!r} is a column of a table{where}")
    bed = load_platform(platform or beds.most_common(1)[0][0])
    questions = [question for claim in usable if (question := _question(claim, bed)) is not None]

    def predict(numbers: Mapping[str, Numbers]) -> Numbers:
        known: dict[tuple[str, tuple[int, ...]], Numbers] = {}

        def answers(probes: tuple[Probe, ...], of: str) -> Numbers:
            # many claims ask the same of the same blocks
            key = (of, tuple(id(probe.block) for probe in probes))
            if key not in known:
                known[key] = _ask_all(probes, of, numbers)
            return known[key]

        rows = []
        for question in questions:
            found = answers(question.asked, question.claim.metric)
            if question.over:
                found = found / answers(question.over, question.claim.metric)
            rows.append(question.reduce(found))
        return np.concatenate(rows, axis=1)

    stated = {name: value for question in questions for name, value in question.stated.items()}
    return Evidence(
        f"claims of {paper}", paper, bed, tuple(stated), np.array(list(stated.values())), predict
    )


def _usable(claim: Claim) -> bool:
    stated = claim.metric in COLUMNS and claim.kind in ("measured", "simulated") and not claim.proof
    return stated and claim.take != "every" and claim.method != "simulate" and float(claim.low) > 0


def _question(claim: Claim, bed: Platform) -> ClaimQuestion | None:
    sides = [
        tuple(map(Probe, laid(claim, over))) for over in (False, *([True] if claim.over else []))
    ]
    if any(
        probe.block.platform.roles["derate"] != bed.roles["derate"]
        for probes in sides
        for probe in probes
    ):
        return None
    finite = [
        np.isfinite(_ask_all(probes, claim.metric, NONE, infeasible=False)) for probes in sides
    ]
    fits = np.ravel(np.all(np.broadcast_arrays(*finite), axis=0))
    return (
        ClaimQuestion(claim, sides[0], sides[1] if claim.over else (), fits)
        if np.any(fits)
        else None
    )


def _ask_all(
    probes: Sequence[Probe], of: str, numbers: Mapping[str, Numbers], infeasible: bool = True
) -> Numbers:
    return np.concatenate(
        [ask(probe, of, numbers, infeasible=infeasible) for probe in probes], axis=1
    )
