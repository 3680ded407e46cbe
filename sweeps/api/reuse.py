"""`nearkv.reuse`: KV caches that outlive a request, over tiers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

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
from nearkv.sweeps.study.sizes import names, size, values

if TYPE_CHECKING:
    from nearkv.sweeps.study.block_traces import BlockTrace, ReuseSummary


def reuse(
    model: Models,
    *,
    tiers: str | Iterable[str],
    platform: Platforms = "h200-node",
    system: Value = "tensor-parallel",
    trace: Value | None = None,
    prefix: Value = 0,
    hit: float = 0.0,
    rate: float = 0.0,
    rate_scale: float = 1.0,
    block: int = 512,
    policy: str = "victim",
    admission: str = "all",
    nodes: int = 0,
    sets: Mapping[str, Values] | None = None,
    parts: Mapping[str, Values] | None = None,
) -> pd.DataFrame:
    """Say what tiers of KV caches hit, how a prefix comes back soonest, what is saved and worn.

    Args:
        model: one model.
        tiers: memories of the platform that keep blocks, the nearest first: `dram=512GB`,
            `ssd=8x3.84TB`, `pool=4TB`.
        platform: one server; each node has tiers of its own but for a pool.
        system: that computes the prompts.
        trace: requests in Mooncake's form, JSON lines or CSV, also packed by gzip; the summary
            of one, which ends in .json; or `conversation` or `synthetic`, the summaries of
            Mooncake's traces.
        prefix, hit, rate: without a trace: tokens, how often they are found, requests a second.
        rate_scale: how many times as fast the requests of the trace come.
        block: tokens of a block of the trace; a summary states its own.
        policy: `victim` (replayed), `exclusive` or `inclusive` (read off the reuse curve).
        admission: `all` victims are written to the second tier, or those of a `second-touch`.
        nodes: servers; 0 for the fewest that compute prompts at most 80 % of their time.
        sets, parts: numbers and parts of the platform to replace, one value each.

    Returns:
        A row a tier, of all nodes together: `hit_share` of the blocks, `prefix_tok` it has in the
        mean where it has any, milliseconds to load, recompute, do both or rebuild it from X, from
        how many tokens on loading pays, bytes read and written, the share of the way's rate that
        writing takes, drive writes a day, drives of that size that bear them at one a day, and
        their life. `table.attrs["conclusion"]` says what it does to the service;
        `table.attrs["curve"]` is the summary of the trace, to be saved as .json.

    Raises:
        InputError: an argument that cannot be used, or a trace that cannot be read.

    >>> table = reuse("llama3.1-70b", tiers="dram=512GB", prefix="16k", hit=0.7, rate=0.5)
    >>> bool(table["load_ms"][0] < table["recompute_ms"][0])
    True
    """
    from nearkv.sweeps.explore.reuse import Reuse
    from nearkv.sweeps.explore.reuse import reuse as answer

    one_point: Axes = {"batch": 1, "context": 1, "output_tokens": 1, "platform": platform}
    study = study_of(system, model, {**one_point, "sets": sets or {}, "parts": parts or {}})
    (tokens,) = values(prefix, size, "prefix") if prefix else (0.0,)
    requests, summary = (None, None) if trace is None else _trace(trace, block)
    question = Reuse(
        study=study,
        tiers=names(tiers, "tiers"),
        trace=requests,
        summary=summary.faster(rate_scale) if summary else None,
        prefix=tokens,
        hit=hit,
        rate=rate,
        policy=policy,
        admission=admission,
        nodes=nodes,
    )
    rows, conclusion = answer(question)
    table = table_of_rows(rows, conclusion)
    table.attrs["curve"] = summary.text() if summary else ""
    return table


def _trace(trace: Value, block: int) -> tuple[BlockTrace | None, ReuseSummary]:
    """A trace and its summary, or the summary alone where there is no more.

    Raises:
        InputError: it cannot be read.
    """
    from nearkv.sweeps.study.block_traces import (
        CURVES,
        read_blocks,
        read_summary,
        stored_curves,
    )

    path = Path(path_of(trace, "trace"))
    if str(path) in stored_curves():
        return None, read_summary(CURVES / f"{path}.json")
    if path.suffix == ".json":
        return None, read_summary(path)
    requests = read_blocks(path, block)
    return requests, requests.summary
