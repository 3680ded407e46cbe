"""Read what a user says of a study: its axes, from text, numbers, names and lists of these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from numbers import Integral, Real
from typing import Any

from nearkv.hardware.errors import InputError, check_known
from nearkv.hardware.formats import FORMATTED, widths_of_format
from nearkv.hardware.schema import ROLES
from nearkv.hardware.units import unit_of
from nearkv.sweeps.study.sizes import (
    Amount,
    KnobValue,
    RawValues,
    Reader,
    choices,
    comma_list,
    names,
    pairs,
    per_second,
    size,
    size_or_none,
    values,
)

KnobValues = Mapping[str, tuple[KnobValue, ...]]
SLO_LIMITS = ("ttft_s", "tpot_ms")
"""Limits of a service level."""
QUEUE_METHODS = ("fluid", "simulate")
BAND_SAMPLES = 1024
"""Draws of a band."""


def _models(raw: RawValues, where: str) -> tuple[Any, ...]:
    from nearkv.hardware.platform import Part  # brings NumPy, which no help needs

    return names(raw, where, Part)


def _platforms(raw: RawValues, where: str) -> tuple[Any, ...]:
    from nearkv.hardware.platform import Platform

    return names(raw, where, Platform)


def _numbers(raw: RawValues, where: str, read: Reader) -> tuple[float, ...]:
    """Numbers of an axis; none of one that is left out."""
    is_left_out = isinstance(raw, str | tuple) and not raw
    return () if is_left_out else tuple(values(raw, read, where))


def _sizes(
    raw: RawValues, where: str, read: Reader = size, different: bool = True
) -> tuple[float, ...]:
    """Sizes of an axis; of one that is paired with others, one may come more than once."""
    return tuple(values(raw, read, where, different))


_lengths = partial(_sizes, read=size_or_none)
_paired_sizes = partial(_sizes, different=False)
_paired_lengths = partial(_lengths, different=False)


def _limits(raw: str | Iterable[str], where: str) -> dict[str, float]:
    """Limits of a service level, each in the unit of its column: a dictionary, or text.

    Raises:
        InputError: one that is no limit, or without a number above zero.
    """
    if not isinstance(raw, Iterable):
        form = "give limits, as 'ttft_s=10,tpot_ms=66' or {'ttft_s': 10}"
        raise InputError(f"{where}: {form}, not {raw!r}")
    if not isinstance(raw, Mapping):
        listed = [raw] if isinstance(raw, str) else raw
        raw = pairs(chain.from_iterable(map(comma_list, listed)), where)
    limits: dict[str, float] = {}
    for name, text in raw.items():
        check_known("limit", [name], SLO_LIMITS, where)
        limits[name], *more = values(text, per_second, f"{where} {name}")
        if more:
            raise InputError(f"{where} {name}: {text!r} gives several limits; give one")
    return limits


def _each(
    raw: Mapping[str, RawValues],
    where: str,
    read: Callable[[RawValues, str], tuple[Any, ...]],
) -> dict[str, tuple[Any, ...]]:
    """Read the values of every name.

    Raises:
        InputError: no dictionary, a name that is no text, or one without a value.
    """
    if not isinstance(raw, Mapping):
        form = "give names and their values, as in {'csd.count': 8}"
        raise InputError(f"{where}: {form}, not {raw!r}")
    values_by_name = {}
    for name, listed in raw.items():
        if not isinstance(name, str):
            raise InputError(f"{where} {name!r} is no name; give text, as in 'csd.count'")
        values_by_name[name] = read(listed, f"{where} {name}")
        if not values_by_name[name]:
            raise InputError(f"{where} {name} has no value; give one, or leave it out")
    return values_by_name


def _whole_number(raw: Any, where: str) -> int:
    is_whole = isinstance(raw, Integral) and not isinstance(raw, bool)
    if not is_whole or int(raw) < 0:
        raise InputError(f"{where} {raw!r}: give a whole number, 0 or more")
    return int(raw)


def _method(raw: str, where: str) -> str:
    check_known("method", [str(raw)], QUEUE_METHODS, where)
    return str(raw)


def _percent(raw: Any, where: str) -> float:
    """Share of the draws inside a band [%]; 0 or None is no band."""
    is_number = isinstance(raw, Real) and not isinstance(raw, bool)
    if raw is not None and not is_number:
        raise InputError(f"{where} {raw!r}: give a number of percent, as in 90")
    if raw and not 1 <= raw <= 99:
        raise InputError(
            f"{where} {raw}: give the share inside in percent, from 1 to 99, as in 90"
        )
    return float(raw or 0)


def _is_asked(raw: Any, where: str) -> bool:
    if not isinstance(raw, bool):
        raise InputError(f"{where} {raw!r}: give true or false")
    return raw


def _pair(raw: RawValues, where: str) -> tuple[Any, ...]:
    """Values of an axis that is paired with others: of the table, a role, a number or a knob."""
    axis = where.partition(" ")[2]
    if axis in PAIRED:
        return PAIRED[axis].paired(raw, where)
    if axis in ROLES:
        return names(raw, where)
    return choices(raw, where, different=False)


def _no_pairs(raw: RawValues, where: str) -> tuple[Any, ...]:
    raise InputError(f"{where}: values of this are not paired")


@dataclass(frozen=True)
class StudyAxis:
    """One thing that a user may say of a study.

    Attributes:
        field: of `Study`.
        read: makes the field of what a user gives; it takes the option for its errors.
        default: as a user would give it.
        metavar, help: of the option.
        key: argument, option and key of a study file; the field where it is empty.
        paired: reads values that are paired with those of other axes by --zip.
    """

    field: str
    read: Callable[[Any, str], Any]
    default: Any
    metavar: str
    help: str
    key: str = ""
    paired: Callable[[RawValues, str], tuple[Any, ...]] = _no_pairs

    @property
    def name(self) -> str:
        """Argument and key of a study file."""
        return self.key or self.field

    @property
    def option(self) -> str:
        """Option as it is typed."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def is_repeated(self) -> bool:
        """True if its option may come more than once."""
        return isinstance(self.default, dict | tuple)

    @property
    def parameter(self) -> str:
        """Name of its option among the parameters of a command."""
        return self.field if self.is_repeated else self.name


