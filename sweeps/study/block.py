"""The design points of one system on one platform, and what the system is called with there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.models import llms_from_parts, stated_widths
from nearkv.costmodel.model.registry import System
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import Part, Platform
from nearkv.hardware.machine import Machine, recording
from nearkv.solvers.knobs import Requested, Resolved, resolve_knobs
from nearkv.sweeps.study.bands import Band, draws_of
from nearkv.sweeps.study.grid import Axis, Box, Grid
from nearkv.sweeps.study.trace import Trace, workload_of

Numbers = NDArray[np.float64]
Inputs = tuple[Machine, LLM, Workload, dict[str, Requested]]
"""Machine, model, workload and knobs: what a system is called with."""
NONE: Mapping[str, Numbers] = MappingProxyType({})


@dataclass(frozen=True)
class Block:
    """The points of a study that one system evaluates on one platform, as one grid.

    Attributes:
        system, platform: what runs where.
        parts: the models along the `model` axis.
        grid: axes of the workload, of set numbers and of swept knobs.
        sets: axes that replace a hardware number: axis name -> `role.key`.
        requested: knobs that a solver or a rule chooses, by name.
        traces: requests along the `trace` axis, where there is one.
        method: `fluid` or `simulate`.
        band: how the range of each answer is computed, where one is asked for.
    """

    system: System
    platform: Platform
    parts: tuple[Part, ...]
    grid: Grid
    sets: Mapping[str, str]
    requested: Mapping[str, Requested]
    traces: tuple[Trace, ...] = ()
    method: str = "fluid"
    band: Band | None = None

    @property
    def is_closed_form(self) -> bool:
        """Whether formulas answer alone: no simulation, and no band around the numbers."""
        return self.method != "simulate" and self.band is None

    @cached_property
    def display_grid(self) -> Grid:
        """The axes as columns show them: a hardware number in the unit that its name ends in."""
        axes = [self._display_axis(axis) for axis in self.grid.axes]
        return Grid(tuple(axes))

    def _display_axis(self, axis: Axis) -> Axis:
        if axis.name not in self.sets:
            return axis
        key = self.platform.key(self.sets[axis.name])
        shown = [key.shown(value) for value in axis.values]
        return Axis(axis.name + key.suffix, np.array(shown))

    def inputs(self, box: Box) -> Inputs:
        """What the system is called with for a box of design points."""
        return self.at(self.grid.mesh(box))

    def resolved(self, box: Box) -> Resolved:
        """The system's answer to a box of design points, with a number for every knob."""
        return resolve_knobs(self.system, *self.inputs(box))

    def at(
        self,
        mesh: Mapping[str, Numbers],
        numbers: Mapping[str, Numbers] = NONE,
        read: set[str] | None = None,
    ) -> Inputs:
        """What the system is called with at any values of the axes.

        Args:
            mesh: values by axis name, of shapes that broadcast.
            numbers: more hardware numbers to replace, by `role.key`, in SI.
            read: takes the name of each hardware number that is read, `role.key`.
        """
        mesh = {axis: _same_everywhere(values) for axis, values in mesh.items()}
        replaced = {key: mesh[axis] for axis, key in self.sets.items()}
        machine = self.platform.machine().with_values({**replaced, **numbers})
        if read is not None:
            machine = recording(machine, read)
        models = mesh["model"].astype(int)
        llm = llms_from_parts(self.parts, models, machine["precision"], self._set_widths)
        swept = {name: mesh[name] for name in self.system.defaults if name in mesh}
        return machine, llm, self._workload(mesh), {**swept, **self.requested}

    @property
    def draws(self) -> dict[str, str]:
        """Uncertain hardware numbers that the study does not set, and the draw of each."""
        return draws_of(self.platform, self.sets.values())

    @property
    def _set_widths(self) -> list[str]:
        """Widths of elements that the user set, which override those of a model's own."""
        addresses = [address.partition(".") for address in self.sets.values()]
        return [key for role, _, key in addresses if role == "precision"]

    def overridden(self, models: NDArray[np.intp]) -> dict[str, NDArray[np.bool_]]:
        """Sentence on a width that the user set -> where the model states its own."""
        notes: dict[str, NDArray[np.bool_]] = {}
        for key in self._set_widths:
            stating = [i for i, part in enumerate(self.parts) if stated_widths(part, key)]
            if stating:
                sentence = f"precision.{key} as set, not the model's own"
                notes[sentence] = np.isin(models, stating)
        return notes

    def _workload(self, mesh: Mapping[str, Numbers]) -> Workload:
        if self.traces:
            return workload_of(self.traces, mesh["trace"].astype(int))
        return Workload(mesh["batch"], mesh["context_tok"], mesh["output_tokens"])


def _same_everywhere(values: Numbers) -> Numbers:
    """An array of one number as that number, with which the formulas compute much faster."""
    is_one = isinstance(values, np.ndarray) and values.size == 1
    return values.reshape(-1)[0] if is_one else values
