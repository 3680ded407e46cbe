"""Widths of elements: rates of narrow products, unpacking, and whose widths count."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.systems import NATIVE, SYSTEMS, machine_of, middle, model

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.gpu_layer import dequantise_traffic
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.models import llm_from_part
from nearkv.costmodel.model.resources import Gpu, gpu
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_llm, load_platform
from nearkv.hardware.errors import NearkvWarning
from nearkv.sweeps.evaluate.evaluate import table
from nearkv.sweeps.study.study import Study

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 80,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}


def read(folder: Path, scheme: dict[str, Any] | None = None) -> LLM:
    config = LLAMA if scheme is None else {**LLAMA, "quantization_config": scheme}
    (folder / "config.json").write_text(json.dumps(config))
    return llm_from_part(load_llm(str(folder / "config.json")), NATIVE)


def gpu_of(platform: str) -> Gpu:
    return gpu(load_platform(platform).machine())


@pytest.mark.parametrize(
    ("scheme", "operand"),
    [
        (None, 2.0),  # nothing quantised
        (FP8, 1.0),  # activations are quantised with the weights
        (AWQ, 2.0),  # weights alone: products of 16 bits
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 1.0),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 2.0),
        ({"quant_method": "mxfp4"}, 2.0),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 0.5),
    ],
)
def test_operands_are_as_wide_as_the_scheme_leaves_them(
    tmp_path: Path, scheme: dict[str, Any] | None, operand: float
) -> None:
    assert read(tmp_path, scheme).operands == (operand, operand)


def test_attention_that_is_not_quantised_keeps_its_operands(tmp_path: Path) -> None:
    scheme = {**FP8, "modules_to_not_convert": ["model.layers.*.self_attn"]}
    assert read(tmp_path, scheme).operands == (2.0, 1.0)


def test_a_gpu_runs_narrow_products_at_the_rate_that_its_part_states() -> None:
    h200 = gpu_of("hgx-h200")
    # FP8 reaches half of its 1,979 TFLOP/s, 16 bits 0.77 of 989.5; there is no rate of 4 bits
    assert h200.products(1.0).rate == pytest.approx(8 * 0.5 * 1979e12)
    assert h200.run.rate == pytest.approx(8 * 0.77 * 989.5e12)
    assert h200.products(0.5).rate == h200.products(1.0).rate
    assert h200.products(2.0).rate == h200.run.rate
    rtx = gpu_of("aipc-5090")
    assert rtx.products(0.5).rate / rtx.products(1.0).rate == pytest.approx(1676 / 419)
    a100 = gpu_of("hilos-a100")
    assert a100.products(0.5).rate == a100.run.rate


def test_products_in_8_bits_shorten_the_compute_of_a_prompt_but_not_its_attention(
    tmp_path: Path,
) -> None:
    system, work = SYSTEMS["tensor-parallel"], Workload(8.0, 16384.0, 64.0)
    hw = machine_of(system)

    def compute(llm: LLM) -> tuple[Real, Real]:
        layers = system(hw, llm, work, {}).prefill.parts["layers"]
        return (
            layers.parts["products"].parts["shared"].parts["compute"].seconds,
            layers.parts["attention"].seconds,
        )

    wide, narrow = compute(read(tmp_path)), compute(read(tmp_path, FP8))
    assert narrow[0] == pytest.approx(wide[0] * 0.77 / (2 * 0.5))
    assert narrow[1] == wide[1]


def test_weights_narrower_than_a_product_takes_are_unpacked() -> None:
    a100, h200 = gpu_of("hilos-a100"), gpu_of("hgx-h200")
    # 4-bit weights for a product of 16 bits: four times their bytes, written and read
    assert dequantise_traffic(100.0, 0.5, 2.0, a100) == 2 * 400.0
    # FP8 weights and activations: an A100 multiplies in 16 bits, an H200 in 8
    assert dequantise_traffic(100.0, 1.0, 1.0, a100) == 2 * 200.0
    assert dequantise_traffic(100.0, 1.0, 1.0, h200) == 0.0
    assert dequantise_traffic(100.0, 2.0, 2.0, a100) == 0.0
    several = dequantise_traffic(100.0, np.array([0.5, 2.0]), np.array([2.0, 2.0]), a100)
    assert np.asarray(several).tolist() == [800.0, 0.0]


@pytest.mark.parametrize(("name", "pays"), [("hilos", True), ("tensor-parallel", False)])
def test_systems_on_pytorch_pay_for_unpacking_and_serving_engines_do_not(
    tmp_path: Path, name: str, pays: bool
) -> None:
    system, llm = SYSTEMS[name], read(tmp_path, AWQ)
    step = system(machine_of(system), llm, Workload(1.0, 1024.0, 64.0), middle(system)).step
    moved = step.traffic()["gpu.hbm", "read"]
    stored = llm.weight_bytes - llm.vocab * llm.hidden * 2
    assert (moved > 2 * stored) == pays


# --- whose widths count ---------------------------------------------------------------------------


def test_a_width_that_the_user_sets_is_noted_where_the_model_states_its_own() -> None:
    sets = {"precision.weight": "8bit"}
    rows = table(Study(("hilos",), ("gpt-oss-20b", "llama2-7b"), context="2k", sets=sets))
    assert rows["note"].tolist() == ["precision.weight as set, not the model's own", ""]


def test_the_scheme_that_modelopt_writes_beside_a_config_counts(tmp_path: Path) -> None:
    scheme = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": scheme}))
    llm = read(tmp_path)
    assert (llm.weight_width, llm.kv_width, llm.operands) == (1.0, 1.0, (1.0, 1.0))


def test_a_cache_scheme_may_be_named_by_its_format(tmp_path: Path) -> None:
    assert read(tmp_path, {"quant_algo": "FP8", "kv_cache_scheme": "FP8"}).kv_width == 1.0


@pytest.mark.parametrize(
    ("key", "stake"),
    [
        ("kv_shared_layers", "the KV cache, 163,840 elements of a token"),  # 80 x 2 x 8 x 128
        ("moe_group", r"the MLPs, 5.64e\+10 parameters"),  # 80 x 3 x 8192 x 28672
        ("vocab_extra", r"the embeddings, 2.1e\+09 parameters"),  # 2 x 128256 x 8192
        ("mystery", "any bytes or FLOPs"),
    ],
)
def test_an_unread_key_says_what_is_at_stake(tmp_path: Path, key: str, stake: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, key: 7}))
    with pytest.warns(NearkvWarning, match=f"{key} = 7 is unknown.*may change {stake}"):
        load_llm(str(tmp_path / "config.json"))


def test_a_catalogued_model_reads_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model("deepseek-v3.2").parameters > 671e9
