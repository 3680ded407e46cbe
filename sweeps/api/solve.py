"""`nearkv.solve`: the best value of a knob, of a batch, of a mapping, or of the hardware."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from inspect import signature
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Unpack

from nearkv.hardware.errors import InputError, check_known
from nearkv.sweeps.api.arguments import (
    Axes,
    Models,
    Names,
    Platforms,
    Values,
    path_of,
    study_of,
)
from nearkv.sweeps.api.reuse import tier_sizes
from nearkv.sweeps.api.tables import Findings
from nearkv.sweeps.explore.rows import sentences
from nearkv.sweeps.study.grid import NO_NUMBERS
from nearkv.sweeps.study.sizes import names
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.tables.table import Columns, Row, Rows

if TYPE_CHECKING:
    import pandas as pd

    from nearkv.sweeps.explore.knob import BestMeasured

StudyOrModels = Study | Models
Numbered = Mapping[str, Values]
"""Hardware number or role -> its values."""
ANY_SYSTEM = "hilos"
"""Stands in a study whose question names its systems itself."""


def solve(question: str, model: StudyOrModels, **options: Any) -> pd.DataFrame:
    """Find what is best: a value of a knob, a batch, a mapping, a placement, hardware, tiers.

    A knob between two numbers comes with a bound, what papers pick stands beside it; a search says
    that every value was tried, or not.

    Args:
        question: alpha, spill, knob, beta, mapping, batch, hardware, crossover,
            placement, subbatch or tiers, as the commands `nearkv solve QUESTION`.
        model: names, config.json files or `load_model` objects; or a `Study`, which holds systems
            and axes too.
        options: axes as `compare` takes them, and what the question takes besides: `systems`;
            `name` of knob; `method` of mapping; `vary` and `slo` of hardware; `slo` of batch;
            `along` and `of` of crossover.

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
    return solve_findings(question, model, **options).table()


def solve_findings(question: str, model: StudyOrModels, **options: Any) -> Findings:
    """The answer of `solve`, before it is a DataFrame.

    Raises:
        InputError: as of `solve`.
    """
    question = path_of(question, "question")
    check_known("question", [question], QUESTIONS, "solve")
    answer = QUESTIONS[question]
    try:
        signature(answer).bind(model, **options)
    except TypeError as problem:
        raise InputError(f"solve {question!r}: {problem}") from None
    return answer(model, **options)


def _study(model: StudyOrModels, systems: Names, axes: Axes) -> Study:
    """The study that is asked, or that of a model and axes."""
    if isinstance(model, Study):
        return study_of(model, None, axes)
    return study_of(systems, model, axes)


def _with_reasons(cells: Columns | Rows, why: Callable[[Row], str]) -> Findings:
    """An answer that says of its first rows why they are what they are."""
    return Findings(cells, sentences(map(why, Findings(cells).rows)))


def knob(
    model: StudyOrModels, name: str, systems: Names = "hilos", **axes: Unpack[Axes]
) -> Findings:
    """Solve any knob of a system, as the share of the batch kept as X (HILOS sec. 4.2, 4.3)."""
    from nearkv.sweeps.explore.knob import against, find_best_knob, why_knob

    study = _study(model, systems, axes)
    measured = measured_best(study.systems, name)
    answer = find_best_knob(study, name, measured)
    solved = _with_reasons(answer, why_knob(name))
    return replace(solved, conclusion=[*solved.conclusion, *against(measured, solved.rows)])


def measured_best(systems: Iterable[str], knob: str) -> dict[str, BestMeasured]:
    """Best values of a knob as papers measured them, by system; none of most."""
    from nearkv.costmodel.model.registry import find_system
    from nearkv.sweeps.explore.knob import BestMeasured
    from nearkv.sweeps.validation.claims import claim_of

    measured = {}
    for name in systems:
        owner = find_system(name)
        declared = owner.knobs.get(knob)
        # a paper measured nothing of a variant of a user's own
        if owner.plugin or declared is None or not declared.measured:
            continue
        claim = claim_of(owner.cite, declared.measured)
        value = float(claim.low) / (100 if claim.unit == "%" else 1)
        models = (claim.model or claim.system).replace(",", ", ")
        who = f"{owner.cite.upper()} ({claim.where}; {models})"
        measured[name] = BestMeasured(value, who, claim.id)
    return measured


def beta(model: StudyOrModels, **axes: Unpack[Axes]) -> Findings:
    """Split K and V between host DRAM and SmartSSD (HillInfer sec. 4.3)."""
    from nearkv.sweeps.explore.beta import find_beta, why_beta

    answer = find_beta(_study(model, "hillinfer", axes))
    return _with_reasons(answer, why_beta)


def batch(
    model: StudyOrModels, systems: Names = "hilos", slo: Names = (), **axes: Unpack[Axes]
) -> Findings:
    """Find the largest batch served at once, and that of best throughput under limits."""
    from nearkv.sweeps.explore.batch import find_batches, why_batch

    rows = find_batches(_study(model, systems, axes), names(slo, "slo"))
    return _with_reasons(rows, why_batch)


