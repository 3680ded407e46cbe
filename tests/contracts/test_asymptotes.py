"""Machines far from the papers: what must bind there, in seconds worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from support.systems import SYSTEMS

from nearkv.sweeps.evaluate.columns import table
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.tables.table import records

CONTEXT, TOKENS = 65_536, 64
SEEN = CONTEXT + TOKENS / 2
# OPT-66B: 64 layers of 9,216; GPT-175B: 96 layers of 12,288; K and V of a token in 16 bits
KV_66B, KV_175B = 4 * 64 * 9216 * SEEN, 4 * 96 * 12288 * SEEN
X_66B = KV_66B / 2
WEIGHTS_66B = 64 * 12 * 9216**2 * 2
WEIGHTS_175B = 96 * 12 * 12288**2 * 2
# a kernel of a layer and two all-reduces of seven hops; all banks: rows of 1,024 in 1,131 cycles
BESIDE_175B = WEIGHTS_175B / (8 * 2.039e12 * 0.76) + 96 * (22e-6 + 14 * 6.06e-6)
BANKS = 409.6e9 * 4 * 16 * 4 / 8 * 1024 / 1131 * (1 - 350 / 7800)
IN_DRAM = {"weights": "host"}
ROOM = {"gpu.memory": "100TB", "csd.capacity": "1000TB"}

LIMITS = {
    "so many drives that weights over the GPU's link remain": (
        ("hilos", "opt-66b", 1),
        {**IN_DRAM, "alpha": "auto"},
        {**ROOM, "csd.count": "10000"},
        WEIGHTS_66B / (0.8 * 31.5e9),
    ),
    "one drive reads all K and V": (
        ("hilos", "opt-66b", 16),
        {**IN_DRAM, "alpha": "0"},
        {**ROOM, "csd.count": "1"},
        16 * KV_66B / 3e9,
    ),
    "slow flash: X alone, half of the bytes": (
        ("hilos", "opt-66b", 16),
        {**IN_DRAM, "alpha": "auto"},
        {**ROOM, "csd.p2p_read": "1MB/s"},
        16 * X_66B / 8e6,
    ),
    "slow flash, eight queries a KV head: K and V alone, X would be larger": (
        ("hilos", "llama3.1-70b", 16),
        {**IN_DRAM, "alpha": "auto"},
        {**ROOM, "csd.p2p_read": "1MB/s"},
        16 * 4 * 80 * 1024 * SEEN / 8e6,
    ),
    "ten thousand drives end at the file path, then the CPU attends": (
        ("flexgen-ssd", "opt-66b", 16),
        IN_DRAM,
        {"ssd.count": "10000", "ssd_link.count": "10000", "host.memory": "10TB"},
        16 * KV_66B * (1 / 10e9 + 1 / (0.114 * 204.8e9)),
    ),
    "dead drives: K and V at what flash reads": (
        ("inf2", "opt-66b", 8),
        {**IN_DRAM, "alpha": "0"},
        {**ROOM, "csd.p2p_read": "1kB/s"},
        8 * KV_66B / 16e3,
    ),
    "a narrow link: what is retained beyond the GPU's fifth": (
        ("hillinfer", "opt-6.7b", 1),
        {"sigma": "0", "hot_share": "auto", "retention": "0.2"},
        {
            "gpu_link.bandwidth": "1MB/s",
            "gpu.memory": "10TB",
            "host.memory": "20TB",
            "host.kv_memory": "10TB",
        },
        0.8 * 0.2 * 4 * 32 * 4096 * SEEN / 0.8e6,
    ),
    "narrow links: Q, K and V out, what attention gives back": (
        ("l3", "gpt-175b", 4),
        {"interleave": "off", "homes": "balanced"},
        {"gpu_link.bandwidth": "100kB/s"},
        4 * 96 * 8 * 12288 / 8e5,
    ),
    "one sequence has one of four ranksets": (
        ("l3", "gpt-175b", 1),
        {"homes": "layerwise"},
        {},
        BESIDE_175B + KV_175B / (BANKS / 4),
    ),
    "one sequence has one rank of each channel": (
        ("rank-pim", "gpt-175b", 1),
        {"homes": "random"},
        {},
        BESIDE_175B + KV_175B / (409.6e9 * (1 - 350 / 7800)),
    ),
    "slow GPUs: one batch reads the weights once": (
        ("l3", "gpt-175b", 4),
        {"interleave": "auto"},
        {"gpu.bandwidth": "1GB/s"},
        WEIGHTS_175B / (8e9 * 0.76),
    ),
}


@pytest.mark.filterwarnings("ignore::nearkv.hardware.errors.NearkvWarning")
@pytest.mark.parametrize("limit", LIMITS)
def test_far_machines_take_what_binds_them(limit: str) -> None:
    (system, model, batch), knobs, sets, seconds = LIMITS[limit]
    study = Study(
        (system,), (model,), str(batch), str(CONTEXT), str(TOKENS), knobs=knobs, sets=sets
    )
    answer = table(study)
    assert answer["status"].tolist() == ["ok"]
    assert 1e-3 * float(answer["step_ms"][0]) == pytest.approx(seconds, rel=0.02)


@pytest.mark.parametrize("name", sorted(SYSTEMS))
def test_an_empty_cache_is_the_limit_of_a_short_prompt(name: str) -> None:
    """A step after no token takes no more than after one, and its prompt the output head alone."""
    with np.errstate(all="raise"):
        answer = table(Study(name, "llama3.1-8b", 1, "0,1", 64, platforms="own"))
    empty, short = records(answer)
    assert empty["status"] == "ok"
    assert 0 < empty["step_ms"] <= short["step_ms"] < 1.01 * empty["step_ms"] + 0.2
    assert 0 <= empty["prefill_s"] < short["prefill_s"]
