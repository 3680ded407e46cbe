"""Models of the catalogue as arrays over design points: layers, widths, refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.systems import NATIVE
from support.tiny import SHAPE

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.models import (
    _chosen,
    _unstated,
    llm_from_part,
    llms_from_parts,
    require_alike,
)
from nearkv.hardware.catalog import load_llm
from nearkv.hardware.errors import InputError
from nearkv.hardware.files import path_of
from nearkv.hardware.machine import Role
from nearkv.sweeps.study.study import Study, blocks


def test_models_of_different_kinds_share_one_grid() -> None:
    chosen = ["llama2-7b", "gemma3-27b", "deepseek-v3", "jamba-v0.1", "glm-4.5", "gpt-oss-20b"]
    parts = [load_llm(name) for name in chosen]
    together = llms_from_parts(parts, np.arange(len(parts)), NATIVE)
    methods: list[Callable[[LLM], Real]] = [
        lambda llm: llm.parameters,
        lambda llm: llm.weight_bytes,
        lambda llm: llm.kv_cache_bytes(3.0, 5000.0),
        lambda llm: llm.sum_over_layers(lambda kind: kind.linear_flops(7.0)),
        lambda llm: llm.sum_over_layers(lambda kind: kind.prefill_attention_flops(2.0, 3000.0)),
    ]
    for method in methods:
        each = [method(llm_from_part(part, NATIVE)) for part in parts]
        assert np.asarray(method(together)).tolist() == pytest.approx(each, rel=1e-14)


def test_widths_that_the_user_sets_override_those_of_a_model() -> None:
    part = load_llm("gpt-oss-20b")
    wide = Role("", "precision", {"weight": 4.0, "kv": 2.0, "activation": 2.0})
    own = llms_from_parts([part], np.array([0]), wide)
    assert own.weight_width == pytest.approx(4.25 / 8)
    overridden = llms_from_parts([part], np.array([0]), wide, ["weight"])
    assert overridden.weight_bytes == pytest.approx(4 * overridden.parameters)


def test_a_shape_far_from_its_published_count_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "odd.toml"
    text = path_of("model", "opt-66b").read_text()
    assert "66e9" in text
    file.write_text(text.replace("66e9", "88e9"))
    with pytest.raises(InputError, match=r"its shape has 6\.571e\+10 parameters, published are 8"):
        blocks(Study(("hilos",), (str(file),)))


def test_solvers_refuse_layers_that_they_do_not_model() -> None:
    with pytest.raises(InputError, match="multi-head latent attention is not modelled by placem"):
        require_alike(llm_from_part(load_llm("deepseek-v3"), NATIVE), "deepseek-v3", "placement")


def test_a_model_that_states_nothing_has_the_widths_of_the_platform() -> None:
    own = _unstated(LLM(**SHAPE, weight_width=0.5, kv_width=1.0, activation_width=4.0))
    widths = {name: width for name, width in own.items() if name.endswith("width")}
    of_weights = dict.fromkeys(("weight_width", "dense_width", "head_width"), 0.5)
    of_activations = dict.fromkeys(("activation_width", "operand_width", "native_width"), 4.0)
    assert widths == {**of_weights, **of_activations, "kv_width": 1.0}
    assert (own["shared_parameters"], own["longest"]) == (0, np.inf)


def test_a_width_that_varies_over_points_is_that_of_the_model_of_each() -> None:
    varied = np.array([1.0, 2.0, 3.0])
    assert np.ravel(_chosen([varied], np.zeros(3, int))).tolist() == [1, 2, 3]
    assert np.ravel(_chosen([varied, 5.0], np.array([0, 1, 0]))).tolist() == [1, 5, 3]