def hardware(
    model: StudyOrModels,
    vary: str,
    slo: Names,
    systems: Names = "hilos",
    **axes: Unpack[Axes],
) -> Findings:
    """Find the least of a hardware number that meets limits."""
    from nearkv.sweeps.explore.hardware import find_hardware, why_hardware

    rows = find_hardware(_study(model, systems, axes), vary, names(slo, "slo"))
    return _with_reasons(rows, why_hardware)


def crossover(
    model: StudyOrModels,
    along: str,
    systems: Names = "flexgen-dram,hilos",
    of: str = "decode_tok_s",
    **axes: Unpack[Axes],
) -> Findings:
    """Find where one of two systems overtakes the other."""
    from nearkv.sweeps.explore.crossover import find_crossovers, why_crossover

    rows = find_crossovers(_study(model, systems, axes), along, of)
    return _with_reasons(rows, why_crossover)


def mapping(
    model: StudyOrModels,
    method: str = "exact",
    batch: Values = 32,
    context: Values = "1k",
    output_tokens: Values = 1,
    platform: Platforms = "gh-asymmetric",
    sets: Numbered = NO_NUMBERS,
    parts: Numbered = NO_NUMBERS,
) -> Findings:
    """Map the heads of each sub-layer on HBM or LPDDR, for one decode step (H2M2 sec. 4.3).

    Args:
        model: as of `solve`.
        method: exact, greedy, milp or brute.
        batch, context, output_tokens, platform, sets, parts: as `compare` takes them; not beside a
            study.
    """
    from nearkv.sweeps.explore.mapping import find_mapping, why_mapping

    if not isinstance(model, Study):
        point: Axes = {
            "batch": batch,
            "context": context,
            "output_tokens": output_tokens,
            "platform": platform,
            "sets": sets,
            "parts": parts,
        }
        model = study_of("asymmetric", model, point)
    return _with_reasons(find_mapping(model, method), why_mapping)


def placement(
    model: Models,
    context: Values = 512,
    output_tokens: Values = 32,
    platform: Platforms = "t4-flexgen",
    sets: Numbered = NO_NUMBERS,
    parts: Numbered = NO_NUMBERS,
    search: str = "full",
    gpu_batch: int | None = None,
    num_batches: int | None = None,
    fix: Mapping[str, float] = MappingProxyType({}),
) -> Findings:
    """Place weights, KV cache and activations (FlexGen, ICML 2023, sec. 4.3).

    Args:
        model, context, output_tokens, platform, sets, parts: as `compare` takes them.
        search: full, or paper for FlexGen's own walk.
        gpu_batch, num_batches: of a block; the best where None.
        fix: shares that are fixed, as {"wg": 0.2}.
    """
    from nearkv.sweeps.explore.placement import find_placements, why_placement

    points: Axes = {
        "batch": 1,
        "context": context,
        "output_tokens": output_tokens,
        "platform": platform,
        "sets": sets,
        "parts": parts,
    }
    rows = find_placements(
        study_of(ANY_SYSTEM, model, points),
        search=search,
        fixed=dict(fix),
        gpu_batch=gpu_batch,
        num_batches=num_batches,
    )
    return _with_reasons(rows, why_placement)


def subbatch(
    model: Models,
    requests: Values,
    prompts: Values = "",
    platform: Platforms = "dgx-a100-pim",
    homes: str = "balanced",
    time_limit: float = 10.0,
    seed: int = 0,
    sets: Numbered = NO_NUMBERS,
    parts: Numbered = NO_NUMBERS,
) -> Findings:
    """Split one iteration of L3 into sub-batches and chunks (L3 sec. 5.3).

    Args:
        model, platform, sets, parts: as of `mapping`, one value each.
        requests, prompts, homes, time_limit, seed: as of `SubbatchPoint`.
    """
    from nearkv.sweeps.explore import subbatch

    point: Axes = {"platform": platform, "sets": sets, "parts": parts}
    question = subbatch.SubbatchPoint(
        study=study_of(ANY_SYSTEM, model, point),
        requests=requests,
        prompts=prompts,
        homes=homes,
        seed=seed,
        time_limit=time_limit,
    )
    rows = subbatch.find_split(question)
    return Findings(rows, subbatch.explain_subbatch(rows))


QUESTIONS: Mapping[str, Callable[..., Findings]] = {
    "alpha": partial(knob, name="alpha"),
    "spill": partial(knob, name="interval"),
    "knob": knob,
    "beta": beta,
    "mapping": mapping,
    "batch": batch,
    "hardware": hardware,
    "crossover": crossover,
    "placement": placement,
    "subbatch": subbatch,
    "tiers": tier_sizes,
}
"""Question -> what answers it; its signature says what it takes."""
