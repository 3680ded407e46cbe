"""Warn of what a user states and no answer depends on: hardware numbers, parts and knobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

import numpy as np

from nearkv.costmodel.model.metrics import COLUMNS
from nearkv.hardware.errors import InputError, warn
from nearkv.hardware.schema import PARTLESS, ROLES
from nearkv.solvers.knobs import KnobSetting, LackingError
from nearkv.sweeps.study.grid import NO_NUMBERS, Block, Mesh, Slices
from nearkv.sweeps.study.study import Study, blocks
from nearkv.sweeps.tables.table import CellArray

_POINTS = 4096
"""Design points of a block that are looked at; knobs only of a study that has no more."""
_NOTHING: Mapping[str, str] = MappingProxyType({})


def checked_blocks(study: Study) -> list[Block]:
    """The blocks of a study; warns of each number, part and knob that changes nothing.

    Raises:
        InputError: the study cannot be evaluated.
    """
    study_blocks = blocks(study)
    warn_of_no_effect(study, study_blocks)
    return study_blocks


def warn_of_no_effect(study: Study, study_blocks: Sequence[Block]) -> None:
    """Warn of each number, part and knob of a study that changes nothing."""
    if not study.states_machine:
        return
    read = warn_of_unread(study_blocks)
    points = sum(block.grid.size for block in study_blocks)
    if points > _POINTS or study.method != "fluid":
        return
    for name in study.knobs:
        _warn_if_idle(name, study_blocks)
    for address in sorted(read & study.sets.keys()):
        if not address.startswith("precision."):  # one format states several widths
            _warn_if_without_effect(address, study_blocks)


def warn_of_unread(
    study_blocks: Sequence[Block], searched: Mapping[str, str] = _NOTHING
) -> set[str]:
    """Warn of each hardware number, part and role of one's own that no system reads.

    Args:
        study_blocks: the design points, with the numbers and parts that a user states.
        searched: numbers that a search varies, as `role.key`, and the option that names each; one
            that no platform states is taken to be read.

    Returns:
        All numbers that a system reads; none where nothing is stated.
    """
    options = {number: "--set" for block in study_blocks for number in block.sets.values()}
    swaps = {swap for block in study_blocks for swap in block.platform.swapped.items()}
    for block in study_blocks:
        stated = block.platform.numbers.keys() & searched.keys()
        options |= {number: searched[number] for number in stated}
    platforms = {block.platform.name: block.platform for block in study_blocks}
    own = [
        (name, role)
        for name, platform in platforms.items()
        for role in platform.roles.keys() - {*ROLES, *PARTLESS}
    ]
    if not (options or swaps or own):
        return set()
    read: set[str] = set()
    for block in study_blocks:
        box = next(block.grid.boxes(_POINTS))
        with suppress(LackingError):  # the evaluation of the block says so
            _metrics(block, box, read=read)
    systems = ", ".join(dict.fromkeys(block.system.name for block in study_blocks))
    why = f"changes nothing: no system here reads it ({systems})"
    for number in sorted(options.keys() - read):
        warn(f"{options[number]} {number} {why}")
    roles = {number.partition(".")[0] for number in read}
    for role, name in sorted(swaps):
        if role not in roles:
            warn(f"--part {role}={name} {why}")
    for name, role in sorted(own):
        if role not in roles:
            warn(f"{name}: {role} {why}")
    return read


def _metrics(
    block: Block,
    box: Slices,
    numbers: Mesh = NO_NUMBERS,
    read: set[str] | None = None,
) -> list[CellArray]:
    """Every metric of some design points; `numbers` and `read` are as `Block.at` takes them."""
    answer = block.answer(block.grid.mesh(box), numbers, read)
    metrics = [metric.compute(answer) for metric in COLUMNS.values()]
    own = answer.estimate.columns.values()
    return [np.asarray(value) for value in (answer.estimate.fits.ok, *metrics, *own)]


def _warn_if_idle(name: str, study_blocks: Sequence[Block]) -> None:
    """Warn of a knob on which no answer depends: all its choices, or some values, give the same.

    The values are those stated, its default, the ends and the middle of its range, and of counts
    a small one. A study in which nothing fits says nothing of its knobs.
    """
    labels: dict[str, None] = {}
    trials: list[EffectTrial] = []
    for block in study_blocks:
        knob = block.system.knobs.get(name)
        if knob is None:
            continue
        if knob.sets:
            return  # a hardware number, which `warn_of_unread` sees
        middle = (knob.low + knob.high) / 2
        inside = np.floor(middle) if knob.kind == "count" else middle
        stated = [axis.values for axis in block.grid.axes if axis.name == name]
        tried: list[KnobSetting] = [*np.ravel(stated), knob.low, inside, knob.high]
        if knob.kind == "count":
            # of a range up to millions, what matters is far below its middle
            tried.append(max(knob.low, np.floor(knob.high**0.25)))
        if knob.default != "auto":
            tried.append(knob.default)
        if knob.choices:
            tried = [*range(len(knob.choices))]
        values = dict.fromkeys(tried)
        trials.append([(block.given({name: value}), NO_NUMBERS) for value in values])
        texts = (each if isinstance(each, str) else f"{each:g}" for each in values)
        labels |= dict.fromkeys(knob.choices or texts)
    if len(labels) > 1 and _are_alike(trials):
        warn(
            f"--knob {name} changes nothing here: answers are the same at {', '.join(labels)}"
        )


EffectTrial = Sequence[tuple[Block, Mesh]]
"""Blocks that differ in a knob, or hardware numbers to take in place of those of their study."""
_FACTOR = 1024
"""Factor of a hardware number, within which an answer changes if it depends on it."""
_COUNT_FACTOR = 8
"""Factor of a count: a thousand GPUs have too many splits to try in passing."""


def _warn_if_without_effect(address: str, study_blocks: Sequence[Block]) -> None:
    """Warn of a hardware number that is read, and on which no answer depends all the same."""
    trials: list[EffectTrial] = []
    key = study_blocks[0].platform.key(address)
    most = _COUNT_FACTOR if key.whole else _FACTOR
    for block in study_blocks:
        (axis,) = [axis for axis in block.grid.axes if block.sets.get(axis.name) == address]
        values = {float(value) for value in axis.values}
        for factor in (1.0, 1 / most, float(most)):
            value = factor * (axis.values[0] or 1.0)
            values.add(float(np.clip(np.ceil(value) if key.whole else value, *key.limits)))
        trials.append([(block, {address: np.array(value)}) for value in sorted(values)])
    if _are_alike(trials):
        warn(
            f"--set {address} changes nothing here: {most:,} times less and more give the same"
        )


def _are_alike(trials: Sequence[EffectTrial]) -> bool:
    """True if the answers of each trial are the same with any of its changes, and some fit."""
    fits = False
    for trial in trials:
        first: list[CellArray] = []
        for block, numbers in trial:
            try:
                metrics = _metrics(block, block.grid.whole, numbers)
            except InputError:
                # not every value goes with all others, so there is a difference
                return False
            first = first or metrics
            for pair in zip(first, metrics, strict=True):
                before, after = np.broadcast_arrays(*pair)  # they may differ in shape
                if not np.array_equal(before, after, equal_nan=True):
                    return False
        fits |= bool(np.any(first[0]))
    return fits
