"""`nearkv.reuse`: KV caches that outlive a request, over tiers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import numpy as np
import pandas as pd

from nearkv.hardware.errors import InputError
from nearkv.hardware.units import parse
from nearkv.sweeps.api.arguments import (
    Axes,
    Models,
    Platforms,
    Value,
    Values,
    path_of,
    study_of,
)
from nearkv.sweeps.api.tables import table_of_rows
from nearkv.sweeps.study.sizes import comma_list, names, per_second, size

CAPACITIES = 2.0 ** np.arange(15, 28)
"""Capacities of a curve that is drawn, 32k to 128M [tokens]."""
SHORTEST = 7
"""Logarithm to base 2 of the shortest prefix that is drawn."""
SEPARATOR = re.compile(r"\s*,\s*(?=[a-z])")
"""Between tiers; a comma before a number is between sizes of one."""

if TYPE_CHECKING:
    from nearkv.sweeps.study.block_traces import BlockTrace, ReuseSummary
    from nearkv.sweeps.study.study import Study


class ServerArguments(TypedDict, total=False):
    """One server, and what computes its prompts.

    Attributes:
        platform: `h200-node` by default; each node has tiers of its own but for shared ones.
        system: that computes the prompts, `gpu` by default.
        sets, parts: numbers and parts of the platform to replace, one value each.
    """

    platform: Platforms
    system: Value
    sets: Mapping[str, Values]
    parts: Mapping[str, Values]


def reuse(
    model: Models,
    *,
    tiers: str | Iterable[str],
    trace: Value = "",
    prefix: str | float = 0,
    hit: float = 0.0,
    rate: str | float = 0.0,
    rate_scale: float = 1.0,
    block: int = 0,
    policy: str = "",
    admission: str | Iterable[str] = "all",
    routing: str = "prefix",
    nodes: int = 0,
    slo: str = "",
    drive: str = "",
    staged: bool = False,
    **server: Unpack[ServerArguments],
) -> pd.DataFrame:
    """Say what tiers of KV caches hit, how a prefix comes back soonest, what is saved and worn.

    Args:
        model: one model.
        tiers: memories of the platform that keep blocks, the nearest first: `hbm`, `dram=512GB`,
            `cxl`, `ssd=8x3.84TB`, `pool=4TB` and `pool-ssd` behind the fabric, `object`.
        trace: requests in Mooncake's form, JSON lines or CSV, also packed by gzip; the summary
            of one, which ends in .json; or `conversation` or `synthetic`, the summaries of
            Mooncake's traces.
        prefix, hit, rate: without a trace: tokens, how often they are found, requests a second.
        rate_scale: how many times as fast the requests of the trace come.
        block: tokens of a block of the trace, 512 by default; a summary states its own.
        policy: `victim` (replayed), `exclusive` or `inclusive` (read off the reuse curve); by
            default `victim` of a trace and two tiers, else `exclusive`.
        admission: `all` victims are written to the second tier, or those of a `second-touch`; both
            one after the other where both are named.
        routing: requests go to the node with the longest `prefix`, or to a `random` one.
        nodes: servers; 0 for the fewest that compute prompts at most 80 % of their time.
        slo: `ttft_s=2`: also the rate at which requests wait so long in the mean.
        drive: `30.72TB`: wear is counted in such drives, and asked again of as many as bear it.
        staged: blocks from drives and other servers pass through host DRAM, and are copied again.
        server: as `ServerArguments` says.

    Returns:
        A row a tier, of all nodes together: `hit_share` of the blocks, `total_share` with the tiers
        before it, between `total_low` and `total_high` if reuse drifts on as in the trace,
        `prefix_tok` it has in the mean where it has any, milliseconds to load, recompute, do both,
        load behind what is computed, or rebuild it from X, from how many tokens on loading pays,
        milliseconds of attention beside it, bytes read and written, the share of the path's rate
        that writing takes, price, drive writes a day, drives that bear them at one a day, their
        life and what it costs; then how the nodes serve. `table.attrs["conclusion"]` says it in
        sentences; `table.attrs["curve"]` is the summary of the trace, to be saved as .json.

    Raises:
        InputError: an argument that cannot be used, or a trace that cannot be read.

    >>> table = reuse("llama3.1-70b", tiers="dram=512GB", prefix="16k", hit=0.7, rate=0.5)
    >>> bool(table["load_ms"][0] < table["recompute_ms"][0])
    True
    """
    from nearkv.sweeps.explore.kv_node import node_of
    from nearkv.sweeps.explore.reuse import Reuse, evaluate_reuse
    from nearkv.sweeps.study.block_traces import BLOCK_TOKENS

    if not trace and (policy or rate_scale != 1):
        raise InputError(
            "--policy, --rate-scale: are of a trace; without one leave them out"
        )
    requests, summary = _trace(trace, block) if trace else (None, None)
    tokens_a_block = summary.block if summary else block or BLOCK_TOKENS
    tier_names = names(tiers, "tiers")
    replays = requests is not None and len(tier_names) <= 2
    question = Reuse(
        node=node_of(_one_server(model, server), tokens_a_block, staged),
        tiers=tier_names,
        trace=requests,
        summary=summary.faster(rate_scale) if summary else None,
        prefix=size(prefix, "--prefix") if prefix else 0.0,
        hit=hit,
        rate=_per_second(rate) if rate else 0.0,
        policy=policy or ("victim" if replays else "exclusive"),
        routing=routing,
        nodes=nodes,
        ttft=_ttft(slo) if slo else 0.0,
        drive=_drive(drive) if drive else 0.0,
    )
    rows, conclusion = [], []
    rules = names(admission, "admission") or ("all",)
    for rule in rules:
        more, said = evaluate_reuse(replace(question, admission=rule))
        rows += more
        conclusion += [f"{rule}: {text}" for text in said] if len(rules) > 1 else said
    if summary and not policy:
        conclusion.append(f"Tiers are those of --policy {question.policy}.")
    table = table_of_rows(rows, conclusion)
    table.attrs["curve"] = summary.text() if summary else ""
    return table


def tier_sizes(
    model: Models,
    *,
    trace: Value,
    slo: str,
    tiers: str | Iterable[str] = (),
    rate_scale: float = 1.0,
    block: int = 0,
    policy: str = "exclusive",
    admission: str = "all",
    nodes: int = 0,
    years: float = 4.0,
    check: str = "",
    **server: Unpack[ServerArguments],
) -> pd.DataFrame:
    """Find the cheapest sizes of tiers with which requests meet a mean time to first token.

    Args:
        model, trace, rate_scale, block, server: as `reuse` takes them.
        nodes: servers; 0 for the fewest that the largest tiers need.
        years: over which tiers are paid for.
        slo: `ttft_s=2`.
        tiers: `dram=128GB:2TB:+128GB`, `ssd=8TB,16TB`; of a name alone, any number of its parts.
            Each may be left out.
        policy: `exclusive` or `inclusive`; of `victim` every size that is not too dear is replayed,
            of 256 at most.
        admission: of victims, `all` or `second-touch`.
        check: a file of the certificate of this question, to be checked in place of a search.

    Returns:
        One row: price of the tiers of all nodes for an hour, the bound that proves it, mean TTFT,
        hits and size of each tier. `table.attrs["certificate"]` lists the boxes of sizes that were
        cut. Of a check: that it holds.

    Raises:
        InputError: an argument that cannot be used, a tier without a price, too many sizes to
            replay, or a certificate that does not hold.

    >>> table = tier_sizes("llama3.1-70b", trace="conversation", slo="ttft_s=4")
    >>> bool(table["gap"][0] == 0)
    True
    """
    from nearkv.sweeps.explore.design.certificate import check_certificate
    from nearkv.sweeps.explore.kv_node import node_of
    from nearkv.sweeps.explore.reuse import Reuse
    from nearkv.sweeps.explore.tier_sizes import find_tier_sizes, sizing

    if not 0 < years < np.inf:
        raise InputError(f"--years: {years:g} must be above 0, and finite")
    requests, summary = _trace(trace, block)
    question = Reuse(
        node=node_of(_one_server(model, server), summary.block, staged=False),
        tiers=(),
        trace=requests,
        summary=summary.faster(rate_scale),
        policy=policy,
        admission=admission,
        nodes=nodes,
        ttft=_ttft(slo),
    )
    texts = [tiers] if isinstance(tiers, str) else tiers or ("dram", "ssd")
    each = [tier for text in texts for tier in SEPARATOR.split(text)]
    asked = sizing(question, each, years)
    if check:
        said = check_certificate(check, asked)
        return table_of_rows([{"status": "holds"}], [said])
    row, conclusion, certificate = find_tier_sizes(asked)
    table = table_of_rows([row], conclusion)
    table.attrs["certificate"] = certificate
    return table


def hit_curves(traces: str | Iterable[str]) -> pd.DataFrame:
    """Hits of one LRU cache over its capacity, with the band of what is to come.

    Args:
        traces: files, or `conversation` and `synthetic`, as `reuse` takes them.

    Returns:
        A row a capacity of each trace: `hit_share` of the blocks, `hit_share_p0` to
        `hit_share_p100` if reuse drifts on as in the trace, not of one that is not stationary.
    """
    tables = []
    for trace in names(traces, "trace"):
        _, summary = _trace(trace, 0)
        curve = summary.curve
        blocks = CAPACITIES / summary.block
        hits = curve.hit_ratio(blocks)
        half = curve.half_band(blocks) if curve.is_stationary else np.nan
        columns = {
            "trace": summary.name,
            "capacity_tok": CAPACITIES,
            "hit_share": hits,
            "hit_share_p0": np.maximum(hits - half, 0.0),
            "hit_share_p100": np.minimum(hits + half, 1.0),
        }
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)


def fetch_times(
    model: Models,
    *,
    tiers: str | Iterable[str],
    **server: Unpack[ServerArguments],
) -> pd.DataFrame:
    """Milliseconds to bring a prefix back over its length: computed anew, or from each tier.

    Args:
        model, tiers, server: as `reuse` takes them.

    Returns:
        A row a length of each way.
    """
    from nearkv.sweeps.explore.kv_node import node_of
    from nearkv.sweeps.study.block_traces import BLOCK_TOKENS

    node = node_of(_one_server(model, server), BLOCK_TOKENS, staged=False)
    doublings = np.arange(SHORTEST, int(np.log2(node.longest)) + 1, dtype=float)
    lengths = np.exp2(doublings)
    ways = {"recompute": node.compute(lengths)}
    for text in names(tiers, "tiers"):
        tier = node.tier(text)
        ways[f"load from {tier.name}"] = np.asarray(node.load(tier, lengths))
    tables = [
        pd.DataFrame({"way": way, "prefix_tok": lengths, "fetch_ms": 1e3 * seconds})
        for way, seconds in ways.items()
    ]
    return pd.concat(tables, ignore_index=True)


def _one_server(model: Models, server: ServerArguments) -> Study:
    """A study of one server whose system computes prompts."""
    axes: Axes = {"batch": 1, "context": 1, "output_tokens": 1}
    axes |= {"platform": server.get("platform", "h200-node")}
    axes |= {"sets": server.get("sets", {}), "parts": server.get("parts", {})}
    return study_of(server.get("system", "gpu"), model, axes)


def _drive(text: str) -> float:
    """Capacity of a drive [B].

    Raises:
        InputError: it is none.
    """
    if not (capacity := parse(text, "B", "--drive")):
        raise InputError(f"--drive {text!r}: must hold something")
    return capacity


def _per_second(rate: str | float) -> float:
    """Requests a second, as 2 or as 2/s.

    Raises:
        InputError: it is no rate.
    """
    text = rate.removesuffix("/s") if isinstance(rate, str) else rate
    return per_second(text, "--rate")


def _ttft(slo: str) -> float:
    """The mean time to the first token that is asked for, as `ttft_s=2` [s].

    Raises:
        InputError: something else is.
    """
    from nearkv.sweeps.evaluate.slo import parse_targets

    if not slo:
        raise InputError("--slo: state the mean time to the first token, as ttft_s=2")
    (target, *more) = parse_targets(comma_list(slo))
    if more or target.quantity != "ttft_s" or target.at_least:
        raise InputError(f"--slo {slo!r}: reuse is asked for a mean TTFT, as ttft_s=2")
    return target.value


def _trace(trace: Value, block: int) -> tuple[BlockTrace | None, ReuseSummary]:
    """A trace and its summary, or the summary alone where there is no more.

    Raises:
        InputError: it cannot be read.
    """
    from nearkv.sweeps.study.block_traces import (
        BLOCK_TOKENS,
        CURVES,
        read_blocks,
        read_summary,
        stored_curves,
    )

    path = Path(path_of(trace, "trace"))
    if not path.name:
        raise InputError("--trace: name a file of requests, or conversation or synthetic")
    if str(path) in stored_curves():
        path = CURVES / f"{path}.json"
    if path.suffix != ".json":
        requests = read_blocks(path, block or BLOCK_TOKENS)
        return requests, requests.summary
    summary = read_summary(path)
    if block not in (0, summary.block):
        own = f"the summary {path.name} is of blocks of {summary.block}"
        raise InputError(f"--block {block}: {own}; leave it out, or give the trace itself")
    return None, summary
