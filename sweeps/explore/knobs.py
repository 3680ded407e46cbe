"""What `nearkv solve` answers: the best value of a knob, and beside it what the paper's rules would pick."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.metrics import COLUMNS
from nearkv.costmodel.registry import find_knob
from nearkv.costmodel.span import Leaf, Real, Repeat, Span
from nearkv.hardware.errors import InputError
from nearkv.solvers.beta import LINK, NOTHING
from nearkv.solvers.beta import best_beta as solve_beta
from nearkv.solvers.knobs import resolve_knobs
from nearkv.solvers.shares.binding import binding
from nearkv.sweeps.evaluation.evaluate import Columns, columns, evaluate, stack
from nearkv.sweeps.space.study import Block, Study, blocks

ROUNDING = 1e-12
"""A rule that loses less than this loses nothing."""


def best_knob(study: Study, knob: str) -> Columns:
    """Solve one knob of a system for the fastest decode step, at every design point.

    Args:
        study: what to evaluate; every system in it must have the knob.
        knob: its name.

    Returns:
        The solved value, `step_ms`, and for every rule of the paper its value, its `step_ms` and
        its `loss` (how much longer its step takes). A share also comes with `bound_ms`, a proven
        lower bound, and `bound_by`, the resources that meet at the optimum.

    Raises:
        InputError: a system has no such knob, or the study cannot be evaluated.
    """
    if knob in study.knobs:
        raise InputError(f"--knob {knob}: is what is solved for; leave it out")
    rules: dict[str, None] = {}
    laid = blocks(replace(study, knobs={**study.knobs, knob: "auto"}))
    for block in laid:
        rules |= dict.fromkeys(find_knob(block.system, knob).rules)
    found = stack([_certified(block, knob) for block in laid])
    for rule in rules:
        ruled = stack(evaluate(blocks(replace(study, knobs={**study.knobs, knob: rule}))))
        if len(ruled["system"]) != len(found["system"]):
            raise InputError(
                f"rule {rule!r} of {knob} is not known to every system asked; ask one at a time"
            )
        name = rule.replace("-", "_")
        found[f"{name}_{knob}"] = ruled[knob]
        found[f"{name}_step_ms"] = ruled["step_ms"]
        found[f"{name}_loss"] = ruled["step_ms"].astype(float) / found["step_ms"].astype(float) - 1
    for name in (
        knob,
        "bound_ms",
        "bound_by",
        "x_over_kv",
        *(f"{rule.replace('-', '_')}_{knob}" for rule in rules),
    ):
        if name in found:
            found[name] = np.where(
                found["status"] == "ok", found[name], "" if name == "bound_by" else np.nan
            )
    return found


def _certified(block: Block, knob: str) -> Columns:
    (found,) = evaluate([block])
    if block.system.knobs[knob].kind == "share":
        hw, llm, work, requested = block.inputs(block.grid.whole)
        resolved = resolve_knobs(block.system, hw, llm, work, requested)
        values = {name: value for name, value in resolved.knobs.items() if name != knob}
        ends = [block.system(hw, llm, work, {**values, knob: share}).step for share in (0.0, 1.0)]
        assert resolved.choice is not None
        shape = block.grid.shape
        found["bound_ms"] = np.broadcast_to(1e3 * resolved.choice.bound, shape).ravel()
        found["bound_by"] = np.broadcast_to(
            binding(ends[0], ends[1], resolved.choice), shape
        ).ravel()
        found["x_over_kv"] = np.broadcast_to(llm.x_bytes(1, 1) / llm.kv_bytes(1, 1), shape).ravel()
    return found


def why_alpha(found: Columns) -> list[str]:
    """Say in words why each optimum of alpha is where it is, one sentence a row."""
    sentences = []
    names = ("system", "model", "status", "reason", "alpha", "x_over_kv", "bound_by")
    for system, model, status, shortage, alpha, ratio, bound_by in zip(
        *(found[n] for n in names), strict=True
    ):
        if status != "ok":
            sentences.append(f"{system}, {model}: {status}; {shortage}.")
            continue
        if alpha == 0 and ratio >= 1:
            reason = f"X has {ratio:g} times the bytes of K and V (KV/X = 2/g), so keeping X only adds to what is read"
        elif alpha == 0:
            reason = f"any X would only add to what {bound_by} must do"
        else:
            reason = f"X has {ratio:g} of the bytes of K and V (KV/X = 2/g); more X would cost more than it spares"
        sentences.append(f"{system}, {model}: alpha = {alpha:.4g}, bound by {bound_by}; {reason}.")
    return list(dict.fromkeys(sentences))


def best_beta(study: Study) -> Columns:
    """Split K and V between host DRAM and SmartSSD, at every design point (HillInfer sec. 4.3, 5.4).

    Returns:
        The optimum of eq. 2 under eq. 3 with its two paths over a decode step, a proven lower bound
        and what binds; the paper's two formulas as printed, and how much longer each takes once cut
        to what fits; `step_ms` and where K and V live at the optimum. Where nothing is off the GPU
        there is no beta to tell.

    Raises:
        InputError: a value for beta itself, another knob left to `auto`, or a study that cannot be evaluated.
    """
    if "hot_share" in study.knobs:
        raise InputError("--knob hot_share: is what is solved for; leave it out")
    return stack([_beta_columns(block) for block in blocks(replace(study, systems=("hillinfer",)))])


def _beta_columns(block: Block) -> Columns:
    hw, llm, work, requested = block.inputs(block.grid.whole)
    knobs = {
        name: value for name, value in requested.items() if name not in ("hot_share", "chunks")
    }
    for name, value in knobs.items():
        if isinstance(value, str):
            raise InputError(
                f"--knob {name}={value}: give it a value; solve beta looks for beta alone"
            )
    answer = solve_beta(
        hw, llm, work, {name: np.asarray(value, float) for name, value in knobs.items()}
    )
    split = answer.bound_by != NOTHING
    best, rules = answer.best, {"eq4": answer.eq4, "sec54": answer.sec54}
    chosen = replace(block, requested={**block.requested, "hot_share": best.hot_share})
    every = columns(chosen, block.grid.whole)
    found = {
        name: values for name, values in every.items() if name == "step_ms" or name not in COLUMNS
    }
    added: dict[str, Real | NDArray[np.str_]] = {
        "hot_share": np.where(split, best.hot_share, np.nan),
        "beta": np.where(split, best.beta, np.nan),
        "t_cpu_ms": 1e3 * best.cpu,
        "t_csd_ms": 1e3 * best.csd,
        "bound_ms": 1e3 * answer.bound,
        "bound_by": answer.bound_by,
    }
    for name, rule in rules.items():
        loss = rule.at.seconds / np.where(split, best.seconds, np.nan) - 1
        added |= {
            f"{name}_beta": np.where(split, rule.beta, np.nan),
            f"{name}_loss": np.where(np.abs(loss) < ROUNDING, 0.0, loss),
        }
    shape = block.grid.shape
    blank = {"bound_by": ""}
    for name, column in added.items():
        shown = np.where((found["status"] == "ok").reshape(shape), column, blank.get(name, np.nan))
        found[name] = np.broadcast_to(shown, shape).ravel()
    return found


def why_beta(found: Columns) -> list[str]:
    """Say in words what ends each beta and which path is left waiting, one sentence a row."""
    sentences = []
    names = ("model", "status", "beta", "t_cpu_ms", "t_csd_ms", "bound_ms", "bound_by", "reason")
    for model, status, beta, cpu, csd, both, bound_by, reason in zip(
        *(found[n] for n in names), strict=True
    ):
        if status != "ok":
            sentences.append(f"{model}: {status}; {reason}.")
            continue
        if bound_by == NOTHING:
            sentences.append(
                f"{model}: the whole KV cache fits the GPU, so there is nothing to split."
            )
            continue
        if bound_by == LINK:
            sentences.append(
                f"{model}: beta = {beta:.4g}, bound by the GPU's link, which the tokens of both paths cross at any "
                f"beta; T_CPU = {cpu:.4g} ms and T_SmartSSD = {csd:.4g} ms queue there for {both:.4g} ms in all."
            )
            continue
        sign, straggler = ("=", "neither waits") if np.isclose(cpu, csd) else (
            ("<", "the SmartSSD is the straggler") if cpu < csd else (">", "the CPU is the straggler")
        )  # fmt: skip
        sentences.append(
            f"{model}: beta = {beta:.4g}, bound by {bound_by}; "
            f"T_CPU = {cpu:.4g} ms {sign} T_SmartSSD = {csd:.4g} ms: {straggler}."
        )
    return list(dict.fromkeys(sentences))


def explain(study: Study) -> tuple[Columns, list[dict[str, object]]]:
    """Evaluate one design point and lay its time tree out, a row a span, parents before their parts.

    Returns:
        The point's columns, and rows of `span` (a path), `word` (how its parts are composed),
        `seconds` it takes by itself, `share` of the wall-clock time it is to blame for, and of a leaf
        its `amount`, `unit`, `resource` and `equation`. Spans that do nothing are left out.

    Raises:
        InputError: the study is not one design point.
    """
    laid = blocks(study)
    if len(laid) != 1 or laid[0].grid.size != 1:
        raise InputError("estimate takes one design point; use compare or sweep for lists")
    block = laid[0]
    hw, llm, work, requested = block.inputs(block.grid.whole)
    total = resolve_knobs(block.system, hw, llm, work, requested).estimate.total
    attribution = {
        path: _one(seconds) / _one(total.seconds) for path, seconds in total.breakdown().items()
    }
    return columns(block, block.grid.whole), list(_rows("", total, 1.0, attribution))


def _rows(
    path: str, span: Span, times: float, attribution: Mapping[str, float]
) -> Iterator[dict[str, object]]:
    inner = span
    while isinstance(inner, Repeat):
        times *= _one(inner.times)
        inner = inner.span
    seconds = times * _one(inner.seconds)
    if not seconds:
        return
    leaf = inner if isinstance(inner, Leaf) else None
    yield {
        "span": path or "total",
        "word": type(inner).__name__.lower(),
        "seconds": seconds,
        "share": sum(
            share
            for at, share in attribution.items()
            if at == path or not path or at.startswith(f"{path}/")
        ),
        "amount": times * _one(leaf.amount) if leaf else None,
        "unit": leaf.unit if leaf else "",
        "resource": leaf.resource if leaf else "",
        "equation": leaf.eq if leaf else "",
    }
    for name, part in inner.parts.items():
        yield from _rows(f"{path}/{name}" if path else name, part, times, attribution)


def _one(value: object) -> float:
    return float(np.asarray(value).ravel()[0])