AXES = (
    StudyAxis(
        "models",
        _models,
        "",
        "MODELS",
        "Comma-separated models, as `nearkv models` lists them, or path/config.json.",
        key="model",
        paired=names,
    ),
    StudyAxis(
        "batch",
        _sizes,
        "16",
        "SIZES",
        "Sequences served together: 16, 1,8,64 or 1:64:x2.",
        paired=_paired_sizes,
    ),
    StudyAxis(
        "context",
        _lengths,
        "32k",
        "SIZES",
        "Prompt tokens of each sequence: 64k or 8k:128k:x2; 0 begins with an empty cache.",
        paired=_paired_lengths,
    ),
    StudyAxis(
        "output_tokens",
        _sizes,
        "64",
        "SIZES",
        "Tokens that each sequence generates.",
        paired=_paired_sizes,
    ),
    StudyAxis(
        "platforms",
        _platforms,
        "",
        "PLATFORMS",
        "Comma-separated platforms, as `nearkv hardware` lists them, or path/file.toml; own: "
        "each system's own test bed; default: that of the first system named of each family.",
        key="platform",
        paired=names,
    ),
    StudyAxis(
        "sets",
        partial(_each, read=choices),
        {},
        "ROLE.KEY=VALUES",
        "Replace a hardware number: csd.count=4,8,16, precision.weight=fp8,int4.",
        key="set",
    ),
    StudyAxis(
        "knobs",
        partial(_each, read=choices),
        {},
        "KNOB=VALUES",
        "Set a knob to values, to a rule of the paper, or to auto: alpha=0,0.5,auto.",
        key="knob",
    ),
    StudyAxis(
        "zipped",
        partial(_each, read=_pair),
        {},
        "AXIS=VALUES",
        "An axis whose values are paired with those of every other --zip: context=1k,8k.",
        key="zip",
    ),
    StudyAxis(
        "parts",
        partial(_each, read=names),
        {},
        "ROLE=PARTS",
        "Swap a part of the platform: gpu=a100-40gb,h200-sxm or csd=./mine.toml.",
        key="part",
    ),
    StudyAxis(
        "traces",
        names,
        "",
        "TRACES",
        "Requests in place of lengths: openr1,dolphin, or FILE.csv of "
        "input_tokens,output_tokens and, if they arrive one by one, arrival_s.",
        key="trace",
        paired=names,
    ),
    StudyAxis(
        "published",
        _is_asked,
        False,
        "",
        "Set knobs that are not stated as the systems' papers do, in place of solving them.",
    ),
    StudyAxis(
        "method",
        _method,
        "fluid",
        "METHOD",
        "Service of a queue: fluid (averages), or simulate (request by request).",
    ),
    StudyAxis(
        "seed",
        _whole_number,
        0,
        "NUMBER",
        "Seed of the requests drawn from a trace, and of the draws of --band.",
    ),
    StudyAxis(
        "band",
        _percent,
        None,
        "PERCENT",
        "Add the interval that holds this share of the draws, and their median: 90.",
    ),
    StudyAxis(
        "samples",
        _whole_number,
        BAND_SAMPLES,
        "N",
        "How often --band draws all uncertain numbers.",
    ),
    StudyAxis(
        "plugins",
        names,
        (),
        "FILE.py",
        "A file that registers systems of your own.",
        key="plugin",
    ),
    StudyAxis(
        "per_round",
        partial(_numbers, read=size),
        "",
        "SIZES",
        "Run --batch in equal rounds of at most so many sequences; by default of what fits: 16.",
        paired=_paired_sizes,
    ),
    StudyAxis(
        "rate",
        partial(_numbers, read=per_second),
        "",
        "RATES",
        "Requests per second that arrive at random, in place of --batch: 0.5,1,2.",
    ),
    StudyAxis(
        "users",
        partial(_numbers, read=size),
        "",
        "SIZES",
        "Users that ask again when they are answered, in place of --batch: 1:64:x2.",
    ),
    StudyAxis(
        "slo",
        _limits,
        "",
        "LIMITS",
        "With --rate, --users or arrival times, what counts for goodput: "
        "ttft_s=10,tpot_ms=66.",
    ),
)
"""Everything that a user may say of a study, in the order of the help."""

