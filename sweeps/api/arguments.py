"""Read what people pass to a function: text as the command line reads it, numbers, lists, paths."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import TypedDict, TypeVar, cast

from nearkv.hardware.catalog import Platform
from nearkv.hardware.errors import InputError, unknown
from nearkv.hardware.part import Part
from nearkv.sweeps.study.bands import check_draws
from nearkv.sweeps.study.study import Study, comma_list
from nearkv.sweeps.study.study_files import load_study

Object = TypeVar("Object", Part, Platform)
Value = str | float | os.PathLike[str]
Values = Value | Iterable[Value]
"""One value or several: `"64k"`, `1024`, `[1024, 2048]`, `range(1024, 4096, 1024)`."""
Names = Value | Iterable[Value]
"""One name or several, also with commas between them, or paths of files."""
Models = Names | Part | Iterable[Value | Part]
Platforms = Names | Platform | Iterable[Value | Platform]
_HOLDS_AXES = "the first argument is a study, which holds the axes"


class Axes(TypedDict, total=False):
    """What may vary over design points, beside systems and models.

    Attributes:
        batch: sequences served together; 16 by default.
        context: prompt tokens of each sequence; 32k by default.
        output_tokens: tokens that each sequence generates; 64 by default.
        platform: names, files or `load_platform` objects; by default that of each system's paper.
        sets: hardware number (`role.key`) -> values, with their unit where they have one.
        knobs: knob -> values, the name of a rule, or `auto`.
        trace: names or CSV files of requests, in place of batch, context and output_tokens.
        method: `fluid`, or `simulate` to simulate the queue of a trace.
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
    method: str
    seed: int
    band: float
    samples: int
    zip: Mapping[str, Values]
    parts: Mapping[str, Values]
    plugin: Names


def text_of(value: object, name: str) -> str:
    """Write a value or several as the command line reads them.

    Args:
        value: text, a number, a path, or an iterable of these.
        name: the argument, for the error.

    Raises:
        InputError: something else.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    problem = "give text, a number, a path, or a list of these"
    if isinstance(value, bool | bytes | Mapping):
        raise InputError(f"{name}={value!r}: {problem}")
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):
        number = float(value)
        return str(int(number)) if number.is_integer() else repr(number)
    if isinstance(value, Iterable):
        return ",".join(text_of(item, name) for item in value)
    raise InputError(f"{name}={value!r}: {problem}")


def names_of(value: Names, name: str) -> tuple[str, ...]:
    """Names as a tuple, whether they come with commas between them or in a list.

    Raises:
        InputError: no text and no list of texts, or no name at all.
    """
    names = comma_list(text_of(value, name))
    if not names:
        raise InputError(
            f"{name}={value!r}: does not name anything; give a name or leave it out"
        )
    return names


def study_of(systems: Study | Names, model: Models | None, axes: Axes) -> Study:
    """Collect arguments into a study; one that is a study already stays as it is.

    Raises:
        InputError: an argument that does not exist or cannot be read, or that a study holds.
    """
    if isinstance(systems, Study):
        if model is not None or axes:
            raise InputError(f"{_HOLDS_AXES}: give them there")
        return systems
    if model is None:
        raise InputError("model is missing; name one, as in model='opt-66b'")
    for name in axes:
        if name not in Axes.__annotations__:
            raise unknown("argument", name, Axes.__annotations__)
    seed = axes.get("seed", Study.seed)
    samples = axes.get("samples", Study.samples)
    traces = names_of(axes["trace"], "trace") if "trace" in axes else ()
    check_draws(seed, samples, axes.get("band"), traces)
    sizes = {
        "batch": _sizes(axes.get("batch", Study.batch), "batch"),
        "context": _sizes(axes.get("context", Study.context), "context"),
        "output_tokens": _sizes(
            axes.get("output_tokens", Study.output_tokens), "output_tokens"
        ),
    }
    return Study(
        systems=names_of(systems, "systems"),
        models=_objects_or_names(model, Part, "model"),
        platforms=_objects_or_names(axes.get("platform", ()), Platform, "platform"),
        sets=_texts(axes.get("sets", {}), "sets"),
        knobs=_texts(axes.get("knobs", {}), "knobs"),
        parts=_texts(axes.get("parts", {}), "parts"),
        zipped=_texts(axes.get("zip", {}), "zip"),
        traces=traces,
        method=text_of(axes.get("method", Study.method), "method"),
        seed=seed,
        band=axes.get("band", Study.band),
        samples=samples,
        plugins=names_of(axes["plugin"], "plugin") if "plugin" in axes else (),
        batch=sizes["batch"],
        context=sizes["context"],
        output_tokens=sizes["output_tokens"],
    )


def _sizes(value: Values, name: str) -> str:
    """Sizes as the command line reads them.

    Raises:
        InputError: an empty list or text, which would otherwise pass for the default.
    """
    text = text_of(value, name)
    if not text.strip(" ,"):
        raise InputError(
            f"{name}={value!r}: has no value; give one or leave the argument out"
        )
    return text


def study_or_axes(
    study: Study | Value | None, systems: Names | None, model: Models | None, axes: Axes
) -> Study:
    """A study as it is or from its file, else one collected from arguments.

    Raises:
        InputError: both are given, or neither.
    """
    if study is None and (systems is None or model is None):
        raise InputError("give a study, or systems and a model")
    if study is None:
        return study_of(cast("Names", systems), model, axes)
    if systems is not None or model is not None or axes:
        advice = "or leave it out and name all others, as in systems='hilos'"
        raise InputError(f"{_HOLDS_AXES}: give them there, {advice}")
    return study if isinstance(study, Study) else load_study(text_of(study, "study"))


def _objects_or_names(
    value: object, kind: type[Object], name: str
) -> tuple[str | Object, ...]:
    """Objects of a kind as they are, everything else as names."""
    if isinstance(value, kind):
        return (value,)
    if isinstance(value, str | os.PathLike) or not isinstance(value, Iterable):
        return names_of(cast("Names", value), name)
    several: list[str | Object] = []
    for item in value:
        several += _objects_or_names(item, kind, name)
    return tuple(several)


def _texts(values: Mapping[str, Values], name: str) -> dict[str, str]:
    if not isinstance(values, Mapping):
        raise InputError(
            f"{name}={values!r}: give a dictionary, as in {name}={{'csd.count': 8}}"
        )
    for key in values:
        if not isinstance(key, str):
            raise InputError(f"{name}: {key!r} is no name; give text, as in 'csd.count'")
    texts = {key: text_of(value, f"{name}[{key!r}]") for key, value in values.items()}
    for key, text in texts.items():
        if not text:
            raise InputError(f"{name}[{key!r}] has no value; give one, or leave it out")
    return texts
