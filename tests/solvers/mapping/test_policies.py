"""Mappings of whole requests: the system itself at every mapping of a small model."""

from dataclasses import replace

import numpy as np
import pytest
from support.systems import SYSTEMS, model

from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.solvers.knobs import resolve_knobs

HEADS = np.arange(9.0)


@pytest.mark.parametrize("chunk", [0.0, 700.0])
@pytest.mark.parametrize("seed", range(6))
def test_no_mapping_answers_a_request_sooner(seed: int, chunk: float) -> None:
    """Eight heads in four groups: all 729 mappings, prompts and the move to decode included."""
    random = np.random.default_rng(seed)
    llm = replace(model("llama2-7b"), heads=8.0, kv_heads=4.0, head_size=512.0)
    prompt, output = random.uniform(1000, 20000), random.uniform(2, 60)
    work = Workload(batch=4.0, prompt=prompt, output=output, chunk=chunk)
    hw = (
        load_platform("gh-asymmetric")
        .machine()
        .with_values(
            {
                "hbm.memory": random.uniform(4e9, 30e9),
                "lpddr.bandwidth": random.uniform(1e11, 1e12),
                "c2c.bandwidth": 10 ** random.uniform(9, 12),
            }
        )
    )
    attention, qkv, fc = np.meshgrid(HEADS, HEADS, HEADS, indexing="ij")
    every = {"chunk": chunk, "n_attention": attention, "n_qkv": qkv, "n_fc": fc}
    tried = SYSTEMS["asymmetric"](hw, llm, work, every)
    seconds = np.where(tried.fits.ok, tried.total.seconds, np.inf)
    auto = {"chunk": chunk} | dict.fromkeys(("n_attention", "n_qkv", "n_fc"), "auto")
    best = resolve_knobs(SYSTEMS["asymmetric"], hw, llm, work, auto).estimate
    assert best.total.seconds == pytest.approx(seconds.min(), rel=1e-12)