FIELD_OF = {axis.name: axis.field for axis in AXES}
"""Argument or key of a study file -> field of a study."""
PAIRED = {axis.name: axis for axis in AXES if axis.paired is not _no_pairs}
WORKLOAD_OPTIONS = {
    name: axis.option
    for name, axis in PAIRED.items()
    if axis.paired in (_paired_sizes, _paired_lengths)
}
"""Axes of a workload, and the option of each."""


def read_axes(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a study, read from what a user gives.

    Args:
        raw: field -> text, number, name, or a list of these; others take their defaults.

    Raises:
        InputError: an unknown field, or a value that cannot be read.
    """
    axes = {axis.field: axis for axis in AXES}
    check_known("argument", raw, axes)
    read = {
        field: axis.read(raw.get(field, axis.default), axis.option)
        for field, axis in axes.items()
    }
    return read | in_numbers(read["sets"], read["zipped"])


def field_of(axis: str) -> str:
    """The field of a study that an axis of `--zip` replaces."""
    if axis in PAIRED:
        return PAIRED[axis].field
    if axis in ROLES:
        return "parts"
    return "sets" if "." in axis else "knobs"


# --- names of formats, as the numbers that they stand for -------------------------------------


def in_numbers(sets: KnobValues, zipped: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """The axes `sets` and `zipped` of a study with numbers in place of formats.

    Of several formats of weights, the numbers go together, as paired axes do.

    Raises:
        InputError: an unknown format, formats beside numbers, or several of weights beside `--zip`.
    """
    numbers: dict[str, Any] = {}
    paired: dict[str, Any] = {}
    for address, widths_or_names in sets.items():
        widths = _widths(address, widths_or_names, "--set")
        go_together = len(widths) > 1 and len(widths_or_names) > 1
        if go_together and zipped:
            raise InputError(
                f"--set {address}: name several formats in --zip, as its axes are"
            )
        (paired if go_together else numbers).update(widths)
    for address, widths_or_names in zipped.items():
        paired |= _widths(address, widths_or_names, "--zip")
    # what is stated of activations goes before what a format of weights implies
    for axes, option in ((sets, "--set"), (zipped, "--zip")):
        if _has_formats(axes.get("precision.activation", ())):
            stated = _widths("precision.activation", axes["precision.activation"], option)
            for others in (numbers, paired):
                others.pop("precision.operand", None)
            (numbers if option == "--set" else paired).update(stated)
    return {"sets": numbers, "zipped": paired}


def _has_formats(listed: tuple[Any, ...]) -> bool:
    return any(isinstance(value, str) for value in listed)


def _widths(
    address: str, listed: tuple[Any, ...], option: str
) -> dict[str, tuple[Any, ...]]:
    """The numbers that values of an axis stand for; the axis itself where they are no formats."""
    if address not in FORMATTED or not _has_formats(listed):
        return {address: listed}
    where = f"{option} {address}"
    if not all(isinstance(value, str) for value in listed):
        raise InputError(f"{where}: give formats, as in fp8, or bits, as in 8bit, not both")
    tables = [widths_of_format(address, name, where) for name in listed]
    numbers = dict.fromkeys(number for table in tables for number in table)
    # a format without a width of attention has one for all weights
    return {
        number: tuple(_bits(table.get(number, table.get(address, 0.0))) for table in tables)
        for number in numbers
    }


def _bits(width: float) -> Amount:
    return Amount(width * unit_of("bit")[1], "B", f"{width:g}bit")
