"""Hardware numbers that a user sets and that no system of the study reads."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass, field, fields, replace

from nearkv.hardware.errors import warn
from nearkv.hardware.machine import Machine, recording
from nearkv.hardware.platform import Platform
from nearkv.sweeps.evaluate.cells import cells
from nearkv.sweeps.evaluate.idle_knobs import warn_of_idle_knobs
from nearkv.sweeps.study.study import Block, Study, blocks

_POINTS = 4096
"""Design points of a block that are looked at, its first."""


@dataclass(frozen=True)
class _RecordingPlatform(Platform):
    """A platform whose machines remember which of their numbers were read, as `role.key`."""

    read: set[str] = field(default_factory=set)

    def machine(self) -> Machine:
        return recording(super().machine(), self.read)


def checked_blocks(study: Study) -> list[Block]:
    """The blocks of a study; warns of each number and knob that is set and changes nothing.

    Raises:
        InputError: the study cannot be evaluated.
    """
    study_blocks = blocks(study)
    warn_of_no_effect(study, study_blocks)
    return study_blocks


def warn_of_no_effect(study: Study, study_blocks: Sequence[Block]) -> None:
    """Warn of each number, part and knob of a study that changes nothing."""
    warn_of_unread_sets(study_blocks)
    warn_of_idle_knobs(study, study_blocks)


def warn_of_unread_sets(study_blocks: Sequence[Block]) -> None:
    """Warn of each number and each part that is set and changes nothing: no system reads it."""
    numbers = {address for block in study_blocks for address in block.sets.values()}
    swaps = {swap for block in study_blocks for swap in block.platform.swapped.items()}
    if not (numbers or swaps):
        return
    read, why = _read_by(study_blocks), _nobody_of(study_blocks)
    warn_of_unread(numbers, read, why)
    roles = {number.partition(".")[0] for number in read}
    for role, part in sorted(swaps):
        if role not in roles:
            warn(f"--part {role}={part} changes nothing: {why}")


def warn_of_unread_searched(
    addresses: Collection[str], study_blocks: Sequence[Block], option: str
) -> None:
    """Warn of each number that is searched and changes nothing: no system reads it.

    Args:
        addresses: what is searched, as `role.key`; a number that no platform states counts as read.
        study_blocks: the design points.
        option: that names what is searched.
    """
    stated = set()
    for block in study_blocks:
        for role, part in block.platform.roles.items():
            stated |= {f"{role}.{key}" for key in part.numbers}
    if numbers := stated & set(addresses):
        read = _read_by(study_blocks)
        warn_of_unread(numbers, read, _nobody_of(study_blocks), option)


def _read_by(study_blocks: Sequence[Block]) -> set[str]:
    """Numbers that any block depends on, as `role.key`."""
    return {number for block in study_blocks for number in _read(block)}


def _nobody_of(study_blocks: Sequence[Block]) -> str:
    """That no system of a study reads a number or a part."""
    systems = ", ".join(dict.fromkeys(block.system.name for block in study_blocks))
    return f"no system here reads it ({systems})"


def warn_of_unread(
    numbers: Collection[str], read: Set[str], why: str, option: str = "--set"
) -> None:
    """Warn of each number that is varied and was not read.

    Args:
        numbers: that are varied, as `role.key`.
        read: what was read.
        why: a number that is not read changes nothing.
        option: that varies them.
    """
    for address in sorted(set(numbers) - read):
        warn(f"{option} {address} changes nothing: {why}")


def _read(block: Block) -> set[str]:
    """Numbers that the columns of a block depend on, as `role.key`."""
    own = {item.name: getattr(block.platform, item.name) for item in fields(block.platform)}
    platform = _RecordingPlatform(**own)
    fluid = replace(block, platform=platform, method="fluid", band=None)
    cells(fluid, next(fluid.grid.boxes(_POINTS)))
    return platform.read
