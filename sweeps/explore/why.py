"""Sentences on why an answer of `nearkv solve` lies where it does, and what would move it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from nearkv.solvers.beta import BALANCE, CAPACITY, HOST, LINK, NOTHING
from nearkv.sweeps.evaluate.evaluate import Columns
from nearkv.sweeps.explore.crossover import EQUAL
from nearkv.sweeps.explore.rows import Rows, rows_of

Row = Mapping[str, Any]

MOST = 6
"""Sentences that anybody reads below a table."""


def sentences(rows: Iterable[str]) -> list[str]:
    """The first sentences, each once."""
    distinct = list(dict.fromkeys(rows))
    return distinct[:MOST]


def _lacks_answer(row: Row, name: str) -> str:
    """A sentence about a point without an answer; empty where it has one."""
    if row["status"] == "ok":
        return ""
    return f"{name}: {row['status']}; {row['reason'] or 'memory is short'}."


def why_alpha(answer: Columns) -> list[str]:
    """Say why each optimum of alpha lies where it does."""
    return sentences(map(_why_alpha, rows_of(answer)))


def _why_alpha(row: Row) -> str:
    point = f"{row['system']}, {row['model']}"
    if lacking := _lacks_answer(row, point):
        return lacking
    alpha, ratio, bound_by = row["value"], row["x_over_kv"], row["bound_by"]
    times = f"{ratio:g} times the bytes of K and V (KV/X = 2/g)"
    reason = f"X has {times}; more X would cost more than it saves{_balance(bound_by)}"
    if alpha == 0:
        reason = f"any X would only add to what {bound_by} must do"
    if alpha == 0 and ratio >= 1:
        reason = f"X has {times}, so keeping X only adds to what is read"
    if bound_by.startswith("memory"):
        reason = f"{reason}; more memory would raise it"
    return f"{point}: alpha = {alpha:.4g}, bound by {bound_by}; {reason}."


def _balance(bound_by: str) -> str:
    """What would move a balance: the resource that slows on either side of it."""
    below, equals, above = bound_by.removeprefix("memory, ").partition(" = ")
    return f"; a faster {above} would raise it, a faster {below} lower it" if equals else ""


def why_spill(answer: Columns) -> list[str]:
    """Say why each optimum of the spill interval lies where it does."""
    return sentences(map(_why_spill, rows_of(answer)))


def _why_spill(row: Row) -> str:
    point = f"{row['system']}, {row['model']}"
    if lacking := _lacks_answer(row, point):
        return lacking
    optimum = f"{point}: c = {row['value']:g} of 1 to 256, each tried"
    trade = "rows buffered in host memory against rows that fill a page"
    rule = row.get("rule")
    if rule is None or np.isnan(rule):
        return f"{optimum}; it trades {trade}."
    loss = f"the paper's page over entry, {rule:g}, loses {row['rule_loss']:.2%}"
    return f"{optimum}; it trades {trade}; {loss}; a larger csd.page would raise both."


_NEARLY = 1.001
"""A step this many times the shortest is as good as that [1]."""

MOVES_BETA = {
    BALANCE: "a faster CPU would raise it, a faster SmartSSD lower it",
    HOST: "more host.memory would raise it",
    CAPACITY: "a larger SmartSSD would lower it",
}
"""What would move beta, by what binds it."""


def why_beta(answer: Columns) -> list[str]:
    """Say what ends each beta, which path waits, and what would move it."""
    return sentences(map(_why_beta, rows_of(answer)))


def _why_beta(row: Row) -> str:
    model, bound_by = row["model"], row["bound_by"]
    cpu, csd = row["t_cpu_ms"], row["t_csd_ms"]
    if lacking := _lacks_answer(row, model):
        return lacking
    if bound_by == NOTHING:
        return f"{model}: the whole KV cache fits the GPU, so there is nothing to split."
    optimum = f"{model}: beta = {row['value']:.4g}, bound by"
    if bound_by == LINK:
        return (
            f"{optimum} the GPU's link, which the tokens of both paths cross at any beta; "
            f"T_CPU = {cpu:.4g} ms and T_SmartSSD = {csd:.4g} ms queue there for "
            f"{row['bound_ms']:.4g} ms in all."
        )
    sign, straggler = ">", "the CPU is the straggler"
    if cpu < csd:
        sign, straggler = "<", "the SmartSSD is the straggler"
    if np.isclose(cpu, csd):
        sign, straggler = "=", "neither waits"
    times = f"T_CPU = {cpu:.4g} ms {sign} T_SmartSSD = {csd:.4g} ms: {straggler}"
    moves = MOVES_BETA.get(bound_by)
    reason = f"{optimum} {bound_by}; {times}{f'; {moves}' if moves else ''}."
    if row["step_ms"] <= _NEARLY * row["fastest_ms"]:
        return reason
    return (
        f"{reason} Eq. 2 leaves out what else a step does there, such as writing back promoted "
        f"tokens: the whole step takes {row['step_ms']:.4g} ms, and is shortest at "
        f"beta = {row['fastest']:.4g}, {row['fastest_ms']:.4g} ms (hillinfer's hot_share=auto)."
    )


def why_mapping(answer: Columns) -> list[str]:
    """Say which side of the memory ends each mapping, and what would move it."""
    return sentences(map(_why_mapping, rows_of(answer)))


def _why_mapping(row: Row) -> str:
    if lacking := _lacks_answer(row, row["model"]):
        return lacking
    attention, qkv, fc = (f"{row[f'n_{name}']:g}" for name in ("attention", "qkv", "fc"))
    heads = f"{attention} heads of attention, {qkv} of qkv and {fc} of fc"
    optimum = f"{row['model']}, {row['context_tok']:,.0f} tokens: HBM holds {heads}"
    if row["bound_by"] == "hbm.memory":
        return f"{optimum}, bound by hbm.memory: no further head fits; more of it would hold more."
    return f"{optimum}, bound by the balance of both sides: the faster HBM is, the more it takes."


def why_replay(answer: Columns) -> list[str]:
    """Say which system maps a trace best, and what moving heads costs it."""
    answered = [row for row in rows_of(answer) if row["status"] == "ok"]
    if not answered:
        return ["No system fits in every step; use fewer requests or shorter ones."]
    best = min(answered, key=lambda row: row["step_ms"])
    cost = best["speedup"] / best["speedup_migrating"] - 1
    moved = f"heads change sides before {best['moves']:.0%} of its steps"
    return [
        f"{best['system']} is fastest, {best['speedup_migrating']:.4g} times "
        f"{answer['system'][0]}; {moved}, which costs {cost:.2%}: a faster c2c would lower that."
    ]


def why_subbatch(rows: Rows) -> list[str]:
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


def why_placement(rows: Sequence[Row]) -> list[str]:
    """Say what binds each placement, and which memory would speed it up most."""
    return sentences(map(_why_placement, rows))


def _why_placement(row: Row) -> str:
    if row["throughput_tok_s"] is None:
        return f"{row['model']}: {row['reason'] or row['status']}."
    worth = {tier: row[f"{tier}_tok_s_per_gb"] or 0.0 for tier in ("gpu", "host", "disk")}
    most = max(worth, key=lambda tier: worth[tier])
    bound_by = f"{row['model']}: bound by {row['binding']}"
    if not worth[most]:
        return f"{bound_by}; more memory of any kind would not move it."
    gain = f"{worth[most]:.4g} tokens per second"
    return f"{bound_by}; one more GB of {most} memory would add {gain}."


def why_batch(rows: Sequence[Row]) -> list[str]:
    """Say what ends each batch: memory, a limit, or the batch that is fastest."""
    return sentences(map(_why_batch, rows))


def _why_batch(row: Row) -> str:
    point = f"{row['system']}, {row['model']}"
    largest, best, ends = row["largest_batch"], row["value"], row["short_of"]
    if not largest:
        return f"{point}: no batch is served, bound by {ends}."
    more = f"the largest of them, {largest:,.0f}, is bound by {ends}"
    if best == largest:
        move = "a looser one" if ends.startswith("the limit") else "more of it"
        return f"{point}: batch {best:,.0f}, bound by {ends}; {move} would raise the batch."
    return f"{point}: batch {best:,.0f}, the fastest of all that run at once; {more}."


def why_hardware(rows: Sequence[Row]) -> list[str]:
    """Say how much hardware the targets need, and what binds there."""
    return sentences(filter(None, map(_why_hardware, rows)))


def _why_hardware(row: Row) -> str:
    if row["limit"] == "never":
        return ""  # its reason says it
    need = "any value"
    if row["value"] is not None:
        unit = "" if row["unit"] == "1" else f" {row['unit']}"
        need = f"{row['limit']} {row['value']:.6g}{unit}"
    binds = ""
    if row["binds"]:
        binds = f"; {row['binds']} binds there"
    if row["binds"] and row["limit"] == "at least":
        binds += ": were it faster, less would do"
    return f"{row['system']}, {row['model']}: {row['vary']} {need}{binds}."


def why_crossover(rows: Sequence[Row]) -> list[str]:
    """Say which system leads on either side of each crossing."""
    return sentences(_why_crossover(row) for row in rows if row["to"])


def _why_crossover(row: Row) -> str:
    unit = "" if row["unit"] == "1" else f" {row['unit']}"
    below, above = (f"{row[side]:,.6g}{unit}" for side in ("below", "above"))
    change = (
        f"{_leads(row['from'])} up to {row['along']} {below}, "
        f"{_leads(row['to'])} from {above} on"
    )
    reason = f"; {row['reason']}" if row["reason"] else ""
    return f"{row['model']}: {change}{reason}."


def _leads(name: str) -> str:
    return "both are equal" if name == EQUAL else f"{name} leads"
