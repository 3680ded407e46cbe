"""Knobs: the least and the largest value, and the runs where none is stated."""

from __future__ import annotations

import pytest
from support.systems import SYSTEMS

from nearkv.sweeps.study.study import Study, blocks

Default = float | str


Range = tuple[float, float, Default]


SHARES: dict[str, Default] = {
    # solved, as the papers choose them
    "hilos alpha": "auto",
    "inf2 alpha": "auto",
    "hillinfer hot_share": "auto",
    "cpu-offload cpu_share": "balanced",
    # what the GPU holds beside its work; nothing on the drives unless that is stated
    "flexgen-percent gpu_weights": "fill",
    "flexgen-percent gpu_cache": 0.0,
    "flexgen-percent ssd_cache": 0.0,
    "inf2 ssd_weights": 0.0,
    # a fifth is kept, a fifth moves between tiers in a step
    "hillinfer retention": 0.2,
    "infinigen retention": 0.2,
    "leoam retention": 0.2,
    "h2o migration": 0.2,
    "infinigen migration": 0.2,
    "leoam migration": 0.2,
    # InfiniGen: 30 % of the columns of K
    "infinigen partial": 0.3,
}
"""System and knob -> default, of shares from 0 to 1."""


OTHERS: dict[str, Range] = {
    # tokens between spills: HILOS waits for 16, INF2 runs with 2 (sec. 7.1)
    "hilos interval": (1, 256, 16),
    "inf2 interval": (1, 256, 2),
    "hilos writeback": (0, 1, 1),
    "inf2 writeback": (0, 1, 1),
    "inf2 buffering": (0, 1, 0),
    # FlexGen's command line: one GPU batch, the CPU attends, pinned weights, whole tensors
    "flexgen-percent gpu_batches": (1, 64, 1),
    "flexgen-percent attend": (0, 1, 0),
    "flexgen-percent pin": (0, 1, 1),
    "flexgen-percent tensors": (0, 1, 0),
    "flexgen-percent activations": (0, 2, 0),
    "flexgen-mapping longest": (1, 2**20, 2048),
    "flexgen-raid split": (0, 1, 0),
    "flexgen-ssd weights": (0, 4, "auto"),
    "accelerate weights": (0, 3, 0),
    # ZeRO-Inference: two layers ahead, the cache on the GPU
    "zero-inference prefetch": (0, 64, 2),
    "zero-inference cache": (0, 1, 0),
    "zero-inference pin": (0, 2, 0),
    # L3: interleaved where that pays, transfers beside the GPU, homes layer by layer
    "l3 interleave": (0, 1, "auto"),
    "l3 overlap_comm": (0, 1, 1),
    "l3 homes": (0, 2, 2),
    "l3 policy": (0, 1, 0),
    "rank-pim homes": (0, 2, 0),
    "hbm-pim interleave": (0, 1, 1),
    "hillinfer chunks": (1, 256, 16),
    "hillinfer hop": (0, 1, 1),
    "hillinfer placement": (0, 1, 0),
    "hillinfer score_precision": (0, 2, 1),
    "hillinfer score_source": (0, 2, 0),
    "hillinfer sigma": (0, 0.99, 0.5),
    "infinigen sigma": (0, 0.99, 0.0),
    # LeoAM: abstracts of 64 tokens
    "leoam abstract": (1, 1024, 64),
    # H2M2 maps whole heads, naive granularity whole layers
    "h2m2 n_attention": (0, 1024, "auto"),
    "h2m2 n_qkv": (0, 1024, "auto"),
    "h2m2 n_fc": (0, 1024, "auto"),
    "naive-granularity layers_fc": (0, 1024, "auto"),
}
"""System and knob -> least, largest, default."""


@pytest.mark.parametrize("name", [*SHARES, *OTHERS])
def test_a_knob_has_the_range_and_the_default_of_its_source(name: str) -> None:
    system, _, knob = name.partition(" ")
    actual = SYSTEMS[system].knobs[knob]
    expected = (0.0, 1.0, SHARES[name]) if name in SHARES else OTHERS[name]
    assert (actual.low, actual.high, actual.default) == expected


def test_a_choice_has_a_number_for_each_of_its_names() -> None:
    for system in SYSTEMS.values():
        for knob in system.knobs.values():
            if knob.kind == "choice":
                assert (knob.low, knob.high) == (0, len(knob.choices) - 1)


WITH_WEIGHTS = ("hilos", "inf2", "flexgen-ssd", "flexgen-raid", "deepspeed-uvm", "accelerate")
"""Systems whose weights lie where HILOS sec. 6.1 and INF² sec. 7.1 say."""


def test_a_system_takes_every_setting_of_its_paper() -> None:
    published = {
        f"{system.name} {name}": knob.published
        for system in SYSTEMS.values()
        for name, knob in system.knobs.items()
        if knob.published
    }
    assert published["hilos alpha"] == "paper-power-of-two"
    assert {published[f"{name} weights"] for name in WITH_WEIGHTS} == {"paper"}
    for named in published:
        # a value that the system does not take is refused
        (block,) = blocks(Study(named.split()[0], "opt-30b", published=True))
        assert block.open_knobs.get(named.split()[1]) != "auto"
