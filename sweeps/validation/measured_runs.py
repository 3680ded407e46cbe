"""Measurements of a user as evidence for a fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nearkv.costmodel.model.registry import find_system
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate.probe import Probe
from nearkv.sweeps.study.study import Numbers, Study, blocks, pairs
from nearkv.sweeps.validation.evidence import Evidence, predictions
from nearkv.sweeps.validation.measurements import Measurement, read_runs


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ in batch, context and output_tokens alone: one block answers them all.

    Attributes:
        places: of its runs among all.
        runs: the runs.
        probe: the block.
    """

    places: list[int]
    runs: list[Measurement]
    probe: Probe

    @property
    def axes(self) -> dict[str, Numbers]:
        """Batch, context and output_tokens of each run."""
        return {
            "batch": np.array([run.batch for run in self.runs]),
            "context_tok": np.array([run.context for run in self.runs]),
            "output_tokens": np.array([run.output_tokens for run in self.runs]),
        }


def measured(file: str, platform: str = "") -> Evidence:
    """Read a user's measurements as evidence.

    Args:
        file: a CSV; see `nearkv.sweeps.validation.measurements`.
        platform: the machine; by default the test bed of the first row's system.

    Raises:
        InputError: a bad file, or a run that does not fit the machine.
    """
    metric, runs = read_runs(Path(file))
    if not runs:
        raise InputError(f"{file}: holds no runs; write one row per run")
    test_bed = load_platform(platform or find_system(runs[0].system).platform)
    groups = _groups(runs, test_bed.name)
    for group in groups:
        _check_fits(group)
        _check_predicted(group, metric)

    def predict(numbers: Mapping[str, Numbers]) -> Numbers:
        count = len(next(iter(numbers.values())))
        rows = np.empty((count, len(runs)))
        for group in groups:
            rows[:, group.places] = predictions(group.probe, metric, numbers, group.axes)
        return rows

    return Evidence(
        what=f"{metric} of {file}",
        source="user",
        platform=test_bed,
        names=tuple(run.where.rpartition(", ")[2] for run in runs),
        stated=np.array([run.measured for run in runs]),
        predict=predict,
    )


def _groups(runs: Sequence[Measurement], platform: str) -> list[RunGroup]:
    places_of: dict[tuple[str, str, str, str], list[int]] = {}
    for place, run in enumerate(runs):
        key = (run.system, run.model, run.knob, run.set)
        places_of.setdefault(key, []).append(place)
    groups = []
    for places in places_of.values():
        members = [runs[place] for place in places]
        groups.append(RunGroup(places, members, _probe(members[0], platform)))
    return groups


def _probe(run: Measurement, platform: str) -> Probe:
    try:
        sets = pairs(filter(None, run.set.split(";")), "set")
        knobs = pairs(filter(None, run.knob.split(";")), "knob")
        study = Study(
            (run.system,), (run.model,), platforms=(platform,), sets=sets, knobs=knobs
        )
        all_blocks = list(blocks(study))
    except InputError as problem:
        raise InputError(f"{run.where}: {problem}") from None
    if len(all_blocks) != 1 or all_blocks[0].grid.size != 1:
        raise InputError(
            f"{run.where}: a run has one value of each knob and set, not a list"
        )
    return Probe(all_blocks[0])


def _check_fits(group: RunGroup) -> None:
    """Raise an error for the first run that does not fit."""
    count = len(group.runs)
    try:
        answer = group.probe.answer(np.zeros(count, np.intp), group.axes)
    except InputError as problem:
        raise InputError(f"{group.runs[0].where}: {problem}") from None
    fits = answer.estimate.fits
    ok = np.broadcast_to(fits.ok, (count,))
    short = np.broadcast_to(fits.short_of, (count,))
    for run, runs_there, memory in zip(group.runs, ok, short, strict=True):
        if not runs_there:
            raise InputError(
                f"{run.where}: {run.system} does not fit there, {memory} is short of memory; "
                "correct the row, or the platform"
            )


def _check_predicted(group: RunGroup, metric: str) -> None:
    """Raise an error for the first run whose measured column the model leaves blank."""
    (values,) = predictions(group.probe, metric, {}, group.axes)
    for run, value in zip(group.runs, values, strict=True):
        if not (np.isfinite(value) and value > 0):
            raise InputError(
                f"{run.where}: {run.system} has no {metric} there; measure another column"
            )
