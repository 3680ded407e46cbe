"""`nearkv reuse`: what each tier hits, how blocks come back, what that saves and wears."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from nearkv.costmodel.algebra.span import Numbers
from nearkv.costmodel.mechanisms.kv_tiers import (
    Tier,
    crossover,
    drive_writes_a_day,
    layerwise,
    write_price,
    years,
)
from nearkv.sweeps.explore.reuse.node import Node
from nearkv.sweeps.explore.reuse.question import ReuseQuestion, check
from nearkv.sweeps.explore.reuse.service import (
    DRIFT_BAND,
    Hits,
    Service,
    faults_of,
    fewest_nodes,
    hits_of,
    least_ttft,
    most_rate,
    plain_load,
    serve,
)
from nearkv.sweeps.explore.reuse.ways import attend_near, load_seconds, ways_back
from nearkv.sweeps.study.block_traces import BlockTrace
from nearkv.sweeps.study.grid import scalar
from nearkv.sweeps.tables.table import Rows, counted

TTFT_QUANTILES = {"ttft_p50_s": 0.5, "ttft_p90_s": 0.9, "ttft_p99_s": 0.99}
STATIONARY = 0.1
"""Largest drift of the hits of a trace that is called stationary [1]."""
TOLD_WAIT = 1e-3
"""Share of a mean TTFT from which on a wait is named [1]."""


def evaluate_reuse(question: ReuseQuestion) -> tuple[Rows, list[str]]:
    """Say what each tier hits, how its blocks come back soonest, what that saves and wears.

    Returns:
        A row a tier, of all nodes together; then sentences about the service. Where wear is counted
        in drives of a size, the rows come again with as many of these as bear what is written.

    Raises:
        InputError: a tier, a share or a length that cannot be.
    """
    check(question)
    served = replace(question, nodes=question.nodes or fewest_nodes(question))
    hits = hits_of(served)
    answered = serve(served, hits)
    if question.users:
        served = replace(served, served_rate=answered.rate)
    reasons = faults_of(served, hits, answered)
    status = {"status": "infeasible" if reasons else "ok"}
    service = status | _service_columns(served, hits, answered)
    if reasons:
        service |= dict.fromkeys(("wait_s", "ttft_s", *TTFT_QUANTILES), np.inf)
    rows = [_row(served, place, hits) | service for place in range(len(served.tiers))]
    sentences = _sentences(served, hits, service, reasons)
    worn = [row for row in rows if question.drive and row["drives_1_dwpd"] > 0]
    if worn:
        more, _ = evaluate_reuse(replace(served, tiers=_of_drives(served, worn), drive=0.0))
        rows += [row | {"sized_by": "wear"} for row in more]
    return rows, sentences


def _of_drives(question: ReuseQuestion, worn: Rows) -> tuple[Tier, ...]:
    """The tiers, those of drives with as many as bear what is written at one drive write a day."""
    drives = {row["tier"]: row["drives_1_dwpd"] for row in worn}
    tiers = []
    for built, tier_count in zip(question.tiers, question.counts, strict=True):
        count = np.ceil(drives.get(built.name, 0.0) / tier_count)
        capacity = count * question.drive
        tiers.append(question.node.sized(built.name, capacity, count) if count else built)
    return tuple(tiers)


def _service_columns(
    question: ReuseQuestion, hits: Hits, service: Service
) -> dict[str, float]:
    """Columns of the service: load, share of prefill saved, wait, TTFT and its quantiles."""
    node = question.node
    saved = hits.mean(node.compute(hits.cached)) / hits.mean(node.prefill(hits.prompts))
    # seconds lie between those of lengths that were tried, the TTFT is of the exact length
    wait = max(service.ttft - hits.mean(service.seconds), 0.0)
    tokens = hits.mean(hits.prompts + hits.outputs)
    quantiles = dict.fromkeys(TTFT_QUANTILES, np.nan)
    if hits.is_whole:
        quantiles = {
            name: wait + _quantile(service.seconds, hits.weights, share)
            for name, share in TTFT_QUANTILES.items()
        }
    return {
        "nodes": question.nodes,
        "load": service.load,
        "plain_load": plain_load(question, hits),
        "prefill_saved": saved,
        "wait_s": wait,
        "ttft_s": service.ttft,
        "tpot_ms": 1e3 * service.tpot,
        "req_s": service.rate,
        "total_tok_s": service.rate * tokens,
        **quantiles,
        "most_req_s": most_rate(question, hits) if question.ttft else np.nan,
    }


def _quantile(values: Numbers, weights: Numbers, share: float) -> float:
    """A quantile of weighted values."""
    return float(np.quantile(values, share, weights=weights, method="inverted_cdf"))


def _row(question: ReuseQuestion, place: int, hits: Hits) -> dict[str, Any]:
    """The row of a tier of all nodes: its hits, the ways back of a mean hit, traffic and wear."""
    node, count = question.node, question.counts[place]
    written = question.rate_of_all * float(hits.written[place])
    built = question.tiers[place]
    tier = built.while_written(written, question.nodes)
    write_load = scalar(built.write_load(written, question.nodes))
    tokens = hits.tokens[:, place]
    is_hit = tokens > 0
    found = hits.mean(is_hit)
    mean = hits.mean(tokens) / found if found else np.nan
    each = np.where(is_hit, node.kv_bytes(tokens, tier.name), 0.0)
    asked = question.rate_of_all * hits.mean(each)
    total, margin = float(np.sum(hits.share[: place + 1])), float(hits.margin[place])
    capacity = count * scalar(tier.capacity)
    drive = question.drive or scalar(tier.capacity / tier.parts)
    prompt = hits.mean(hits.prompts)
    ways = _ways(node, tier, mean if write_load < 1 else np.nan, prompt)
    return {
        "tier": tier.name,
        "policy": question.policy,
        "admission": question.admission,
        "sized_by": "stated",
        "capacity_gb": capacity / 1e9,
        "capacity_tok": prompt * capacity / scalar(node.kept_bytes(prompt, tier.name)),
        "hit_share": hits.share[place],
        "total_share": total,
        "total_low": max(total - margin, 0.0),
        "total_high": min(total + margin, 1.0),
        "prefix_tok": mean,
        **ways,
        "read_gb_s": scalar(node.kv_bytes(mean, tier.name)) / 1e6 / ways["load_ms"],
        "asked_gb_s": asked / 1e9,
        "write_gb_s": written / 1e9,
        "reads_per_write": asked / written if written else np.nan,
        "write_share": write_load,
        "usd": capacity * scalar(tier.byte_price),
        **_wear(node, tier, mean, count, written, drive),
    }


def _ways(node: Node, tier: Tier, mean: float, prompt: float) -> dict[str, Any]:
    """Columns of the ways back of a prefix, and of the fastest of them.

    Args:
        node, tier: that compute, and that has the prefix.
        mean, prompt: tokens of the prefix and of the prompt that begins with it.
    """
    ways = ways_back(node, tier, mean, queries=prompt - mean)
    every = {way: scalar(value) for way, value in ways.items()}
    rest = scalar(node.prefill(prompt) - node.compute(mean))
    every["layerwise"] = scalar(layerwise(every["load"], rest, node.llm.layers)) - rest
    near = scalar(attend_near(node, tier, mean))
    known = {way: value for way, value in every.items() if np.isfinite(value)}
    best = min(known, key=known.__getitem__, default="")
    pays_from = crossover(node.compute, lambda p: load_seconds(node, tier, p), node.longest)
    return {
        **{f"{way}_ms": 1e3 * value for way, value in every.items()},
        "best": best,
        "prompt_ms": 1e3 * (rest + known[best]) if best else np.nan,
        "load_pays_from_tok": pays_from,
        "near_pays_to_tok": every["load"] / near,
    }


def _wear(
    node: Node, tier: Tier, mean: float, count: float, written: float, drive: float
) -> dict[str, Any]:
    """Columns of the wear of drives; not a number of memory that does not wear out.

    Args:
        node: that would compute what the tier has.
        tier: with its drives.
        mean: tokens of a prefix that it has.
        count: of such tiers.
        written: to all of them [B/s].
        drive: capacity of one drive [B].
    """
    endurance = count * scalar(tier.endurance)
    capacity = count * scalar(tier.capacity)
    wears = 1.0 if np.isfinite(endurance) else np.nan
    a_byte = write_price(capacity * scalar(tier.byte_price), endurance)
    rent = node.hw.gpu.count * node.hw.gpu.maybe("rent", np.nan)
    seconds = scalar(node.compute(mean)) or np.nan
    recomputed = rent * seconds / scalar(node.kept_bytes(mean, tier.name))
    return {
        "dwpd": wears * drive_writes_a_day(written, capacity),
        "drives_1_dwpd": wears * drive_writes_a_day(written, drive),
        "life_years": wears * years(written, endurance) if written else np.nan,
        "usd_tb_written": wears * 1e12 * a_byte,
        "pays_from_reads": wears * a_byte / recomputed,
    }


def _sentences(
    question: ReuseQuestion, hits: Hits, service: dict[str, Any], reasons: list[str]
) -> list[str]:
    """Effect of reuse on the service, or why there is none."""
    sentences = [*_of_trace(question.trace)] if question.trace else []
    reused = f"{100 * float(np.sum(hits.share)):.1f} % of the blocks are reused"
    busy = f"Prompts keep a node busy for {100 * service['load']:.0f} % of its time"
    change = 100 * (1 - service["load"] / service["plain_load"])
    less = f"{abs(change):.0f} % {'less' if change > -0.5 else 'more'} than without reuse"
    sentences += [
        f"{reused} on {counted(question.nodes, 'node')}.",
        f"{busy}, {less}.",
    ]
    if question.trace:
        sentences += _doubts(question.trace, hits)
    too_long = hits.mean(hits.prompts > question.node.longest)
    if too_long:
        are = f"{100 * too_long:.3g} % of the prompts are longer than the model takes"
        timed = f"timed at {question.node.longest:,.0f} tokens, and kept whole"
        sentences.append(f"{are}; they are {timed}.")
    if reasons:
        return [*sentences, *(f"infeasible: {reason}." for reason in reasons)]
    first = f"The first token comes after {service['ttft_s']:.3g} s in the mean"
    waiting = f"{service['wait_s']:.2g} s"
    if service["wait_s"] < TOLD_WAIT * service["ttft_s"]:
        waiting = "none"
    sentences.append(f"{first}, {waiting} of it waiting.")
    if service["ttft_s"] > question.ttft > 0:
        sentences.append(_missed(question, service["most_req_s"]))
    return sentences


def _missed(question: ReuseQuestion, most: float) -> str:
    """Why requests have no mean TTFT as asked for, and what would."""
    asked = f"{question.rate_of_all:.3g} requests per second"
    if question.trace and (least := least_ttft(question)) > question.ttft:
        none = f"No cache of any size gives {asked} a mean TTFT of {question.ttft:g} s here"
        return f"{none}: {least:.3g} s if all that recurs were found."
    would = f"{most:.3g} requests per second would have"
    return f"{asked} have no mean TTFT of {question.ttft:g} s here; {would}."


def _of_trace(trace: BlockTrace) -> list[str]:
    """Summary of what was read of a trace."""
    requests = f"{len(trace.prompt):,} requests in {trace.span:,.4g} s"
    read = f"{requests}, {trace.rate:.3g} per second as recorded; times are in {trace.unit}"
    return [f"{trace.name}: {read}, blocks of {trace.block} tokens."]


def _doubts(trace: BlockTrace, hits: Hits) -> list[str]:
    """Reasons not to take a trace for what comes."""
    sentences, drift = [], np.max(hits.margin) / DRIFT_BAND
    if drift > STATIONARY:
        apart = f"its halves differ by up to {100 * drift:.0f} points in hits"
        sentences.append(f"{trace.name} is not stationary: {apart}; it is no forecast.")
    if trace.share < 1:
        error = 100 * trace.sampling_error
        sampled = "The hits are those of a sample of the blocks"
        sentences.append(f"{sampled}, with a standard error of {error:.2g} points.")
    return sentences
