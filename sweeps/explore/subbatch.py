"""What `nearkv solve subbatch` answers: one iteration of L3, split by the paper's rule and by proof."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.llm import llm_of
from nearkv.costmodel.mechanisms.dimm import dimms
from nearkv.costmodel.mechanisms.serving import data_parallel, kv_token_bytes
from nearkv.hardware.catalog import load_llm, load_platform, names
from nearkv.hardware.errors import InputError, unknown
from nearkv.solvers.subbatch.problem import Schedule, SubbatchProblem, costs_of, even_halves
from nearkv.solvers.subbatch.rules import greedy, one_batch
from nearkv.solvers.subbatch.schedule import evenest, optimal
from nearkv.sweeps.space.sizes import number, size, values
from nearkv.sweeps.space.traces import Trace, load_trace

Rows = list[dict[str, Any]]
PLACEMENTS = ("balanced", "random")
QUEUED = 16
"""Prompts of a trace that wait while an iteration is planned."""


@dataclass(frozen=True)
class SubbatchPoint:
    """One iteration, as a user asks for it.

    Attributes:
        model, platform: names.
        requests: context lengths apart by commas, a trace, or a CSV of one.
        prompts: prompt lengths that wait; empty for none, or for those of the trace.
        placement: `balanced` or `random` ranksets.
        seed: of everything drawn.
        time_limit: for the search [s].
        slack: time prompts may add to the fastest decoding [1].
        sets: hardware numbers to replace.
    """

    model: str
    platform: str
    requests: str
    prompts: str
    placement: str
    seed: int
    time_limit: float
    slack: float
    sets: Mapping[str, str]


def subbatch(question: SubbatchPoint) -> Rows:
    """Split the requests by token count alone and by the modelled times, each by the rule and by the optimum.

    One batch, undivided, stands beside them.

    Returns:
        Five rows. Where only tokens count, `larger_tok` is the larger half; elsewhere the times are
        of the two phases, `decode_ms` the fastest decoding that was found without prompts,
        `bound_ms` a proven lower bound of it, `gap` the distance from that, `loss` what it takes more
        than the optimum's; `split_decode_ms` is the decoding of the split printed, which may spend
        the slack to carry more prompts.

    Raises:
        InputError: lengths that do not fit, an unknown name, or a platform without DIMM-PIM.
    """
    if not np.isfinite(question.time_limit) or question.time_limit <= 0:
        raise InputError(
            f"--time-limit {question.time_limit:g}: must be a number of seconds above 0"
        )
    if not np.isfinite(question.slack):
        raise InputError(f"--slack {question.slack:g}: must be a number, such as 0.02")
    problem = _problem(question)
    rule, even = even_halves(problem.contexts), evenest(problem.contexts, question.time_limit)
    best = optimal(problem, question.time_limit, question.slack)
    rows = [
        _even(problem, "greedy", rule, even.bound),
        _even(problem, "optimal", even.in_one, even.bound),
    ]
    for method, plan in (
        ("greedy", greedy(problem)),
        ("one-batch", one_batch(problem)),
        ("optimal", best),
    ):
        rows.append(_timed(problem, method, plan, best))
    columns = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in columns} for row in rows]


def _problem(question: SubbatchPoint) -> SubbatchProblem:
    platform = load_platform(question.platform)
    for address, text in question.sets.items():
        platform = platform.override(
            address, number(platform.key(address))(text, f"--set {address}")
        )
    hw = platform.machine()
    llm = llm_of(
        {key: quantity.si for key, quantity in load_llm(question.model).numbers.items()},
        hw["precision"],
    )
    if question.placement not in PLACEMENTS:
        raise unknown("placement", question.placement, PLACEMENTS, "--placement")
    room = float(dimms(hw).capacity / kv_token_bytes(llm) / data_parallel(hw, llm))
    random = np.random.default_rng(question.seed)
    contexts, prompts = _lengths(question, room, random)
    if contexts.sum() > room:
        raise InputError(
            f"--requests: {contexts.sum():,.0f} tokens exceed the {room:,.0f} that the DIMMs of a replica hold; "
            "give fewer or shorter requests"
        )
    if len(prompts) and prompts.max() > room:
        raise InputError(
            f"--prompts: {prompts.max():,.0f} tokens exceed the {room:,.0f} that the DIMMs of a replica hold; "
            "give shorter ones"
        )
    ranksets = int(hw.dimm.ranksets)
    homes = (
        random.integers(0, ranksets, len(contexts))
        if question.placement == "random"
        else np.full(len(contexts), -1)
    )
    return SubbatchProblem(contexts, homes, ranksets, prompts, costs_of(hw, llm))


def _lengths(
    question: SubbatchPoint, room: float, random: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    waiting = (
        np.array(values(question.prompts, size, "--prompts")) if question.prompts else np.zeros(0)
    )
    if question.requests.endswith(".csv") or question.requests in names("trace"):
        trace = load_trace(question.requests, seed=question.seed)
        return resident_contexts(
            trace, room, random
        ), waiting if question.prompts else trace.prompt[:QUEUED]
    if not question.requests.strip():
        raise InputError("--requests is empty; write lengths such as 2k,3k, a trace or a CSV")
    if question.requests[:1].isalpha():
        raise unknown("trace", question.requests, [*names("trace"), "FILE.csv"], "--requests")
    return np.array(values(question.requests, size, "--requests")), waiting


def resident_contexts(
    trace: Trace, room: float, random: np.random.Generator
) -> NDArray[np.float64]:
    """Contexts an iteration meets once memory is full: long answers more often, each at a random age.

    Raises:
        InputError: not even the first request fits.
    """
    share = trace.output / trace.output.sum()
    drawn = random.choice(len(share), size=max(len(share), 1), p=share)
    contexts = np.floor(
        trace.prompt[drawn] + 1 + random.random(len(drawn)) * (trace.output[drawn] - 1)
    )
    fits = np.cumsum(contexts) <= room
    if not fits[0]:
        raise InputError(
            f"trace {trace.name}: a request of {contexts[0]:,.0f} tokens exceeds the {room:,.0f} of a replica"
        )
    return contexts[fits]


def _halves(problem: SubbatchProblem, in_one: NDArray[np.bool_]) -> dict[str, list[int]]:
    return {
        f"sub_batch_{s}": problem.contexts[in_one == bool(s)].astype(int).tolist() for s in (0, 1)
    }


def _even(
    problem: SubbatchProblem, method: str, in_one: NDArray[np.bool_], bound: float
) -> dict[str, Any]:
    larger = float(max(problem.contexts[in_one].sum(), problem.contexts[~in_one].sum()))
    proof = "optimal" if larger <= bound else "rule" if method == "greedy" else "time limit"
    gap = (larger - bound) / larger
    tokens = {"larger_tok": int(larger), "bound_tok": int(bound), "gap": gap, "proof": proof}
    return {"load": "tokens", "method": method, **_halves(problem, in_one), **tokens}


def _timed(problem: SubbatchProblem, method: str, plan: Schedule, best: Schedule) -> dict[str, Any]:
    return {
        "load": "modelled",
        "method": method,
        **_halves(problem, plan.in_one),
        **{f"chunks_{s}": [int(tokens) for _, tokens in plan.chunks[s]] for s in (0, 1)},
        **{f"phase_{s}_ms": 1e3 * plan.phases[s] for s in (0, 1)},
        "iteration_ms": 1e3 * plan.seconds,
        "decode_ms": 1e3 * plan.decode,
        "split_decode_ms": 1e3 * plan.split_decode,
        "bound_ms": 1e3 * best.bound,
        "gap": max(plan.decode - best.bound, 0.0) / plan.decode,
        "loss": plan.decode / best.decode - 1,
        "prompt_tok": int(plan.prompt_tokens),
        "most_prompt_tok": int(best.most_tokens),
        "proof": plan.proof,
    }


def brief(rows: Rows) -> Rows:
    """The same rows with long lists told by their number and sum, for a terminal."""

    def shortened(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return (
            f"{len(value)} of {sum(value):,} tok" if len(value) > 6 else " ".join(map(str, value))
        )

    return [{name: shortened(value) for name, value in row.items()} for row in rows]
