"""The command `solve subbatch`: one iteration of L3, split."""

from __future__ import annotations

from typing import Annotated

import typer

from nearkv.sweeps.commands.options import OneBed, OneLlm, OnePart, SetOnce
from nearkv.sweeps.commands.printing import show_rows
from nearkv.sweeps.commands.views import View

SPLIT = [
    "load",
    "method",
    "decode_ms",
    "bound_ms",
    "gap",
    "rule_loss",
    "sub_batch_0",
    "sub_batch_1",
    "larger_tok",
    "bound_tok",
    "proof",
    "chunks_0",
    "chunks_1",
    "phase_0_ms",
    "phase_1_ms",
    "iteration_ms",
    "split_decode_ms",
    "prompt_tok",
    "most_prompt_tok",
]
"""Columns that a terminal shows of sub-batches, the most important first."""
InFlight = Annotated[
    str,
    typer.Option(
        "--requests",
        metavar="SIZES",
        help="Contexts in flight: 2k,3k,4k,5k, a trace, or FILE.csv.",
    ),
]
Prompts = Annotated[
    str,
    typer.Option(metavar="SIZES", help="Prompts that wait: 96,1k. A trace brings its own."),
]
Ranksets = Annotated[
    str,
    typer.Option(
        "--placement",
        metavar="RULE",
        help="balanced, or random: each request on one rankset.",
    ),
]
DrawSeed = Annotated[
    int,
    typer.Option(
        "--seed",
        metavar="NUMBER",
        min=0,
        help="Seed of requests drawn from a trace, of their ages, and of random ranksets.",
    ),
]
TimeLimit = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", help="Time to search; what is not proven by then is marked."
    ),
]
Slack = Annotated[
    float,
    typer.Option(
        metavar="SHARE", min=0.0, help="Time prompts may add to the fastest decoding."
    ),
]


def subbatch(
    view: View,
    model: OneLlm,
    requests: InFlight,
    prompts: Prompts = "",
    platform: OneBed = "dgx-a100-pim",
    placement: Ranksets = "balanced",
    time_limit: TimeLimit = 10.0,
    slack: Slack = 0.02,
    seed: DrawSeed = 0,
    sets: SetOnce = [],
    parts: OnePart = [],
) -> None:
    """Split one iteration of L3 into sub-batches and chunks: proven best.

    Beside it stands the paper's greedy (L3 sec. 5.3), by tokens alone and by modelled times.
    The platform needs DIMM-PIM.

    Example: nearkv solve subbatch --requests 2k,3k,4k,5k --model gpt-175b --platform dgx-a100-pim
    """
    from nearkv.sweeps.explore.subbatch import SubbatchPoint, brief, why_subbatch
    from nearkv.sweeps.explore.subbatch import subbatch as solved
    from nearkv.sweeps.study.study import pairs

    point = SubbatchPoint(
        model=model,
        platform=platform,
        requests=requests,
        prompts=prompts,
        placement=placement,
        seed=seed,
        time_limit=time_limit,
        slack=slack,
        sets=pairs(sets, "--set"),
        parts=pairs(parts, "--part"),
    )
    rows = solved(point)
    people = view.is_for_people and not view.file
    show_rows(brief(rows) if people else rows, view, SPLIT, below=why_subbatch(rows))
