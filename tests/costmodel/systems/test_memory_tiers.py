"""One memory for both chips, and HBM as a cache of LPDDR: bytes by hand."""

from __future__ import annotations

import pytest
from support.tiny import (
    ACTIVATIONS,
    KV,
    PROMPT_KV,
    STREAMED,
    amounts,
    estimate,
    needed,
)

from nearkv.hardware.catalog import load_platform

QKV_MOVED = 3 * (8 * 30 + 5 * (8 + 30)) * 2


OUTPUT_MOVED = 3 * (18 * 8 + 5 * (18 + 8)) * 2


UP_MOVED = 3 * (8 * 38 + 5 * (8 + 38)) * 2


DOWN_MOVED = 3 * (19 * 8 + 5 * (19 + 8)) * 2


HEAD_MOVED = (8 * 11 + 5 * (8 + 11)) * 2


MOVED = QKV_MOVED + OUTPUT_MOVED + UP_MOVED + DOWN_MOVED + HEAD_MOVED


def test_one_memory_reads_weights_activations_and_cache() -> None:
    """A product takes one tile of 128 x 128 and 128 cycles, filling its array takes 3 x 128."""
    answer = estimate("lpddr-only")
    step = amounts(answer.step)
    powered = step.pop("lpddr.on wait")
    assert powered == pytest.approx(answer.step.seconds)
    expected = {
        "lpddr.memory read": MOVED + KV,
        "lpddr.vectors run": 2 * 5 * 110.5 * 3 * 18,
        "lpddr.arrays run": (3 * 4 + 1) * 128,
        "lpddr.arrays wait": (3 * 4 + 1) * 3 * 128,
    }
    assert step == pytest.approx(expected)
    assert needed(answer) == {"lpddr": STREAMED + PROMPT_KV + 5 * ACTIVATIONS}
    hw = load_platform("gh-asymmetric").machine()
    energy = hw.lpddr.count * hw.lpddr.power * answer.step.seconds / 5
    assert answer.columns == {"memory_energy_j_tok": pytest.approx(energy)}


def test_what_exceeds_hbm_is_brought_from_lpddr() -> None:
    """A quarter beside the kernels, the rest before; the prompt's cache is 100 tokens long."""
    hw = load_platform("gh-asymmetric").machine()
    room = STREAMED + KV - 1000
    answer = estimate("hierarchical", {"hbm.count": 1, "hbm.memory": room})
    step = amounts(answer.step)
    assert step["lpddr.memory read"] == step["c2c.link move"] == pytest.approx(1000)
    before = amounts(answer.step.parts["before"])
    assert before["c2c.link move"] == pytest.approx(1000 * (1 - hw.derate.migration_overlap))
    assert "c2c.link move" not in amounts(answer.prefill)
    tight = estimate("hierarchical", {"hbm.count": 1, "hbm.memory": STREAMED + PROMPT_KV - 500})
    assert amounts(tight.prefill)["c2c.link move"] == pytest.approx(500)
    assert needed(tight) == {"both": STREAMED + PROMPT_KV + 5 * ACTIVATIONS}


def test_hbm_of_eight_gpus_reduces_once_a_layer() -> None:
    hw = load_platform("gh-asymmetric").machine()
    answer = estimate("hbm-8")
    step = amounts(answer.step)
    assert step["collective.link wait"] == pytest.approx(3 * hw.collective.all_reduce)
    assert step["hbm8.memory read"] == MOVED + KV
