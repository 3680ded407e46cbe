"""Checks of KV between requests, by hand, and what they decide."""

from __future__ import annotations

import pytest

from nearkv.sweeps.validation.checks.reuse import (
    between_ends,
    kv_gb,
    round_of_eviction,
    round_of_hits,
)
from nearkv.sweeps.validation.validate import judge_claims

ROUND = ("qwen3-8b", "80", "20", "4096")
LENGTHS = (2048, 8192, 16384, 32768, 49152)


def test_kv_is_copied_where_gpus_exceed_heads() -> None:
    """94 layers of four heads of 128 in 16 bits; eight GPUs keep each twice."""
    token = 94 * 2 * 4 * 128 * 2 / 1e9
    for gpus, copies in (("1", 1), ("4", 1), ("8", 2)):
        assert kv_gb("qwen3-235b-a22b", "1000", gpus) == pytest.approx(1000 * token * copies)


def test_a_line_passes_its_ends_and_bytes_between() -> None:
    times = [
        between_ends("qwen3-235b-a22b", "8", f"{n} 128 32768", "mc-pd-128", "mc-pd-32768")
        for n in (128, 16_448, 32_768)
    ]
    assert times == pytest.approx([2.07, (2.07 + 76.78) / 2, 76.78])


def test_rounds_find_their_history_until_it_outgrows_the_cache() -> None:
    """20 clients of 4,096 tokens of 147,456 bytes are 12.08 GB a round: 80 GB hold six."""
    assert round_of_eviction(*ROUND) == 7
    for number in range(1, 7):
        hits = round_of_hits(*ROUND, str(number))
        assert hits == pytest.approx(100 * (number - 1) / number)
    assert round_of_hits(*ROUND, "7") < 75


def test_loading_is_faster_at_each_length_at_which_it_was_measured_to_be() -> None:
    ids = [f"p2p-{way}-{tokens}" for way in ("rec", "pull") for tokens in LENGTHS]
    predicted = {row["id"]: float(row["predicted"]) for row in judge_claims("reuse", ids)}
    for tokens in LENGTHS:
        assert predicted[f"p2p-pull-{tokens}"] < predicted[f"p2p-rec-{tokens}"]
