"""Checks of KV caches that outlive a request: hits of traces, bytes, loads, rounds of clients."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from nearkv.sweeps.evaluate.kv_policies import tier_hits
from nearkv.sweeps.explore.reuse.node import Node, kv_bytes, node_of
from nearkv.sweeps.explore.reuse.question import ReuseQuestion, tiers_of
from nearkv.sweeps.explore.reuse.rows import evaluate_reuse
from nearkv.sweeps.study.block_traces import (
    STORED_TRACES,
    BlockTrace,
    PromptGroups,
    read_blocks,
)
from nearkv.sweeps.study.grid import scalar
from nearkv.sweeps.study.prompt_blocks import PromptBlocks
from nearkv.sweeps.study.sizes import pairs, size
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.validation import questions
from nearkv.sweeps.validation.checks import check

HILOS_BED = "hilos-a100"
"""A platform that stores every element in 16 bits."""
FETCHED_TOKENS = 64
"""Tokens of a block of clients' prompts."""


@check
def kv_gb(model: str, tokens: str, gpus: str, bits: str = "16") -> float:
    """KV of a prefix on all GPUs, copied where they exceed its heads [GB]."""
    _, llm = questions.model_on(HILOS_BED, model)
    stored = scalar(kv_bytes(llm, size(tokens, "tokens"), float(gpus)))
    return stored * float(bits) / 16 / 1e9


@check
def between_ends(model: str, gpus: str, tokens: str, first: str, last: str) -> float:
    """Time to move KV on the line t0 + bytes / B through two measured ends [ms].

    Args:
        model, gpus: whose KV it is.
        tokens: of the prefix, of the first end and of the last, separated by blanks.
        first, last: claims that state the times of the ends [ms].
    """
    middle, low, high = (kv_gb(model, each, gpus) for each in tokens.split())
    times = [questions.claimed_value(first), questions.claimed_value(last)]
    slope = (times[1] - times[0]) / (high - low)
    return times[0] + slope * (middle - low)


@check
def token_hits(trace: str) -> Any:
    """Share of a trace's tokens that a cache without bounds has [%]."""
    requests = _stored(trace)
    found = tier_hits(requests.prompts, [requests.accesses], "exclusive", "all").found[:, 0]
    tokens = np.minimum(found * requests.block, requests.prompt)
    return 100 * np.sum(tokens) / np.sum(requests.prompt)


@check
def share_of_most_hits(trace: str, tokens: str) -> Any:
    """Hits of an LRU cache over those of a cache without bounds [%]."""
    requests = _stored(trace)
    held = [float(tokens) / requests.block]
    found = tier_hits(requests.prompts, held, "exclusive", "all").found
    return 100 * np.sum(found) / requests.accesses / requests.ceiling


@cache
def _stored(trace: str) -> BlockTrace:
    """A trace that comes with the package."""
    return read_blocks(STORED_TRACES / f"{trace}.jsonl.gz")


@check
def prefill_ms(
    platform: str, gpus: str, model: str, tokens: str, reading: str = "0"
) -> float:
    """Time of a prompt of which nothing is cached, as its client sees it [ms].

    Args:
        platform, gpus, model: that compute.
        tokens: of the prompt.
        reading: time of the server's tokenizer for each of them [us].
    """
    prompt = size(tokens, "tokens")
    computing = scalar(_alone(platform, gpus, model).prefill(prompt))
    return 1e3 * computing + 1e-3 * float(reading) * prompt


@check
def saved_by_prefix(
    platform: str, gpus: str, model: str, tokens: str, rate: str = ""
) -> float:
    """Share of a prompt's prefill that a cached prefix saves, at a rate of loading it [%].

    Args:
        platform, gpus, model: that compute.
        tokens: of the prompt and of the prefix, separated by a blank.
        rate: of loading the prefix; in no time where it is blank [GB/s].
    """
    node = _alone(platform, gpus, model)
    prompt, prefix = map(float, tokens.split())
    load = scalar(node.kv_bytes(prefix)) / (float(rate) * 1e9) if rate else 0.0
    return 100 * scalar((node.compute(prefix) - load) / node.prefill(prompt))


