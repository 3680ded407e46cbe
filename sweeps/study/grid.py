"""Design points as a sparse mesh of axes, and what one system is called with there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Numbers
from nearkv.costmodel.model.layers import with_widths
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.metrics import Evaluated
from nearkv.costmodel.model.models import llms_from_parts, stated_widths
from nearkv.costmodel.model.registry import System
from nearkv.costmodel.model.workload import ENDLESS_TOKENS, Arrivals, Workload
from nearkv.hardware.catalog import Part, Platform
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine, recording
from nearkv.solvers.knobs import KnobSetting, Resolved, resolve_knobs
from nearkv.sweeps.study.bands import Band, draws_of
from nearkv.sweeps.study.traces import OUTRUN, Trace, workload_of

Inputs = tuple[Machine, LLM, Workload, dict[str, KnobSetting]]
"""Machine, model, workload and knobs: what a system is called with."""
Mesh = Mapping[str, Numbers]
"""Values by axis, or numbers of a machine by `role.key`, of shapes that broadcast."""
NO_NUMBERS: Mesh = MappingProxyType({})
Slices = tuple[slice, ...]
"""A rectangular piece of a grid, one slice per axis."""

POINTS_AT_ONCE = 1 << 16
"""Design points evaluated together: calls of NumPy cost little, arrays stay in cache."""
IMPLIED = ("dense", "head", "operand")
"""Widths that a format of the weights sets beside them."""
MOST_AXES = 56
"""Arrays have 64 dimensions; solvers add some of their own to those of a grid."""


@dataclass(frozen=True)
class Axis:
    """One dimension of a grid.

    Attributes:
        name: column name.
        values: numbers along the axis, or indices into `labels`.
        labels: names, where the axis is one of names.
    """

    name: str
    values: NDArray[np.float64]
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grid:
    """The product of axes, in row-major order, which is never materialised."""

    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        """Refuse more axes than arrays have dimensions.

        Raises:
            InputError: too many axes.
        """
        count = len(self.axes)
        if count > MOST_AXES:
            advice = (
                "write the numbers that do not vary into a platform, --platform FILE.toml"
            )
            raise InputError(
                f"{count} axes are more than the {MOST_AXES} of a grid; {advice}"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values along each axis."""
        return tuple(len(axis.values) for axis in self.axes)

    @property
    def size(self) -> int:
        """Number of design points."""
        return math.prod(self.shape)

    @property
    def whole(self) -> Slices:
        """The box of all points."""
        return tuple(slice(0, n) for n in self.shape)

    def boxes(self, most: int) -> Iterator[Slices]:
        """Cut the grid into boxes of at most `most` points, consecutive in row-major order."""
        # the first of the innermost axes whose points all fit one box together
        inside = np.cumprod(self.shape[::-1], dtype=float) <= most
        cut = len(self.shape) - np.count_nonzero(inside)
        tail = self.whole[cut:]
        if cut == 0:
            yield tail
            return
        inner = math.prod(self.shape[cut:])
        for outer in np.ndindex(*self.shape[: cut - 1]):
            head = tuple(slice(i, i + 1) for i in outer)
            for piece in _even_pieces(self.shape[cut - 1], max(most // inner, 1)):
                yield (*head, piece, *tail)

    def mesh(self, box: Slices) -> dict[str, NDArray[np.float64]]:
        """Values of every axis in a box, each shaped to broadcast along its own dimension."""
        mesh: dict[str, NDArray[np.float64]] = {}
        for place, (axis, piece) in enumerate(zip(self.axes, box, strict=True)):
            shape = [1] * len(self.axes)
            shape[place] = -1
            mesh[axis.name] = axis.values[piece].reshape(shape)
        return mesh


def shape_of(box: Slices) -> tuple[int, ...]:
    """Number of values of a box along each axis."""
    return tuple(piece.stop - piece.start for piece in box)


def _even_pieces(length: int, most: int) -> Iterator[slice]:
    """Cut an axis into pieces of equal length, with no small one at the end."""
    pieces = math.ceil(length / most)
    width = math.ceil(length / pieces)
    for start in range(0, length, width):
        yield slice(start, min(start + width, length))


@dataclass(frozen=True)
class Block:
    """The points of a study that one system evaluates on one platform, as one grid.

    Attributes:
        system, platform: what runs where.
        parts: the models along the `model` axis.
        grid: axes of the workload, of set numbers and of swept knobs.
        sets: axes that replace a hardware number: axis name -> `role.key`.
        open_knobs: knobs that a solver or a rule chooses, by name.
        traces: requests along the `trace` axis, where there is one.
        method: `fluid` or `simulate`.
        band: how the range of each answer is computed, where one is asked for.
        slo: limits that an answer keeps to count, by column.
        seed: of arrival times.
    """

    system: System
    platform: Platform
    parts: tuple[Part, ...]
    grid: Grid
    sets: Mapping[str, str]
    open_knobs: Mapping[str, KnobSetting]
    traces: tuple[Trace, ...] = ()
    method: str = "fluid"
    band: Band | None = None
    slo: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0

    @property
    def is_closed_form(self) -> bool:
        """True if formulas answer alone: no simulation, and no band around the numbers."""
        return self.method != "simulate" and self.band is None

    @property
    def at_once(self) -> int:
        """Design points, times draws of a band, to evaluate together.

        Fewer where a solver tabulates each number of heads or layers at every point: the more of
        them a model has, the fewer, so that tables take the same memory.
        """
        solvers = {knob.solver for knob in self.system.knobs.values()}
        if not any(solver.startswith("mapping-") for solver in solvers):
            return POINTS_AT_ONCE
        units = max(max(part.si["heads"], part.si["layers"]) for part in self.parts)
        return max(POINTS_AT_ONCE * 12 // int(units), 1)

    @cached_property
    def display_grid(self) -> Grid:
        """The axes as columns show them: a hardware number in the unit that its name ends in."""
        return Grid(tuple(map(self._display_axis, self.grid.axes)))

    def _display_axis(self, axis: Axis) -> Axis:
        if axis.name not in self.sets:
            return axis
        key = self.platform.key(self.sets[axis.name])
        shown = [key.shown(value) for value in axis.values]
        return Axis(axis.name + key.suffix, np.array(shown))

    def inputs(self, box: Slices) -> Inputs:
        """Arguments of the system for a box of design points."""
        return self.at(self.grid.mesh(box))

    def resolved(self, box: Slices) -> Resolved:
        """The system's answer to a box of design points, with a number for every knob."""
        return resolve_knobs(self.system, *self.inputs(box))

    def given(self, knobs: Mapping[str, KnobSetting]) -> Block:
        """The block with some knobs set otherwise."""
        return replace(self, open_knobs={**self.open_knobs, **knobs})

    def answer(
        self, mesh: Mesh, numbers: Mesh = NO_NUMBERS, read: set[str] | None = None
    ) -> Evaluated:
        """The system's answer at any values of the axes; the arguments are those of `at`."""
        hw, llm, work, settings = self.at(mesh, numbers, read)
        resolved = resolve_knobs(self.system, hw, llm, work, settings)
        return Evaluated(resolved.estimate, hw, self.system.owns)

    def at(
        self,
        mesh: Mesh,
        numbers: Mesh = NO_NUMBERS,
        read: set[str] | None = None,
    ) -> Inputs:
        """Arguments of the system at any values of the axes.

        Args:
            mesh: values by axis name, of shapes that broadcast.
            numbers: more hardware numbers to replace, by `role.key`, in SI.
            read: takes the name of each hardware number that is read, `role.key`.
        """
        replaced: dict[str, Numbers] = {}
        swept: dict[str, KnobSetting] = {}
        workload: dict[str, Numbers] = {}
        for axis, values in mesh.items():
            # the formulas compute much faster with a number than with an array of one
            value = values.reshape(-1)[0] if values.size == 1 else values
            if axis in self.sets:
                replaced[self.sets[axis]] = value
            elif axis in self.system.defaults:
                swept[axis] = value
            else:
                workload[axis] = value
        machine = self.platform.machine().with_values({**replaced, **numbers})
        if read is not None:
            machine = recording(machine, read)
        models = workload["model"].astype(int)
        llm = llms_from_parts(self.parts, models, machine["precision"], self._set_widths)
        if "skew" in machine["router"]:
            llm = with_widths(llm, router_skew=machine["router"].skew)
        arrivals = self._arrivals(workload)
        batch = workload.get("batch", workload.get("users", ENDLESS_TOKENS))
        if self.traces:
            work = workload_of(self.traces, workload["trace"].astype(int))
        else:
            work = Workload(batch, workload["context_tok"], workload["output_tokens"])
        if "per_round" in workload:
            work = replace(work, per_round=workload["per_round"])
        if arrivals is not None:
            work = replace(work, batch=batch, arrivals=arrivals)
        return machine, llm, work, {**swept, **self.open_knobs}

    def _arrivals(self, workload: Mesh) -> Arrivals | None:
        """Arrivals of requests, where they do not all wait from the start."""
        limits: dict[str, Any] = {
            "ttft_slo": self.slo.get("ttft_s", np.inf),
            "tpot_slo": self.slo.get("tpot_ms", np.inf) / 1e3,
        }
        if "users" in workload:
            return Arrivals(users=workload["users"], **limits)
        if "rate_req_s" in workload:
            return Arrivals(rate=workload["rate_req_s"], **limits)
        if self.traces and all(trace.arrival is not None for trace in self.traces):
            rates = np.array([trace.rate for trace in self.traces])
            timed = Arrivals(rate=rates[workload["trace"].astype(int)], **limits)
            return replace(timed, overload="" if self.method == "simulate" else OUTRUN)
        return None

    @property
    def draws(self) -> dict[str, str]:
        """Uncertain hardware numbers that the study does not set, and the draw of each."""
        return draws_of(self.platform, self.sets.values())

    @property
    def _set_widths(self) -> list[str]:
        """Widths of elements that the user set, which override those of a model's own."""
        widths = "precision."
        addresses = [name for name in self.sets.values() if name.startswith(widths)]
        return [name.removeprefix(widths) for name in addresses]

    @property
    def of_siblings(self) -> dict[str, NDArray[np.bool_]]:
        """Sentence on each chip that is used and on which not all was measured."""
        roles = self.platform.roles
        chips = [roles[role] for role in self.system.owns if role in roles]
        sentences = [
            f"{chip.name}: rates as on {', '.join(chip.siblings)}"
            for chip in chips
            if chip.siblings
        ]
        return dict.fromkeys(sentences, np.array(True))

    def overridden(self, models: NDArray[np.intp]) -> dict[str, NDArray[np.bool_]]:
        """Sentence on a width that the user set -> where the model states its own."""
        notes: dict[str, NDArray[np.bool_]] = {}
        keys = self._set_widths
        if "weight" in keys:
            keys = [key for key in keys if key not in IMPLIED]
        for key in keys:
            stating = [i for i, part in enumerate(self.parts) if stated_widths(part, key)]
            if stating:
                sentence = f"precision.{key} as set, not the model's own"
                notes[sentence] = np.isin(models, stating)
        return notes


def scalar(value: object) -> float:
    """The number of one design point."""
    return float(np.ravel(np.asarray(value))[0])
