"""Arguments of functions: text as on the command line, numbers, names, lists, paths."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, cast

from nearkv.hardware.catalog import Platform
from nearkv.hardware.errors import InputError, check_known
from nearkv.hardware.platform import Part
from nearkv.sweeps.study.axes import FIELD_OF
from nearkv.sweeps.study.sizes import names
from nearkv.sweeps.study.study import NO_MODEL, Study, stated_study
from nearkv.sweeps.study.study_files import load_study, varied

Value = str | float | os.PathLike[str]
Values = Value | Iterable[Value]
"""One value or several: `"64k"`, `1024`, `[1024, 2048]`, `range(1024, 4096, 1024)`."""
Names = Value | Iterable[Value]
"""One name or several, also with commas between them, or paths of files."""
Models = Names | Part | Iterable[Value | Part]
Platforms = Names | Platform | Iterable[Value | Platform]
_HOLDS_AXES = "the first argument is a study, which holds the axes"


_OBJECTS: Mapping[str, type[object]] = {"model": Part, "platform": Platform}


class Axes(TypedDict, total=False):
    """Axes that may vary over design points, beside systems and models.

    Attributes:
        batch: sequences served together; 16 by default.
        context: prompt tokens of each sequence; 32k by default.
        output_tokens: tokens that each sequence generates; 64 by default.
        platform: names, files or `load_platform` objects; `own` for each system's test bed, by
            default that of the first system named of each family.
        sets: hardware number (`role.key`) -> values, with their unit where they have one.
        knobs: knob -> values, the name of a rule, or `auto`.
        trace: names or CSV files of requests, in place of batch, context and output_tokens.
        published: whether knobs that are not stated are set as the systems' papers do.
        method: `fluid`, or `simulate` to simulate a queue.
        seed: of the requests drawn from a trace, and of the draws of a band.
        band: share of the draws inside the range of each answer [%]; none by default.
        samples: draws of a band.
        zip: axis -> values that go together with those of the other axes here, one by one.
        parts: role -> parts that fill it in place of the platform's own.
        plugin: files that register systems of your own, as in `my_system.py`.
    """

    batch: Values
    context: Values
    output_tokens: Values
    platform: Platforms
    sets: Mapping[str, Values]
    knobs: Mapping[str, Values]
    trace: Names
    published: bool
    method: str
    seed: int
    band: float
    samples: int
    zip: Mapping[str, Values]
    parts: Mapping[str, Values]
    plugin: Names


class LoadAxes(Axes, total=False):
    """Axes, and how requests are served.

    Attributes:
        per_round: sequences of a batch that run together at most, in equal rounds.
        rate: requests per second that arrive at random, in place of a batch.
        users: that ask again when they are answered, in place of a batch.
        slo: limits that requests keep to count for goodput, as "ttft_s=10,tpot_ms=66".
    """

    per_round: Values
    rate: Values
    users: Values
    slo: str | Iterable[str]


def names_of(value: Any, name: str, kind: type[Any] = str) -> tuple[Any, ...]:
    """Names as a tuple, whether they come with commas between them or in a list.

    Args:
        value: one or several.
        name: of the argument.
        kind: of objects that stand for themselves.

    Raises:
        InputError: no text and no list of texts, or no name at all.
    """
    stated = names(value, name, kind)
    if not stated:
        raise InputError(
            f"{name}={value!r} does not name anything; give a name or leave it out"
        )
    return stated


def path_of(value: Value, name: str) -> str:
    """A text or a path as text.

    Raises:
        InputError: anything else.
    """
    if isinstance(value, str | os.PathLike):
        return str(os.fspath(value))
    raise InputError(f"{name}={value!r}: give text or a path")


def study_of(systems: Study | Names, model: Models | None, axes: Axes) -> Study:
    """Collect arguments into a study; one that is a study already stays as it is.

    Raises:
        InputError: an argument that does not exist or cannot be read, or that a study holds.
    """
    if isinstance(systems, Study):
        if model is not None or axes:
            raise InputError(f"{_HOLDS_AXES}: give them there")
        return systems
    if not model:
        raise InputError(NO_MODEL)
    fields = _fields(axes) | {"systems": systems, "models": model}
    named: dict[str, object] = {"systems": systems, "model": model}
    named |= {name: axes.get(name) for name in ("platform", "trace", "plugin")}
    for name, value in named.items():
        if value is not None:
            names_of(value, name, _OBJECTS.get(name, str))
    return stated_study(**fields)


def study_or_axes(
    study: Study | Value | None, systems: Names | None, model: Models | None, axes: Axes
) -> Study:
    """A study as it is or from its file, with the arguments that vary it, else one of arguments.

    Raises:
        InputError: systems or a model are missing.
    """
    if study is None and (systems is None or model is None):
        raise InputError("give a study, or systems and a model")
    if study is None:
        return study_of(cast("Names", systems), model, axes)
    plugins = names(axes.get("plugin", ()), "plugin")
    if not isinstance(study, Study):
        study = load_study(path_of(study, "study"), plugins)
    named: dict[str, Any] = {"systems": systems, "models": model}
    fields = {name: value for name, value in named.items() if value is not None}
    return varied(study, fields | _fields(axes))


def _fields(axes: Axes) -> dict[str, Any]:
    """Arguments by the field of `Study` that they are.

    Raises:
        InputError: an argument that does not exist.
    """
    check_known("argument", axes, LoadAxes.__annotations__)
    return {FIELD_OF.get(name, name): value for name, value in axes.items()}
