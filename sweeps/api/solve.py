"""`nearkv.solve`: the best value of a knob, of a batch, of a mapping, or of the hardware."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, TypeVar, Unpack, cast, get_type_hints

import pandas as pd

from nearkv.hardware.errors import InputError, unknown
from nearkv.sweeps.api.arguments import Axes, Models, Names, Values, path_of, study_of
from nearkv.sweeps.api.tables import table_of_columns, table_of_rows
from nearkv.sweeps.study.sizes import size, values
from nearkv.sweeps.study.study import Study, one_point

Item = TypeVar("Item")
_TEXTS = str | Iterable[str]
_TYPES: Mapping[Any, tuple[Any, str]] = {
    str: (str, "text"),
    int: (Integral, "a whole number"),
    int | None: ((Integral, type(None)), "a whole number"),
    float: (Real, "a number"),
    Mapping[str, float]: (Mapping, "a dictionary of numbers"),
    _TEXTS: (Iterable, "text or a list of texts"),
}
"""Type of an option -> what is accepted, in Python and in words."""
UNNAMED = "hilos"
"""Stands in a study whose question names its systems itself."""


class Options(Axes, total=False):
    """Axes, and what single questions take besides.

    Attributes:
        systems: names, where the question is about chosen systems.
        method: of `mapping`: exact, greedy, milp or brute.
        name: of `knob`: which one.
        robust: of `alpha`, `spill`, `knob` and `beta`, with a band: share of the draws to be best
            for.
        vary: of `hardware`: the number to choose (`csd.count=1:64`).
        slo: of `batch` and `hardware`: what must hold, as `step_ms=50,prefill_s=2`.
        along, of: of `crossover`: the axis (`context=4k:1M`), the column to compare by.
        search, gpu_batch, num_batches, fix: of `placement`.
        requests, prompts, homes, time_limit, slack: of `subbatch`.
        requests, iterations, finish, shortest, longest: of `mapping-trace`.
        tiers, system, rate_scale, block, policy, admission, nodes, years, check: of `tiers`; see
            `tier_sizes`.
    """

    systems: Names
    name: str
    robust: float
    vary: str
    slo: _TEXTS
    along: str
    of: str
    search: str
    gpu_batch: int | None
    num_batches: int | None
    fix: Mapping[str, float]
    requests: Values
    prompts: Values
    iterations: Values
    finish: float
    shortest: Values
    longest: Values
    homes: str
    time_limit: float
    slack: float
    tiers: _TEXTS
    system: str
    rate_scale: float
    block: int
    policy: str
    admission: str
    nodes: int
    years: float
    check: str


def solve(question: str, model: Study | Models, **options: Unpack[Options]) -> pd.DataFrame:
    """Find the best value of a knob, with a proven bound and the paper's rule beside it.

    Args:
        question: alpha, spill, knob, beta, mapping, mapping-trace, batch, hardware, crossover,
            placement, subbatch or tiers.
        model: names, config.json files or `load_model` objects; or a `Study`, which holds systems
            and axes too.
        options: axes as `compare` takes them, and what the question takes besides; see `Options`.

    Returns:
        A row a design point, with the columns of `nearkv solve QUESTION`;
        `table.attrs["conclusion"]` says in sentences why the answer is what it is.

    Raises:
        InputError: an unknown question, or an argument that the question does not take.

    >>> best = solve("alpha", model="opt-66b", context="64k")
    >>> bool(0 <= best["value"][0] <= 1)
    True
    >>> need = {"vary": "csd.count", "slo": "throughput_tok_s=0.5"}
    >>> int(solve("hardware", "opt-66b", context="64k", **need)["value"][0]) > 0
    True
    """
    question = path_of(question, "question")
    if question not in QUESTIONS:
        raise unknown("question", question, QUESTIONS, "solve")
    answer, own = QUESTIONS[question]
    for name in options:
        if name not in own:
            raise InputError(
                f"solve {question!r} does not take {name}; it takes {', '.join(own)}"
            )
    for name, value in options.items():
        if name not in Axes.__annotations__:
            _check_type(name, value)
    return answer(model, options)


def _check_type(name: str, value: object) -> None:
    """Refuse a value that is not of the type that an option has.

    Raises:
        InputError: naming the type.
    """
    hint = get_type_hints(Options)[name]
    kind, words = _TYPES.get(hint, (object, ""))
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InputError(f"{name}={value!r}: give {words or 'another value'}")
    items = value if isinstance(value, list | tuple) else ()
    if hint == _TEXTS and not all(isinstance(item, str) for item in items):
        raise InputError(f"{name}={value!r}: give {words}")


def _study(model: Study | Models, options: Options, systems: Names) -> Study:
    if isinstance(model, Study):
        return model
    axes = {name: value for name, value in options.items() if name in Axes.__annotations__}
    return study_of(options.get("systems", systems), model, cast("Axes", axes))


def _alpha(model: Study | Models, options: Options) -> pd.DataFrame:
    from nearkv.sweeps.explore.knob import best_knob, why_alpha

    study = _study(model, options, "hilos")
    answer = best_knob(study, "alpha", options.get("robust", 0.0))
    return table_of_columns(answer, why_alpha(answer))


def _spill(model: Study | Models, options: Options) -> pd.DataFrame:
    from nearkv.sweeps.explore.knob import best_knob, why_spill

    study = _study(model, options, "hilos")
    answer = best_knob(study, "interval", options.get("robust", 0.0))
    return table_of_columns(answer, why_spill(answer))


def _knob(model: Study | Models, options: Options) -> pd.DataFrame:
    from nearkv.sweeps.explore.knob import best_knob, why_knob

    name = path_of(_needed(options, "name", "alpha"), "name")
    answer = best_knob(_study(model, options, "hilos"), name, options.get("robust", 0.0))
    return table_of_columns(answer, why_knob(answer, name))


def _beta(model: Study | Models, options: Options) -> pd.DataFrame:
    from nearkv.sweeps.explore.beta import best_beta, why_beta

    study = _study(model, options, "hillinfer")
    answer = best_beta(study, options.get("robust", 0.0))
    return table_of_columns(answer, why_beta(answer))


def _batch(model: Study | Models, options: Options) -> pd.DataFrame:
    from nearkv.sweeps.explore.batch import best_batches, why_batch

    slo = _several(options.get("slo", ()))
    rows = best_batches(_study(model, options, "hilos"), slo)
    return table_of_rows(rows, why_batch(rows))


def _hardware(model: Study | Models, options: Options) -> pd.DataFrame:
    from nearkv.sweeps.explore.hardware import least_hardware, why_hardware

    slo = _several(_needed(options, "slo", "throughput_tok_s=0.5"))
    vary = _needed(options, "vary", "csd.count")
    rows = least_hardware(_study(model, options, "hilos"), vary, slo)
    return table_of_rows(rows, why_hardware(rows))


def _several(texts: str | Iterable[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else list(texts)


def _crossover(model: Study | Models, options: Options) -> pd.DataFrame:
    from nearkv.sweeps.explore.crossover import crossovers, why_crossover

    study = _study(model, options, "flexgen-dram,hilos")
    along = _needed(options, "along", "context=4k:1M")
    rows = crossovers(study, along, options.get("of", "decode_tok_s"))
    return table_of_rows(rows, why_crossover(rows))


def _mapping(model: Study | Models, options: Options) -> pd.DataFrame:
    from nearkv.sweeps.explore.mapping import best_mapping, why_mapping

    point = {"batch": "32", "context": "1k", "platform": "gh-asymmetric", **options}
    point["output_tokens"] = "1"
    method = str(point.pop("method", "exact"))
    study = _study(model, cast("Options", point), "asymmetric")
    answer = best_mapping(study, method)
    return table_of_columns(answer, why_mapping(answer))


def _mapping_trace(model: Study | Models, options: Options) -> pd.DataFrame:
    from nearkv.sweeps.explore.mapping_trace import (
        SYSTEMS,
        random_trace,
        replay,
        why_replay,
    )

    counts = {"requests": "32", "iterations": "128", "shortest": "1", "longest": "2k"}
    read = {}
    for name, default in counts.items():
        (number,) = values(options.get(name, default), size, f"--{name}")
        read[name] = int(number)
    finish, seed = options.get("finish", 0.02), options.get("seed", 0)
    trace = random_trace(finish=finish, seed=seed, **read)
    machine = {name: options[name] for name in ("platform", "sets") if name in options}
    point = {"batch": 1, "context": 1, "output_tokens": 1, "platform": "gh-asymmetric"}
    study = _study(model, cast("Options", {**point, **machine}), "asymmetric")
    answer = replay(*one_point(study), trace, SYSTEMS)
    return table_of_columns(answer, why_replay(answer))


def _placement(model: Study | Models, options: Options) -> pd.DataFrame:
    from nearkv.sweeps.explore.placement import placements, why_placement

    study = _study(model, options, UNNAMED)
    choice = {name: options.get(name) for name in ("gpu_batch", "num_batches")}
    rows = placements(
        study.models,
        options.get("context", 512),
        options.get("output_tokens", 32),
        study.platforms or ("t4-flexgen",),
        study.sets,
        study.parts,
        search=options.get("search", "full"),
        fixed=dict(options.get("fix", {})),
        **choice,
    )
    return table_of_rows(rows, why_placement(rows))


def _subbatch(model: Study | Models, options: Options) -> pd.DataFrame:
    from nearkv.sweeps.explore.subbatch import SubbatchPoint, subbatch, why_subbatch

    axes = {name: value for name, value in options.items() if name != "seed"}
    study = _study(model, cast("Options", axes), UNNAMED)
    point = SubbatchPoint(
        model=_one(study.models, "model"),
        platform=_one(study.platforms or ("dgx-a100-pim",), "platform"),
        requests=_needed(options, "requests", "[2048, 3072]"),
        prompts=options.get("prompts", ""),
        homes=options.get("homes", "balanced"),
        seed=options.get("seed", 0),
        time_limit=options.get("time_limit", 10.0),
        slack=options.get("slack", 0.02),
        sets=study.sets,
        parts=study.parts,
    )
    rows = subbatch(point)
    return table_of_rows(rows, why_subbatch(rows))


def _needed(options: Options, name: str, example: str) -> Any:
    if name not in options:
        raise InputError(f"solve: {name} is missing; give it, as in {name}={example!r}")
    return options[name]  # type: ignore[literal-required]


def _one(given: Sequence[Item], name: str) -> Item:
    """The only one of a list.

    Raises:
        InputError: there are several.
    """
    if len(given) != 1:
        raise InputError(f"--{name}: this question takes one, not a list")
    return given[0]


_AXES = ("systems", *Axes.__annotations__)
_MACHINE = ("platform", "sets", "parts")
Question = tuple[Callable[[Study | Models, Options], pd.DataFrame], tuple[str, ...]]


def _tiers(model: Study | Models, options: Options) -> pd.DataFrame:
    from nearkv.sweeps.api.reuse import tier_sizes

    if isinstance(model, Study):
        raise InputError(
            "solve 'tiers': takes a model, and the trace of requests beside it"
        )
    return tier_sizes(model, **cast("Any", options))


_SIZED = (
    "trace slo tiers policy admission nodes years check system rate_scale block platform sets "
    "parts"
)
QUESTIONS: Mapping[str, Question] = {
    "alpha": (_alpha, (*_AXES, "robust")),
    "spill": (_spill, (*_AXES, "robust")),
    "knob": (_knob, (*_AXES, "name", "robust")),
    "beta": (_beta, (*Axes.__annotations__, "robust")),
    "mapping": (_mapping, (*_MACHINE, "batch", "context", "method")),
    "mapping-trace": (
        _mapping_trace,
        (
            "platform",
            "sets",
            "requests",
            "iterations",
            "finish",
            "shortest",
            "longest",
            "seed",
        ),
    ),
    "batch": (_batch, (*_AXES, "slo")),
    "hardware": (_hardware, (*_AXES, "vary", "slo")),
    "tiers": (_tiers, tuple(_SIZED.split())),
    "crossover": (_crossover, (*_AXES, "along", "of")),
    "placement": (
        _placement,
        (
            *_MACHINE,
            "context",
            "output_tokens",
            "search",
            "gpu_batch",
            "num_batches",
            "fix",
        ),
    ),
    "subbatch": (
        _subbatch,
        (*_MACHINE, "requests", "prompts", "homes", "time_limit", "slack", "seed"),
    ),
}
"""Question -> what answers it, and the arguments it takes."""
