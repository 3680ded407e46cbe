"""Bands, ratios and winners beside draws of their own: another generator, laws written anew.

An end is right if the share of the direct draws below it is the end's, within the noise of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from scipy import stats

import nearkv
from nearkv.costmodel.algebra.span import Numbers
from nearkv.hardware.schema import Key, Quantity
from nearkv.sweeps.evaluate.probe import Probe, column
from nearkv.sweeps.evaluate.slo import Target
from nearkv.sweeps.explore.design.flips import best_shares
from nearkv.sweeps.explore.design.goal import Goal
from nearkv.sweeps.study.bands import draws_of
from nearkv.sweeps.study.grid import Block
from nearkv.sweeps.study.study import Study, blocks
from nearkv.sweeps.uncertainty.model_error import find_error, slowest

AT_ONCE = 4096
ENDS = {"p05": 0.05, "p50": 0.5, "p95": 0.95}


@dataclass(frozen=True)
class Question:
    """One system, or two that are compared, at one design point."""

    systems: tuple[str, ...]
    model: str
    column: str
    context: str
    platform: str = ""
    axes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def asked(self) -> list[Block]:
        options = {"context": self.context, **self.axes}
        if self.platform:
            options["platforms"] = (self.platform,)
        return [blocks(Study((name,), (self.model,), **options))[0] for name in self.systems]

    @property
    def options(self) -> dict[str, Any]:
        platform = {"platform": self.platform} if self.platform else {}
        return {"context": self.context, "band": 90, **platform, **self.axes}


def one(system: str, model: str, name: str, context: str, platform: str = "", **axes: Any) -> Any:
    question = Question((system,), model, name, context, platform, axes)
    return pytest.param(question, id=f"{system} {model} {name}")


def two(first: str, second: str, model: str, context: str, platform: str = "", **axes: Any) -> Any:
    question = Question((first, second), model, "decode_tok_s", context, platform, axes)
    return pytest.param(question, id=f"{second} over {first} {model}")


QUESTIONS = [
    one("flexgen-dram", "opt-66b", "decode_tok_s", "64k"),
    one("hilos", "opt-66b", "step_ms", "64k"),
    one("gpu", "llama3.1-70b", "prefill_s", "8k", "hgx-h200"),
    one("gpu", "gpt-oss-120b", "throughput_tok_s", "8k", "hgx-h200", batch="16"),
    one("cpu-only", "gpt-oss-120b", "decode_tok_s", "12k", "workstation-5090", batch="1"),
    one("expert-offload", "gpt-oss-120b", "step_ms", "12k", "workstation-5090", batch="1"),
    one("l3", "opt-66b", "total_s", "8k"),
    one("hillinfer", "qwen-7b", "step_ms", "12k", batch="8"),
    one("inf2", "opt-66b", "energy_j_tok", "16k"),
    one("rank-pim", "opt-66b", "throughput_tok_s", "8k", "dgx-a100-pim"),
    one("zero-inference", "opt-30b", "throughput_tok_s", "1k"),
    one("flexgen-raid", "opt-66b", "cost_usd", "16k"),
    two("flexgen-dram", "hilos", "opt-66b", "64k"),
    two("flexgen-ssd", "flexgen-dram", "opt-66b", "32k"),
    two("gpu", "cpu-offload", "opt-66b", "8k", "dgx-a100-pim"),
    two("flexgen-raid", "inf2", "opt-66b", "24k"),
    two("cpu-only", "expert-offload", "gpt-oss-120b", "12k", "workstation-5090", batch="1"),
]
FEW = (QUESTIONS[0], QUESTIONS[13])


def drawn(number: Quantity, key: Key, rank: Numbers) -> Numbers:
    """A number at random ranks [SI]: half below the stated one; all but shares by factors."""
    if number.quantiles_si is not None:
        low, middle, high = np.log(number.quantiles_si)
        score = stats.norm.ppf(rank) / stats.norm.ppf(0.9)
        step = np.where(rank < 0.5, middle - low, high - middle)
        values = np.minimum(np.exp(middle + score * step), key.limits[1])
    else:
        assert number.range_si is not None
        is_log = number.unit != "1" and number.range_si[0] > 0
        ends = np.array([number.range_si[0], number.si, number.range_si[1]])
        ends = np.log(ends) if is_log else ends
        values = np.interp(rank, [0, 0.5, 1], ends)
        values = np.asarray(np.exp(values) if is_log else values, dtype=float)
    if key.only:
        allowed = np.array(key.only)
        values = allowed[np.argmin(np.abs(values[:, np.newaxis] - allowed), axis=1)]
    answer: Numbers = np.round(values) if key.whole else values
    return answer


def direct(asked: Sequence[Block], name: str, count: int, seed: int) -> list[Numbers]:
    """A column of each block at random numbers; what two blocks share is drawn once for both."""
    rng = np.random.default_rng(seed)
    pieces: list[list[Numbers]] = [[] for _ in asked]
    for start in range(0, count, AT_ONCE):
        size = min(AT_ONCE, count - start)
        shared: dict[str, Numbers] = {}
        for block, values in zip(asked, pieces, strict=True):
            numbers = {}
            for address, common in draws_of(block.platform).items():
                role, _, key = address.partition(".")
                rank = shared.setdefault(common, rng.random(size))
                number = block.platform.roles[role].numbers[key]
                numbers[address] = drawn(number, block.platform.key(address), rank)
            answer = Probe(block).answer(np.zeros(size, np.intp), numbers=numbers)
            values.append(column(answer, name, size))
    return [np.concatenate(values) for values in pieces]


def model_error(block: Block, of: str, count: int, seed: int) -> Numbers:
    """Errors of a new source at random [1]: Student's law of what takes most of the time."""
    estimate = block.resolved(block.grid.whole).estimate
    places, names = slowest(block, estimate, block.grid.shape)
    law = find_error(names[int(places.ravel()[0])], of, block.system.cite).law
    scale = np.hypot(law.between, law.within)
    rng = np.random.default_rng([seed, 1])
    return np.asarray(scale * stats.t.rvs(law.freedom, size=count, random_state=rng))


