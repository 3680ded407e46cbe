"""Every `solve` ends in a sentence on what binds."""

from __future__ import annotations

import pytest
from support.command_line import printed


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("alpha --model opt-66b", "a faster gpu.tensor would raise it, a faster csd.flash"),
        ("spill --model opt-30b --context 16k", "a larger csd.page would raise both"),
        ("beta --model qwen-7b --batch 8 --context 12k", "a faster CPU would raise it"),
        ("mapping --model gpt3-175b", "bound by hbm.memory: no further head fits"),
        ("mapping-trace --model gpt3-175b --iterations 4", "a faster c2c would lower that"),
        ("subbatch --model gpt-175b --requests 2k,3k", "would make two pay"),
        ("placement --model opt-30b --gpu-batch 8 --num-batches 2", "bound by"),
        ("batch --system flexgen-ssd --model opt-66b --knob weights=paper", "bound by host; more"),
        (
            "hardware --model opt-66b --vary csd.count=1:16 --slo throughput_tok_s=0.1",
            "csd.flash binds there: were it faster, less would do",
        ),
        ("crossover --model opt-66b --along context=1k:64k", "hilos leads from"),
    ],
    ids=lambda words: words.split()[0],
)
@pytest.mark.slow
def test_every_solve_says_what_binds(words: str, sentence: str) -> None:
    text = " ".join(printed("solve", *words.split()).split())
    assert sentence in text
    assert text.endswith(".")
