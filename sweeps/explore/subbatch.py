"""`nearkv solve subbatch`: one iteration of L3, split by the paper's rule and by proof."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Numbers
from nearkv.costmodel.mechanisms.serving.dimm import dimms
from nearkv.costmodel.mechanisms.serving.parallel import (
    data_parallel,
    kv_token_bytes,
    tensor_parallel,
)
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.models import require_alike
from nearkv.hardware.catalog import names
from nearkv.hardware.errors import InputError, check_known, unknown
from nearkv.hardware.machine import Machine
from nearkv.solvers.subbatch.problem import SubbatchProblem, costs_of
from nearkv.solvers.subbatch.schedule import (
    Schedule,
    even_halves,
    evenest,
    greedy,
    one_batch,
    optimal,
)
from nearkv.sweeps.explore.lines import warn_of_idle
from nearkv.sweeps.study.sizes import RawValues, size, values
from nearkv.sweeps.study.study import Study, one_point
from nearkv.sweeps.study.traces import Trace, load_trace
from nearkv.sweeps.tables.table import Rows

RANKSET_PLACEMENTS = ("balanced", "random")
SLACK = 0.02
"""Time that prompts may add to the fastest decoding [1]."""
QUEUED = 16
"""Prompts of a trace that wait while an iteration is planned."""
MOST_LENGTHS_SHOWN = 6
"""Items of a list that a terminal shows."""


@dataclass(frozen=True)
class SubbatchPoint:
    """One iteration, as a user describes it.

    Attributes:
        study: of one design point: the model, the platform and its numbers.
        requests: context lengths, or the name of a trace or of a CSV of one.
        prompts: prompt lengths that wait; empty for none, or for those of the trace.
        homes: `balanced` or `random` ranksets.
        seed: of the random numbers.
        time_limit: for the search [s].
    """

    study: Study
    requests: RawValues
    prompts: RawValues
    homes: str
    seed: int
    time_limit: float

    @property
    def trace(self) -> str:
        """The trace or the CSV that the requests are drawn from; empty where they are lengths."""
        named = str(self.requests) if isinstance(self.requests, str | Path) else ""
        return named if named.endswith(".csv") or named in names("trace") else ""


def find_split(question: SubbatchPoint) -> Rows:
    """Split the requests by token count and by modelled time, each by the rule and optimally.

    One batch, undivided, stands beside them.

    Returns:
        Five rows, two of `load` `tokens` and three of `modelled` time, with

        - `larger_tok`: tokens of the larger half, where only tokens count;
        - `phase_0_ms`, `phase_1_ms`, `iteration_ms`: times of both phases and of the iteration;
        - `decode_ms`: the fastest decoding without prompts;
        - `bound_ms`: a proven lower bound of it; `gap`: the relative distance to that bound;
        - `rule_loss`: how much longer decoding takes than that of the optimum;
        - `split_decode_ms`: decoding of the split printed, which may spend the slack to carry more
          prompts.

    Raises:
        InputError: lengths that do not fit, an unknown name, or a platform without DIMM-PIM.
    """
    if not np.isfinite(question.time_limit) or question.time_limit <= 0:
        raise InputError(
            f"--time-limit {question.time_limit:g}: must be a number of seconds above 0"
        )
    if question.seed and not question.trace and question.homes == "balanced":
        raise InputError("--seed is of random numbers, and nothing is drawn; leave it out")
    read: set[str] = set()
    hw, llm = one_point(question.study, read)
    problem = _problem(question, hw, llm)
    warn_of_idle(question.study, read, "iteration of L3")
    rule = even_halves(problem.contexts)
    even = evenest(problem.contexts)
    best = optimal(problem, question.time_limit, SLACK)
    return [
        _even(problem, "greedy", rule, even),
        _even(problem, "optimal", even, even),
        _timed(problem, "greedy", greedy(problem), best),
        _timed(problem, "one-batch", one_batch(problem), best),
        _timed(problem, "optimal", best, best),
    ]


def _problem(question: SubbatchPoint, hw: Machine, llm: LLM) -> SubbatchProblem:
    require_alike(llm, "--model", "sub-batches")
    check_known("rule", [question.homes], RANKSET_PLACEMENTS, "--homes")
    per_replica = dimms(hw).capacity / data_parallel(hw, llm)
    capacity = float(per_replica / kv_token_bytes(llm))
    random = np.random.default_rng(question.seed)
    _check_weights(hw, llm)
    contexts, prompts = _lengths(question, capacity, random)
    held = f"the {capacity:,.0f} that the DIMMs of a replica hold"
    if contexts.sum() > capacity:
        raise InputError(
            f"--requests: {contexts.sum():,.0f} tokens exceed {held}; "
            "give fewer or shorter requests"
        )
    if len(prompts) and prompts.max() > capacity:
        raise InputError(
            f"--prompts: {prompts.max():,.0f} tokens exceed {held}; give shorter ones"
        )
    ranksets = int(hw.dimm.ranksets)
    rankset_of = np.full(len(contexts), -1)  # -1: spread over all
    if question.homes == "random":
        rankset_of = random.integers(0, ranksets, len(contexts))
    return SubbatchProblem(contexts, rankset_of, ranksets, prompts, costs_of(hw, llm))


def _check_weights(hw: Machine, llm: LLM) -> None:
    """Refuse a model that the GPUs of a replica do not hold."""
    needed = float(llm.weight_bytes)
    held = float(tensor_parallel(hw, llm) * hw.gpu.memory)
    if needed > held:
        sizes = f"{needed / 1e9:,.4g} GB exceed the {held / 1e9:,.4g} GB"
        raise InputError(
            f"--model: weights of {sizes} of a replica's GPUs; "
            "give more or larger GPUs, or a smaller model"
        )


def _lengths(
    question: SubbatchPoint,
    capacity: float,
    random: np.random.Generator,
) -> tuple[Numbers, Numbers]:
    """Contexts in flight and prompts that wait."""
    prompts = np.zeros(0)
    if question.prompts:
        prompts = np.array(values(question.prompts, size, "--prompts", different=False))
    if question.trace:
        trace = load_trace(question.trace, seed=question.seed)
        contexts = resident_contexts(trace, capacity, random)
        return contexts, prompts if question.prompts else trace.prompt[:QUEUED]
    written = str(question.requests)
    if not written.strip():
        raise InputError(
            "--requests is empty; write lengths such as 2k,3k, a trace or a CSV"
        )
    if written[:1].isalpha():
        raise unknown("trace", written, [*names("trace"), "FILE.csv"], "--requests")
    return np.array(values(question.requests, size, "--requests", different=False)), prompts


def resident_contexts(
    trace: Trace,
    capacity: float,
    random: np.random.Generator,
) -> NDArray[np.float64]:
    """Contexts in an iteration once memory is full.

    Long answers are met more often than short ones, each at a random age.

    Raises:
        InputError: not even the first request fits.
    """
    share = trace.output / trace.output.sum()
    drawn = random.choice(len(share), size=max(len(share), 1), p=share)
    age = random.random(len(drawn))
    prompt, output = trace.prompt[drawn], trace.output[drawn]
    contexts = np.floor(prompt + 1 + age * (output - 1))
    fits = np.cumsum(contexts) <= capacity
    if not fits[0]:
        raise InputError(
            f"trace {trace.name}: a request of {contexts[0]:,.0f} tokens exceeds "
            f"the {capacity:,.0f} of a replica"
        )
    return contexts[fits]


def _halves(problem: SubbatchProblem, in_one: NDArray[np.bool_]) -> dict[str, list[int]]:
    sizes = problem.contexts.astype(int)
    return {f"sub_batch_{half}": sizes[in_one == half].tolist() for half in (0, 1)}


def _even(
    problem: SubbatchProblem,
    method: str,
    split: NDArray[np.bool_],
    best: NDArray[np.bool_],
) -> dict[str, Any]:
    """A row of a split by tokens alone, beside the one whose larger half has fewest."""
    contexts = problem.contexts
    larger, least = (
        max(contexts[half].sum(), contexts[~half].sum()) for half in (split, best)
    )
    return {
        "load": "tokens",
        "method": method,
        **_halves(problem, split),
        "larger_tok": int(larger),
        "bound_tok": int(least),
        "gap": float((larger - least) / larger),
        "proof": "optimal" if larger == least else "rule",
    }


def _timed(
    problem: SubbatchProblem,
    method: str,
    plan: Schedule,
    best: Schedule,
) -> dict[str, Any]:
    """A row of a split by modelled time."""
    return {
        "load": "modelled",
        "method": method,
        **_halves(problem, plan.in_one),
        "chunks_0": [int(tokens) for _, tokens in plan.chunks[0]],
        "chunks_1": [int(tokens) for _, tokens in plan.chunks[1]],
        "phase_0_ms": 1e3 * plan.phases[0],
        "phase_1_ms": 1e3 * plan.phases[1],
        "iteration_ms": 1e3 * plan.seconds,
        "decode_ms": 1e3 * plan.decode,
        "split_decode_ms": 1e3 * plan.split_decode,
        "bound_ms": 1e3 * best.bound,
        "gap": max(plan.decode - best.bound, 0.0) / plan.decode,
        "rule_loss": plan.decode / best.decode - 1,
        "prompt_tok": int(plan.prompt_tokens),
        "most_prompt_tok": int(best.most_tokens),
        "proof": plan.proof,
    }


def brief(rows: Rows) -> Rows:
    """Replace long lists of rows by their number and sum, for a terminal."""
    return [{name: _brief(value) for name, value in row.items()} for row in rows]


def _brief(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    if len(value) > MOST_LENGTHS_SHOWN:
        return f"{len(value)} of {sum(value):,} tok"
    return " ".join(map(str, value))


def explain_subbatch(rows: Rows) -> list[str]:
    """Say whether two sub-batches pay, and what the paper's rule loses."""
    greedy, _, best = (row for row in rows if row["load"] == "modelled")
    rule = f"the paper's greedy takes {greedy['rule_loss']:.2%} longer"
    if not (best["sub_batch_0"] and best["sub_batch_1"]):
        advice = "more or longer requests would make two pay"
        return [
            f"One undivided batch is best, as each sub-batch reads all weights; {rule}; {advice}."
        ]
    halves = "in which banks and GPU overlap"
    return [
        f"Two sub-batches are best, {halves}; {rule}; more ranksets or faster banks move the split."
    ]
