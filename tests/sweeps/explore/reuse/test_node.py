"""A node by hand: what tiers hold of a model, over which links prompts come, what a node has."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import nearkv
from nearkv.hardware.errors import InputError
from nearkv.sweeps.explore.reuse.node import Node, node_of
from nearkv.sweeps.explore.reuse.ways import load_seconds
from nearkv.sweeps.study.study import Study

LATENT = 61 * (512 + 64) * 2
"""Bytes of a token of DeepSeek-V3: 61 layers of a latent and its positions in 16 bits."""
LINK, FETCH = 63e9 * 0.8, 1.8e-3


@cache
def node(model: str, copies: str = "once", snapshots: str = "prompt", **knobs: str) -> Node:
    """The server with blocks of 512 tokens."""
    study = Study(
        ("gpu",),
        (model,),
        "1",
        "1",
        output_tokens="1",
        platforms=("h200-node",),
        knobs={name: (value,) for name, value in knobs.items()},
    )
    return node_of(study, 512, copies=copies, snapshots=snapshots)


def test_tiers_behind_hbm_hold_a_latent_once() -> None:
    split = {"tp": "8", "dp": "1", "pp": "1", "attention": "tp"}
    once, per_gpu = (node("deepseek-v3", copies=each, **split) for each in ("once", "per-gpu"))
    assert once.token_bytes("dram") == LATENT
    assert per_gpu.token_bytes("dram") == 8 * LATENT
    assert once.token_bytes("hbm") == 8 * LATENT
    assert node("deepseek-v3", **{**split, "attention": "dp"}).token_bytes("hbm") == LATENT


def test_a_prompt_comes_over_the_links_of_the_gpus_that_hold_it() -> None:
    """All eight where they share its heads, one where one attends to it."""
    split = {"tp": "8", "dp": "1", "pp": "1"}
    shared, alone = (node("deepseek-v3", attention=each, **split) for each in ("tp", "dp"))
    moved = 16_384 * LATENT / LINK
    assert load_seconds(shared, shared.tier("dram"), 16_384.0) == pytest.approx(FETCH + moved / 8)
    assert load_seconds(alone, alone.tier("dram"), 16_384.0) == pytest.approx(FETCH + moved)


def test_links_and_adapters_follow_the_gpus_of_a_node() -> None:
    """One GPU draws over one link, unless more are stated."""
    bytes_moved = 16_384 * 36 * 2 * 8 * 128 * 2
    asked: dict[str, Any] = {
        "tiers": "dram=64GB",
        "prefix": "16k",
        "hit": 0.5,
        "rate": 0.1,
        "nodes": 1,
    }
    one = nearkv.reuse("qwen3-8b", sets={"gpu.count": "1"}, **asked)
    assert one["load_ms"][0] == pytest.approx(1e3 * (FETCH + bytes_moved / LINK))
    two = nearkv.reuse("qwen3-8b", sets={"gpu.count": "1", "gpu_link.count": "2"}, **asked)
    assert two["load_ms"][0] < one["load_ms"][0]


def test_hbm_is_what_the_serving_model_leaves() -> None:
    """As many bytes as the requests of 16k that four H100 decode together."""
    machine: dict[str, Any] = {
        "sets": {"gpu.count": "4"},
        "parts": {"gpu": "h100-sxm"},
        "knobs": {"tp": "4", "dp": "1", "pp": "1", "attention": "tp"},
    }
    asked: dict[str, Any] = {"prefix": "16k", "hit": 0.5, "rate": 0.1}
    table = nearkv.reuse("llama3.1-70b", tiers="hbm", **asked, **machine)
    together = nearkv.estimate(
        "gpu", "llama3.1-70b", platform="h200-node", batch=500, context="16k", **machine
    )
    held = together.values["batch_run"] * 16_384 * 80 * 2 * 8 * 128 * 2 / 1e9
    assert table["capacity_gb"][0] == pytest.approx(held, rel=0.05)


def test_a_size_lies_on_as_many_drives_as_hold_it() -> None:
    """A drive of the node has 7.68 TB, and there are eight."""
    here = node("llama3.1-70b")
    assert [here.tier(f"ssd={size}TB").parts for size in (7, 8, 61)] == [1, 2, 8]
    assert here.tier("ssd").capacity == pytest.approx(8 * 7.68e12)
    assert here.tier("ssd=2x7.68TB").parts == 2
    assert here.tier("pool=9TB").capacity == 9e12  # of all nodes
    with pytest.raises(InputError, match="in 8; state less"):
        here.tier("ssd=62TB")


def test_a_state_is_kept_at_the_end_of_a_prompt_or_of_each_block() -> None:
    at_end = node("jamba-v0.1", snapshots="prompt")
    each = node("jamba-v0.1", snapshots="block")
    state = at_end.state_bytes
    tokens = 1_024 * at_end.token_bytes("dram")
    assert at_end.kept_bytes(1_024.0, "dram") == pytest.approx(tokens + state)
    assert each.kept_bytes(1_024.0, "dram") == pytest.approx(tokens + 2 * state)
    assert each.block_bytes("dram") == pytest.approx(tokens / 2 + state)
    assert at_end.snapshot == pytest.approx(state / (tokens / 2))
    assert node("llama3.1-70b").snapshot == 0