@check
def round_of_hits(model: str, capacity: str, clients: str, tokens: str, number: str) -> Any:
    """Tokens found in one round of clients that each send their history and new tokens [%].

    Clients take turns; what each sent before lies in an LRU cache in so far as it fits.

    Args:
        model: whose KV is cached.
        capacity: of the cache [GB].
        clients, tokens: how many, and new tokens of each in a round.
        number: of the round, the first being 1.
    """
    held = float(capacity) / kv_gb(model, str(FETCHED_TOKENS), "1")
    new, rounds = int(tokens) // FETCHED_TOKENS, range(1, int(number) + 1)
    turns = [(turn, client) for turn in rounds for client in range(int(clients))]
    blocks = [client << 20 | np.arange(turn * new) for turn, client in turns]
    prompts = PromptBlocks(
        np.concatenate(blocks), np.cumsum([len(each) for each in blocks])
    )
    hits = tier_hits(prompts, [held], "exclusive", "all").found[:, 0]
    last = [turn == int(number) for turn, _ in turns]
    return 100 * np.mean(hits[last]) / (int(number) * new)


@check
def round_of_eviction(model: str, capacity: str, clients: str, tokens: str) -> Any:
    """First round whose history does not fit a cache [1]; arguments as in `round_of_hits`."""
    a_round = int(clients) * kv_gb(model, tokens, "1")
    return np.ceil(float(capacity) / a_round)


@check
def of_prefix(columns: str, server: str, tokens: str, tier: str) -> float:
    """Columns of `nearkv reuse` of a prefix that half of rare requests find in a tier.

    Args:
        columns: arithmetic over columns.
        server: model, and numbers and knobs of it, as in `glm-5.2 gpu.count=32 tp=1`.
        tokens, tier: of the prefix, and where it lies.
    """
    prefix = size(tokens, "tokens")
    node = _server(server)
    return _answered(
        columns,
        ReuseQuestion(node, (node.tier(tier),), prefix=prefix, hit=0.5, rate=1e-4, nodes=1),
    )


@check
def of_groups(columns: str, server: str, requests: str, tiers: str) -> float:
    """Columns of `nearkv reuse` of users who ask for prompts of groups, with a store as vLLM's.

    Args:
        columns, server: as `of_prefix` takes them.
        requests: `groups`, `prefix`, `grow`, `requests`, `output`, `users` and `nodes`.
        tiers: separated by blanks.
    """
    stated = pairs(requests.split(), "groups of a claim")
    numbers: dict[str, Any] = {name: int(number) for name, number in stated.items()}
    users, nodes = numbers.pop("users"), numbers.pop("nodes")
    trace = PromptGroups(**numbers).trace(Node.block)
    node = _server(server, trace.block)
    named, policy = tiers_of(node, tiers.split()), "write-through"
    question = ReuseQuestion(node, named, trace, users=users, nodes=nodes, policy=policy)
    return _answered(columns, question)


@cache
def _server(server: str, block: int = Node.block, platform: str = "h200-node") -> Node:
    """A server of a platform, or of another GPU, with numbers and knobs of its own."""
    model, *stated = server.split()
    numbers = pairs(stated, server)
    parts = {name: numbers.pop(name) for name in ("gpu",) if name in numbers}
    sets = {name: value for name, value in numbers.items() if "." in name}
    knobs = {name: value for name, value in numbers.items() if "." not in name}
    study = Study(
        ("gpu",),
        (model,),
        "1",
        "1",
        output_tokens="1",
        platforms=(platform,),
        parts=parts,
        sets=sets,
        knobs=knobs,
    )
    return node_of(study, block)


def _alone(platform: str, gpus: str, model: str) -> Node:
    """GPUs that compute prompts alone."""
    return _server(f"{model} gpu.count={gpus} nvlink.count={gpus}", platform=platform)


def _answered(columns: str, question: ReuseQuestion) -> float:
    """Arithmetic over the columns of the first tier."""
    (row, *_), _ = evaluate_reuse(question)

    def value(word: str) -> Any:
        return row[word] if word in row else questions.number_or_size(word)

    return float(questions.arithmetic(columns, value))