def check_end(values: Numbers, end: float, share: float, samples: int) -> None:
    """Refuse an end of a band that another share of the direct draws lies below."""
    known = values[~np.isnan(values)]
    noise = np.sqrt(share * (1 - share) * (1 / len(known) + 1 / samples))
    below, up_to = np.mean(known < end * (1 - 1e-9)), np.mean(known <= end * (1 + 1e-9))
    assert below - 4 * noise <= share <= up_to + 4 * noise


POWER = {"decode_tok_s": -1, "throughput_tok_s": -1, "cost_usd": 0}
"""Answer to a time that is longer than predicted; times and energies grow with it."""


def check_question(question: Question, count: int, samples: int) -> None:
    asked = question.asked
    values = direct(asked, question.column, count, seed=len(question.context))
    power, last = POWER.get(question.column, 1), asked[-1]
    of = "value" if len(asked) == 1 else "ratio"
    factor = np.exp(power * model_error(last, of, count, seed=3))
    names = list(question.systems)
    table = nearkv.compare(names, question.model, samples=samples, **question.options)
    row = table.iloc[-1]
    if len(asked) == 1:
        for end, share in ENDS.items():
            check_end(values[0] * factor, row[f"{question.column}_{end}"], share, samples)
        return
    ratios = values[1] / values[0] * factor
    for end, share in ENDS.items():
        check_end(ratios, row[f"speedup_{end}"], share, samples)
    # beside the best the other errs
    is_best = row["speedup"] >= 1
    other = asked[0] if is_best else last
    error = np.exp(power * model_error(other, "ratio", count, seed=3))
    first, second = (values[0] * error, values[1]) if is_best else (values[0], values[1] * error)
    both = ~(np.isnan(first) & np.isnan(second))
    leads = np.nan_to_num(second[both], nan=-1) > np.nan_to_num(first[both], nan=-1)
    share = float(np.mean(leads))
    noise = np.sqrt(max(share * (1 - share), 1 / samples) * (1 / count + 1 / samples))
    assert row["faster_share"] == pytest.approx(share, abs=4 * noise)


@pytest.mark.parametrize("question", FEW)
def test_a_band_equals_direct_draws(question: Question) -> None:
    check_question(question, count=10_000, samples=2048)


@pytest.mark.deep
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_band_equals_direct_draws_in_depth(question: Question) -> None:
    check_question(question, count=100_000, samples=16_384)


WINNERS = [
    ("hilos", "flexgen-dram", "throughput_tok_s", True, "opt-66b", "32k"),
    ("flexgen-raid", "inf2", "total_s", False, "opt-66b", "24k"),
    ("hilos", "flexgen-dram", "cost_usd", False, "opt-66b", "32k"),
]


def check_winner(winner: tuple[str, str, str, bool, str, str], count: int, samples: int) -> None:
    """Compare the share of draws that the first of two machines wins; the second errs beside it."""
    first, second, name, is_more, model, context = winner
    asked = Question((first, second), model, name, context).asked
    goal = Goal((name,), (is_more,), (Target("total_s", "", False, 1e9, "--slo"),))
    own, other = direct(asked, name, count, seed=7)
    error = model_error(asked[1], "ratio", count, seed=3)
    other = other * np.exp(POWER.get(name, 1) * error)
    wins = own >= other if is_more else own <= other
    answered = ~(np.isnan(own) & np.isnan(other))
    share = float(np.mean((wins & ~np.isnan(own) | np.isnan(other))[answered]))
    noise = np.sqrt(max(share * (1 - share), 1 / samples) * (1 / count + 1 / samples))
    won, lost = best_shares(goal, asked, samples)
    assert won == pytest.approx(share, abs=4 * noise)
    assert won + lost == pytest.approx(1)


def test_a_winner_wins_as_often_in_direct_draws() -> None:
    check_winner(WINNERS[1], count=8_000, samples=2048)


@pytest.mark.deep
@pytest.mark.parametrize("winner", WINNERS)
def test_a_winner_wins_as_often_in_direct_draws_in_depth(
    winner: tuple[str, str, str, bool, str, str],
) -> None:
    check_winner(winner, count=100_000, samples=16_384)
