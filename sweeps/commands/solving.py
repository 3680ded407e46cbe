"""The commands `solve KNOB`: the best value, its bound, and what the paper's rule picks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from nearkv.sweeps.commands.bundles import axes
from nearkv.sweeps.commands.options import (
    Batch,
    Beds,
    Context,
    Llm,
    Named,
    OneBed,
    OneLlm,
    Parts,
    Set,
    SetOnce,
)
from nearkv.sweeps.commands.printing import show_columns
from nearkv.sweeps.commands.views import View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nearkv.sweeps.evaluate.evaluate import Columns
    from nearkv.sweeps.study.study import Study

POINT = [
    "system",
    "model",
    "platform",
    "trace",
    "batch",
    "context_tok",
    "output_tokens",
    "status",
    "short_of",
    "step_ms",
]
BETA = [
    "model",
    "platform",
    "batch",
    "context_tok",
    "output_tokens",
    "sigma",
    "hop",
    "status",
    "short_of",
    "step_ms",
    "kv_gpu_gb",
    "kv_host_gb",
    "kv_drive_gb",
    "value",
    "t_cpu_ms",
    "t_csd_ms",
    "bound_ms",
    "gap",
    "bound_by",
    "rule",
    "rule_loss",
    "rule_sec54",
    "rule_sec54_loss",
    "fastest",
    "fastest_ms",
]
"""Columns that a terminal shows of `solve beta`."""

Robust = Annotated[
    float,
    typer.Option(
        "--robust",
        metavar="SHARE",
        help="With --band: also the value that makes this quantile of the draws short, as 0.9.",
    ),
]
SolveMethod = Annotated[
    str,
    typer.Option(
        "--method", metavar="METHOD", help="exact, greedy (Algorithm 1), milp or brute."
    ),
]
Iterations = Annotated[str, typer.Option(metavar="N", help="Number of decode steps.")]
Requests = Annotated[str, typer.Option(metavar="N", help="Sequences served together.")]
Finish = Annotated[
    float,
    typer.Option(
        metavar="CHANCE",
        help="Chance that a request finishes in a step, and another takes its place.",
    ),
]
Shortest = Annotated[
    str, typer.Option(metavar="SIZE", help="Tokens of the shortest new request.")
]
Longest = Annotated[
    str, typer.Option(metavar="SIZE", help="Tokens of the longest request: 2k.")
]
LengthSeed = Annotated[
    int, typer.Option(metavar="NUMBER", help="Seed of the random lengths.")
]


def show_answer(answer: Columns, study: Study, view: View, why: Sequence[str]) -> None:
    """Print a solved knob: the point, the answer, the bound, the paper's rules, and why."""
    beside = ("value_", "regret_", "robust", "bound_", "rule")
    names = [name for name in answer if name.startswith(beside)]
    show_columns(answer, view, [*POINT, "value", "gap", *names], study, below=why)


def alpha(study: Study, view: View, system: Named = "hilos", robust: Robust = 0.0) -> None:
    """Find the best X-cache share: exact, with a lower bound.

    Beside it stand the paper's closed form and its power of two (HILOS sec. 4.2), and what
    each loses. With --band, how far it moves over what is unknown, and what that costs.

    Example: nearkv solve alpha --model opt-66b,qwen2.5-32b --context 32k --platform hilos-a100
    """
    from nearkv.sweeps.explore.knob import best_knob, why_alpha
    from nearkv.sweeps.study.study import comma_list

    chosen = replace(study, systems=comma_list(system))
    answer = best_knob(chosen, "alpha", robust)
    show_answer(answer, chosen, view, why_alpha(answer))


def spill(study: Study, view: View, system: Named = "hilos", robust: Robust = 0.0) -> None:
    """Find the best spill interval c by trying every one.

    Beside it stands the paper's page over entry (HILOS sec. 4.3), and what it loses.

    Example: nearkv solve spill --model opt-30b,opt-66b --context 16k --platform hilos-a100
    """
    from nearkv.sweeps.explore.knob import best_knob, why_spill
    from nearkv.sweeps.study.study import comma_list

    chosen = replace(study, systems=comma_list(system))
    answer = best_knob(chosen, "interval", robust)
    show_answer(answer, chosen, view, why_spill(answer))


def beta(study: Study, view: View, robust: Robust = 0.0) -> None:
    """Find the best split of the KV cache between host DRAM and SmartSSD, with a lower bound.

    Best is meant as in eq. 2 (HillInfer). Beside it stand eq. 4 and the formula of sec. 5.4, what
    each loses there, and the split whose whole step is shortest, which writes back besides.
    With --band, how far it moves; with --robust, the share in host DRAM for bad draws.

    Example: nearkv solve beta --model qwen-7b --batch 8 --context 12k --platform aipc-4090
    """
    from nearkv.sweeps.explore.beta import best_beta, why_beta

    answer = best_beta(study, robust)
    chosen = replace(study, systems=("hillinfer",))
    beside = ("value_", "regret_", "robust")
    names = [name for name in answer if name.startswith(beside)]
    show_columns(answer, view, [*BETA, *names], chosen, below=why_beta(answer))


def mapping(
    view: View,
    model: Llm,
    batch: Batch = "32",
    context: Context = "1k",
    platform: Beds = "gh-asymmetric",
    sets: Set = [],
    parts: Parts = [],
    method: SolveMethod = "exact",
) -> None:
    """Find the heads of each sub-layer to put on HBM, for one decode step.

    Beside it stand Algorithm 1 and the paper's majors (H2M2 sec. 3.3, 4.3), and what each loses.
    The step sees the mean context, as in every command.

    Example: nearkv solve mapping --model gpt3-175b --batch 32 --context 1024 --method exact
    """
    from nearkv.sweeps.explore.mapping import BRIEF, best_mapping, why_mapping

    study = axes(model, batch, context, "1", platform, sets, parts=parts)
    answer = best_mapping(study, method)
    chosen = replace(study, systems=("asymmetric",))
    show_columns(answer, view, BRIEF, chosen, below=why_mapping(answer))


def mapping_trace(
    view: View,
    model: OneLlm,
    requests: Requests = "32",
    iterations: Iterations = "128",
    finish: Finish = 0.02,
    shortest: Shortest = "1",
    longest: Longest = "2k",
    seed: LengthSeed = 0,
    platform: OneBed = "gh-asymmetric",
    sets: SetOnce = [],
) -> None:
    """Map anew in every step while requests finish at random (H2M2 sec. 5.3).

    `speedup_migrating` pays for heads that change sides, `moves` is the share of steps in which
    some do.

    Example: nearkv solve mapping-trace --model gpt3-175b --iterations 128 --seed 1
    """
    from nearkv.sweeps.explore.mapping_trace import (
        SYSTEMS,
        random_trace,
        replay,
        why_replay,
    )
    from nearkv.sweeps.study.sizes import size
    from nearkv.sweeps.study.study import one_point

    trace = random_trace(
        requests=int(size(requests, "--requests")),
        iterations=int(size(iterations, "--iterations")),
        shortest=int(size(shortest, "--shortest")),
        longest=int(size(longest, "--longest")),
        finish=finish,
        seed=seed,
    )
    study = axes(model, "1", "1", "1", platform, sets)
    chosen = replace(study, systems=("asymmetric",))
    answer = replay(*one_point(chosen), trace, SYSTEMS)
    show_columns(answer, view, list(answer), below=why_replay(answer))
