"""What keys of a config.json that nobody reads could change, and by how much."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from nearkv.hardware.config import Config
from nearkv.hardware.errors import warn

Sizes = Mapping[str, float]

_HINTS = {
    "cache": ("kv", "cache", "window", "sink", "attn", "attention", "head", "rope"),
    "mlps": ("expert", "moe", "mlp", "ffn", "intermediate", "router"),
    "embeddings": ("vocab", "embed"),
    "layers": ("layer", "block", "depth"),
}
"""Part of a model -> words in the names of keys that concern it."""
LONGEST_SHOWN = 60
"""Characters of a value that a warning repeats."""


def warn_of_unread(config: Config, kinds: Iterable[Sizes]) -> None:
    """Warn of each key that was not read: what it may change, and how large that is.

    Args:
        config: the keys, all known ones read.
        kinds: numbers of every kind of layer, its `layers` among them.
    """
    kinds = list(kinds)
    for key in config.unread:
        value = json.dumps(config.table[key])[:LONGEST_SHOWN]
        stake = _stake(key, kinds)
        meaning = f"the meaning of {key} = {value} is unknown; it is ignored"
        warn(f"{config.where}: {meaning}, and may change {stake}")
    for table in config.nested.values():
        warn_of_unread(table, kinds)


def _stake(key: str, kinds: list[Sizes]) -> str:
    """The part of a model that a key's name points to, with its size."""
    sizes = {
        "cache": f"the KV cache, {_cached(kinds):,.0f} elements of a token",
        "mlps": f"the MLPs, {_mlps(kinds):.3g} parameters",
        "embeddings": f"the embeddings, {_embeddings(kinds):.3g} parameters",
        "layers": f"all {_layers(kinds):.0f} layers",
    }
    for part, words in _HINTS.items():
        if any(word in key.lower() for word in words):
            return sizes[part]
    return "any bytes or FLOPs"


def _cached(kinds: list[Sizes]) -> float:
    """K and V of one token in all layers that have such [1]."""
    rows = [
        kind["layers"] * 2 * kind["kv_heads"] * kind["head_size"]
        for kind in kinds
        if "state_size" not in kind
    ]
    return sum(rows)


def _mlps(kinds: list[Sizes]) -> float:
    total = 0.0
    for kind in kinds:
        matrices = (2 + kind["gated"]) * kind["experts"]
        total += kind["layers"] * matrices * kind["hidden"] * kind["ffn"]
    return total


def _embeddings(kinds: list[Sizes]) -> float:
    first = kinds[0]
    return (2 - first["tied"]) * first["vocab"] * first["hidden"]


def _layers(kinds: list[Sizes]) -> float:
    return sum(kind["layers"] for kind in kinds)
