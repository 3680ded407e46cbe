"""Splits of a model over GPUs: which there are, and what each GPU holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.systems import SYSTEMS, model
from support.tiny import TINY, WORK, split

from nearkv.costmodel.mechanisms.serving.split import GpuSplit, splits, undivided
from nearkv.hardware.catalog import load_part, load_platform
from nearkv.hardware.machine import Machine

GPU = SYSTEMS["gpu"]


def under(engine: str) -> Machine:
    """Eight H100 under an engine."""
    return load_platform("hgx-h100").with_part("engine", load_part(engine), engine).machine()


def test_gpus_without_links_or_in_part_of_a_node_are_named() -> None:
    llm = model("opt-66b")
    tray = load_platform("gb200-tray").machine().with_values({"gpu.count": 8})
    assert GPU(tray, llm, WORK, split(8.0)).fits.unmodelled
    assert not GPU(tray, llm, WORK, split(4.0, 2.0)).fits.unmodelled
    # 12 GPUs fill one and a half nodes of 8; 72 heads divide over 12
    node = load_platform("hgx-h200").machine().with_values({"gpu.count": 12})
    assert GPU(node, llm, WORK, split(12.0)).fits.unmodelled
    whole = node.with_values({"nvlink.count": 6})
    assert not GPU(whole, llm, WORK, split(12.0)).fits.unmodelled
    # cards whose links a user did not count
    cards = load_platform("rtx-4090-box").machine().with_values({"gpu.count": 8})
    assert any(
        "set gpu_link.count" in reason for reason in GPU(cards, llm, WORK, split(8.0)).fits.reasons
    )


def test_splits_divide_heads_layers_and_experts() -> None:
    hw = load_platform("hgx-h200").machine()
    dense = splits(hw, model("llama3.1-70b"))
    assert set(dense["tp"][dense["attention"] == 0]) == {1, 2, 4, 8}
    # no GPUs share heads where each attends to sequences of its own
    assert set(dense["tp"][dense["attention"] == 1]) == set(range(2, 9))
    # 80 layers over three stages: 27 in the fullest; all numbers of stages differ in that
    assert set(dense["pp"]) == set(range(1, 9))
    assert set(dense["ep"]) == {1}
    experts = splits(hw, model("mixtral-8x7b"))
    assert set(experts["ep"]) == {1, 2, 4, 8}
    # four GPUs, by two: their experts in one, two or four parts
    four = (experts["tp"] == 2) & (experts["dp"] == 2) & (experts["pp"] == 1)
    assert set(experts["ep"][four]) == {1, 2, 4}


def test_the_split_of_one_gpu_is_one() -> None:
    assert GpuSplit(1.0, 1.0).gpus == GpuSplit(1.0, 1.0).replicas == 1


def test_layers_without_a_feed_forward_part_pad_nothing() -> None:
    """Layers of states alone lie between those of experts in 4 bits."""
    alone = GpuSplit(1.0, 1.0)
    states_alone = replace(TINY, ffn=0.0, experts=4.0, weight_width=0.5)
    assert alone.weight_bytes(states_alone, 256.0) == pytest.approx(states_alone.weight_bytes)


def test_stages_need_not_divide_the_layers_and_the_fullest_sets_the_pace() -> None:
    stages = GpuSplit(1.0, 1.0, pp=8.0)
    assert stages.fullest(61.0) == pytest.approx(8 * 8 / 61)
    assert stages.waiting(1.0, 61.0) == 8  # one sequence waits for each stage, uneven or not
    assert stages.waiting(8.0, 61.0) == pytest.approx(8 * 8 / 61)
    assert stages.waiting(8.0, 64.0) == 1
    three = replace(TINY, layers=5)
    hw = load_platform("hgx-h200").machine()
    whole, uneven = (
        SYSTEMS["gpu"](hw, llm, WORK, split(1.0, pp=2.0))
        for llm in (replace(TINY, layers=6), three)
    )
    assert uneven.fits.ok
    # of five layers the fuller stage has three, as each of six
    assert uneven.step.seconds == pytest.approx(whole.step.seconds, rel=1e-3)


def test_llama_cpp_divides_by_layers_alone() -> None:
    tried = splits(under("llama.cpp"), TINY)
    assert set(tried["tp"]) == set(tried["ep"]) == {1.0}
    assert set(tried["pp"]) == set(np.arange(1.0, 9.0))
    assert max(splits(under("vllm"), TINY)["tp"]) > 1


@pytest.mark.parametrize(("heads", "kv_heads"), [(6, 2), (12, 4), (12, 6), (64, 8), (56, 56)])
def test_a_gpu_has_whole_groups_of_query_heads_or_part_of_one(heads: int, kv_heads: int) -> None:
    llm = replace(TINY, heads=heads, kv_heads=kv_heads)
    of_a_group = heads // kv_heads
    for tp in range(1, heads + 2):
        (uneven,) = undivided(llm, tp).values()
        even = heads % tp == 0
        for gpu in range(tp):
            own = range(gpu * heads // tp, (gpu + 1) * heads // tp)
            groups = {head // of_a_group for head in own}
            even &= len(groups) * of_a_group == len(own) or len(groups) == 1
        assert bool(uneven) == (not even), tp


def test_a_latent_is_copied_and_a_state_divides() -> None:
    (latent,) = undivided(model("deepseek-v3"), np.array([8.0, 3.0])).values()
    assert latent.tolist() == [False, True]  # 128 heads share one row
    (hybrid,) = undivided(model("jamba-v0.1"), np.array([8.0, 3.0])).values()
    assert hybrid.tolist() == [False, True]  # 32 heads in the layers that attend
