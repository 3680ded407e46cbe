"""`nearkv.reuse`: KV caches that outlive a request, over tiers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import numpy as np

from nearkv.hardware.errors import InputError, check_known
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
from nearkv.sweeps.api.tables import Findings, table_of_rows
from nearkv.sweeps.study.grid import NO_NUMBERS
from nearkv.sweeps.study.sizes import Reader, comma_list, names, per_second, size

CAPACITIES = 2.0 ** np.arange(15, 28)
"""Capacities of a curve that is drawn, 32k to 128M [tokens]."""
SHORTEST = 7
"""Logarithm to base 2 of the shortest prefix that is drawn."""
SEPARATOR = re.compile(r"\s*,\s*(?=[a-z])")
"""Between tiers; a comma before a number is between sizes of one."""

if TYPE_CHECKING:
    import pandas as pd

    from nearkv.sweeps.explore.reuse.node import Node
    from nearkv.sweeps.study.block_traces import BlockTrace


class ServerArguments(TypedDict, total=False):
    """One server, and what computes its prompts.

    Attributes:
        platform: `h200-node` by default; each node has tiers of its own but for shared ones.
        system: that computes the prompts, `gpu` by default.
        sets, parts: numbers and parts of the platform to replace, one value each.
        knobs: of the system, and of the store: `copies` (`once` or `per-gpu`: how often tiers
            behind HBM keep what several GPUs hold alike) and `snapshots` (`prompt` or `block`: at
            whose ends recurrent states are kept).
    """

    platform: Platforms
    system: Value
    sets: Mapping[str, Values]
    parts: Mapping[str, Values]
    knobs: Mapping[str, Values]


class RequestArguments(TypedDict, total=False):
    """Requests that share prefixes: of a file, or made.

    Attributes:
        trace: JSON lines or CSV of Mooncake, Bailian or nearkv itself, also packed by gzip; or
            `conversation` or `synthetic`, Mooncake's traces.
        rate_scale: how many times as fast the requests of the trace come.
        time_unit: of the arrivals, `s`, `ms`, `us` or `ns`; that of the format by default.
        block: tokens of a block; those of the format, or 512, by default.
        groups: prompts of so many groups in place of a trace.
        prefix: tokens that the prompts of a group share.
        requests: of all groups.
        order: groups ask at `random`, or one after the other, `round`.
        turns: of a conversation that begins with the prefix.
        grow: tokens that each turn adds.
        pause: between the turns, as `20s`.
        rate: requests a second.
        output_tokens: of an answer; a trace has its own.
    """

    trace: Value
    rate_scale: float
    time_unit: str
    block: int
    groups: int
    prefix: str | float
    requests: int
    order: str
    turns: int
    grow: str | float
    pause: str
    rate: str | float
    output_tokens: str | float


class ReuseArguments(ServerArguments, RequestArguments, total=False):
    """A server, and the requests that come to it."""


UNSTATED: ReuseArguments = {
    "platform": "h200-node",
    "system": "gpu",
    "sets": NO_NUMBERS,
    "parts": NO_NUMBERS,
    "knobs": NO_NUMBERS,
    "trace": "",
    "rate_scale": 1.0,
    "time_unit": "",
    "block": 0,
    "groups": 0,
    "prefix": 0,
    "requests": 0,
    "order": "random",
    "turns": 1,
    "grow": 0,
    "pause": "",
    "rate": 0,
    "output_tokens": 0,
}
"""Values of what is not stated."""


def reuse(
    model: Models,
    *,
    tiers: str | Iterable[str],
    hit: float = 0.0,
    policy: str = "exclusive",
    admission: str | Iterable[str] = "all",
    routing: str = "prefix",
    nodes: int = 0,
    users: int = 0,
    slo: str = "",
    drive: str = "",
    staged: bool = False,
    **arguments: Unpack[ReuseArguments],
) -> pd.DataFrame:
    """Say what tiers of KV caches hit, how a prefix comes back soonest, what is saved and worn.

    Args:
        model: one model.
        tiers: memories of the platform that keep blocks, the nearest first: `hbm`, `dram=512GB`,
            `cxl`, `ssd=8x3.84TB`, `pool=4TB` and `pool-ssd` behind the fabric, `object`.
        hit: how often a prefix is found, where there are `prefix` and `rate` alone.
        policy: what tiers keep: `exclusive`, `inclusive`, `victim` or `write-through`.
        admission: `all` blocks enter the tiers behind the first, or those of a `second-touch`; both
            one after the other where both are named.
        routing: requests go to the node with the longest `prefix`, or to a `random` one.
        nodes: servers; 0 for the fewest that compute prompts at most 80 % of their time, or one for
            users.
        users: that ask again when they are answered, in place of the rate of the requests.
        slo: `ttft_s=2`: also the rate at which requests wait so long in the mean.
        drive: `30.72TB`: wear is counted in such drives, and asked again of as many as bear it.
        staged: blocks from drives and other servers pass through host DRAM, and are copied again.
        arguments: as `ServerArguments` and `RequestArguments` say.

    Returns:
        A row a tier, of all nodes together; `table.attrs["conclusion"]` says it in sentences.

        - Hits: `hit_share` of the blocks; `total_share` with the tiers before it, between
          `total_low` and `total_high` if reuse drifts on as in the trace; `prefix_tok`, the mean
          length of a prefix that it has.
        - Ways back of such a prefix: `load_ms`, `recompute_ms`, `both_ms` at once, `layerwise_ms`
          (loading layer by layer behind the prompt), `restore_x_ms` (from X), `attend_near_ms`
          (attention beside the tier); the `best` of them; `prompt_ms` of the whole prompt that way;
          `load_pays_from_tok`, the length from which on loading pays; `near_pays_to_tok`, the
          tokens that attend beside the tier in the time of one load.
        - Traffic: `read_gb_s` while it loads, `asked_gb_s` in the mean, `write_gb_s`,
          `reads_per_write`, and `write_share` of the path's rate.
        - Price and wear: `usd`; `dwpd`, drive writes a day; `drives_1_dwpd`, drives that bear the
          writes at one a day; `life_years`; `usd_tb_written`; `pays_from_reads`, how often a block
          must be read to be worth its write.
        - Service of the nodes: `nodes`, `load` (`plain_load` without tiers), `prefill_saved`,
          `wait_s`, `ttft_s` with its quantiles, `tpot_ms`, `req_s`, `total_tok_s`, and `most_req_s`
          within `slo`.

    Raises:
        InputError: an argument that cannot be used, or a trace that cannot be read.

    >>> table = reuse("llama3.1-70b", tiers="dram=512GB", prefix="16k", hit=0.7, rate=0.5)
    >>> bool(table["load_ms"][0] < table["recompute_ms"][0])
    True
    """
    from nearkv.sweeps.explore.reuse.question import ReuseQuestion, tiers_of
    from nearkv.sweeps.explore.reuse.rows import evaluate_reuse
    from nearkv.sweeps.explore.reuse.tier_sizes import BYTES

    asked = _asked(arguments)
    requests = _requests(asked)
    node = _node(model, asked, requests, staged)
    question = ReuseQuestion(
        node=node,
        tiers=tiers_of(node, names(tiers, "tiers")),
        trace=requests,
        prefix=0.0 if requests else _amount(asked["prefix"], size, "--prefix"),
        hit=hit,
        rate=0.0 if requests else _rate(asked["rate"]),
        output=_amount(asked["output_tokens"], size, "--output-tokens") or 1.0,
        users=users,
        policy=policy,
        routing=routing,
        nodes=nodes,
        ttft=_ttft(slo) if slo else 0.0,
        drive=_amount(drive, BYTES, "--drive"),
    )
    rows, conclusion = [], []
    rules = names(admission, "admission") or ("all",)
    for rule in rules:
        more, sentences = evaluate_reuse(replace(question, admission=rule))
        rows += more
        conclusion += (
            [f"{rule}: {text}" for text in sentences] if len(rules) > 1 else sentences
        )
    return table_of_rows(rows, conclusion)


def tier_sizes(
    model: Models,
    *,
    slo: str,
    tiers: str | Iterable[str] = (),
    policy: str = "exclusive",
    admission: str = "all",
    nodes: int = 0,
    years: float = 4.0,
    **arguments: Unpack[ReuseArguments],
) -> Findings:
    """Find the cheapest sizes of tiers with which requests meet a mean time to first token.

    Args:
        model, policy, admission, arguments: as `reuse` takes them.
        nodes: servers; 0 for the fewest that the largest tiers need.
        years: over which tiers are paid for.
        slo: `ttft_s=2`.
        tiers: `dram=128GB:2TB:+128GB`, `ssd=8TB,16TB`; of a name alone, any number of its parts.
            Each may be left out.

    Returns:
        One row, with

        - `usd_hour`: price of the tiers of all nodes; `ttft_s`: the mean; `hit_share`;
        - the size of each tier;
        - `designs`: how many sizes there are; `evaluations`: how many were tried.

    Raises:
        InputError: an argument that cannot be used, a tier without a price, or too many sizes.

    >>> found = tier_sizes("llama3.1-70b", trace="conversation", slo="ttft_s=4", tiers="ssd")
    >>> found.rows[0]["ttft_s"] <= 4
    True
    """
    from nearkv.sweeps.explore.reuse.question import ReuseQuestion
    from nearkv.sweeps.explore.reuse.tier_sizes import find_tier_sizes, sizing

    if not 0 < years < np.inf:
        raise InputError(f"--years: {years:g} must be above 0, and finite")
    asked = _asked(arguments)
    requests = _requests(asked)
    if requests is None:
        raise InputError("--trace: name a file of requests, or make some with --groups")
    question = ReuseQuestion(
        node=_node(model, asked, requests),
        tiers=(),
        trace=requests,
        policy=policy,
        admission=admission,
        nodes=nodes,
        ttft=_ttft(slo),
    )
    texts = [tiers] if isinstance(tiers, str) else tiers or ("dram", "ssd")
    each = [tier for text in texts for tier in SEPARATOR.split(text)]
    row, conclusion = find_tier_sizes(sizing(question, each, years))
    return Findings([row], conclusion)


def hit_curves(traces: str | Iterable[str]) -> pd.DataFrame:
    """Hits of one LRU cache over its capacity, and those of each half of the trace.

    Args:
        traces: files, or `conversation` and `synthetic`, as `reuse` takes them.

    Returns:
        A row a capacity of each trace: `hit_share` of the blocks, and those of the half that hits
        less and of the one that hits more, `hit_share_p0` and `hit_share_p100`.
    """
    import pandas as pd

    tables = []
    for name in names(traces, "trace"):
        trace = _read(_asked({"trace": name}))
        prompts = trace.prompts
        blocks = trace.share * CAPACITIES / trace.block
        halves = [
            np.mean(part[:, np.newaxis] < blocks, axis=0)
            for part in np.array_split(prompts.recency, 2)
        ]
        columns = {
            "trace": trace.name,
            "capacity_tok": CAPACITIES,
            "hit_share": np.mean(halves, axis=0),
            "hit_share_p0": np.minimum(*halves),
            "hit_share_p100": np.maximum(*halves),
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
    import pandas as pd

    from nearkv.sweeps.explore.reuse.ways import load_seconds

    node = _node(model, _asked(server))
    doublings = np.arange(SHORTEST, int(np.log2(node.longest)) + 1, dtype=float)
    lengths = np.exp2(doublings)
    ways = {"recompute": node.compute(lengths)}
    for text in names(tiers, "tiers"):
        tier = node.tier(text)
        ways[f"load from {tier.name}"] = np.asarray(load_seconds(node, tier, lengths))
    tables = [
        pd.DataFrame({"way": way, "prefix_tok": lengths, "fetch_ms": 1e3 * seconds})
        for way, seconds in ways.items()
    ]
    return pd.concat(tables, ignore_index=True)


def _asked(arguments: ReuseArguments | ServerArguments) -> ReuseArguments:
    """All arguments, those that are not stated by default.

    Raises:
        InputError: one does not exist.
    """
    check_known("argument", arguments, UNSTATED)
    asked: ReuseArguments = {**UNSTATED, **arguments}
    return asked


def _node(
    model: Models,
    asked: ReuseArguments,
    requests: BlockTrace | None = None,
    staged: bool = False,
) -> Node:
    """The server that is asked about, with what its tiers keep of a model."""
    from nearkv.sweeps.explore.reuse.node import STORE_KNOBS, node_of
    from nearkv.sweeps.study.block_traces import BLOCK_TOKENS

    knobs = dict(asked["knobs"])
    store = {name: str(knobs.pop(name)) for name in STORE_KNOBS if name in knobs}
    point: Axes = {"batch": 1, "context": 1, "output_tokens": 1, "knobs": knobs}
    point |= {"platform": asked["platform"], "sets": asked["sets"], "parts": asked["parts"]}
    block = requests.block if requests else asked["block"] or BLOCK_TOKENS
    return node_of(study_of(asked["system"], model, point), block, staged, **store)


def _amount(stated: str | float, read: Reader, where: str) -> float:
    """A number as its reader takes it; 0 where none is stated.

    Raises:
        InputError: it cannot be read.
    """
    return read(stated, where) if stated else 0.0


def _rate(stated: str | float) -> float:
    """Requests a second, as 2 or as 2/s; 0 where none are stated.

    Raises:
        InputError: it is no rate.
    """
    text = stated.removesuffix("/s") if isinstance(stated, str) else stated
    return _amount(text, per_second, "--rate")


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


def _requests(asked: ReuseArguments) -> BlockTrace | None:
    """The requests of a trace or of groups; none where a prefix is stated alone.

    Raises:
        InputError: they cannot be read or made, or options exclude each other.
    """
    from nearkv.sweeps.study.block_traces import BLOCK_TOKENS, PromptGroups

    groups, scale = asked["groups"], asked["rate_scale"]
    of_groups = [name for name in ("requests", "grow", "pause") if asked[name]]
    if not groups and (of_groups or asked["turns"] != 1):
        name = (*of_groups, "turns")[0]
        raise InputError(
            f"--{name} describes groups of prompts; add --groups, as in --groups 45"
        )
    if asked["trace"]:
        if any(asked[name] for name in ("groups", "prefix", "rate", "output_tokens")):
            advice = (
                "leave out --groups, --prefix, --rate and --output-tokens, or the trace"
            )
            raise InputError(f"--trace brings its own requests; {advice}")
        return _read(asked).faster(scale)
    if scale != 1 or asked["time_unit"]:
        raise InputError(
            "--rate-scale and --time-unit are of a trace; leave them out, or name a trace"
        )
    if not groups:
        return None
    return PromptGroups(
        groups=groups,
        prefix=_amount(asked["prefix"], size, "--prefix"),
        requests=asked["requests"],
        order=asked["order"],
        turns=asked["turns"],
        grow=_amount(asked["grow"], size, "--grow"),
        pause=parse(asked["pause"], "s", "--pause") if asked["pause"] else 0.0,
        rate=_rate(asked["rate"]) or 1.0,
        output=_amount(asked["output_tokens"], size, "--output-tokens") or 1.0,
    ).trace(asked["block"] or BLOCK_TOKENS)


def _read(asked: ReuseArguments) -> BlockTrace:
    """A trace of a file, or of those that come with the package.

    Raises:
        InputError: it cannot be read.
    """
    from nearkv.sweeps.study.block_traces import STORED_TRACES, read_blocks, stored_traces

    name = path_of(asked["trace"], "trace")
    path = STORED_TRACES / f"{name}.jsonl.gz" if name in stored_traces() else Path(name)
    return replace(read_blocks(path, asked["block"], asked["time_unit"]), name=name)
