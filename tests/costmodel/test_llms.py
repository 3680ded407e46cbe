"""Parameters of the catalogue's models against sums of their published tensor shapes, exactly.

A sum has matrices, which a model's parameters are, and norms and biases, which they leave out. Both
are formulas of shapes as the checkpoints list them, written here without the code under test, and
together they are the literal that the files of a checkpoint add up to, unpacked, without scales of
quantisation, multi-token prediction and vision.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from support.systems import model

from nearkv.hardware.catalog import load_llm, names


class Shapes(NamedTuple):
    """Elements of all matrices, and of all norms and biases."""

    matrices: int
    norms_and_biases: int


def dense(
    layers: int,
    hidden: int,
    ffn: int,
    query: int,
    kv: int,
    vocab: int,
    *,
    beside: int = 0,
    tied: bool = False,
) -> Shapes:
    """Q, K, V, output; gate, up, down; two norms a layer and `beside`; embeddings and last norm."""
    layer = 2 * hidden * query + 2 * hidden * kv + 3 * hidden * ffn
    embeddings = (1 if tied else 2) * vocab * hidden
    norms = layers * (2 * hidden + beside) + hidden
    return Shapes(layers * layer + embeddings, norms)


def experts(
    layers: int,
    hidden: int,
    ffn: int,
    query: int,
    kv: int,
    vocab: int,
    *,
    number: int,
    beside: int = 0,
) -> Shapes:
    """The same with `number` gated experts in every layer, and a router of a row for each."""
    layer = 2 * hidden * query + 2 * hidden * kv + number * (3 * hidden * ffn + hidden)
    norms = layers * (2 * hidden + beside) + hidden
    return Shapes(layers * layer + 2 * vocab * hidden, norms)


def gpt_oss(layers: int, number: int) -> Shapes:
    """Biases of Q (4,096), K and V (512 each), output, router and experts; a sink for each head."""
    attention = 4096 + 2 * 512 + 2880 + 64
    beside = attention + number + number * 3 * 2880
    return experts(layers, 2880, 2880, 4096, 512, 201_088, number=number, beside=beside)


def opt(layers: int, hidden: int) -> Shapes:
    """12 h^2 a layer, each of six matrices with a bias, two norms with biases; 2,050 positions."""
    matrices = layers * 12 * hidden**2 + (50_272 + 2050) * hidden
    biases = layers * (4 + 4 + 1) * hidden
    norms = layers * 4 * hidden + 2 * hidden
    return Shapes(matrices, biases + norms)


def bloom() -> Shapes:
    """Q, K and V in one matrix, ALiBi, tied embeddings with a norm of their own."""
    layers, hidden, vocab = 70, 14_336, 250_880
    biases = layers * (3 + 1 + 4 + 1) * hidden
    norms = layers * 4 * hidden + 2 * hidden + 2 * hidden
    return Shapes(layers * 12 * hidden**2 + vocab * hidden, biases + norms)


def falcon_40b() -> Shapes:
    """128 query heads and 8 KV heads of 64, no biases but those of two norms a layer."""
    layers, hidden, kv = 60, 8192, 8 * 64
    layer = 2 * hidden**2 + 2 * hidden * kv + 8 * hidden**2
    return Shapes(layers * layer + 65_024 * hidden, layers * 4 * hidden + 2 * hidden)


def latent(hidden: int, heads: int) -> int:
    """Matrices of multi-head latent attention: ranks 1,536 and 512, 64 rotary, heads of 128."""
    queries = hidden * 1536 + 1536 * heads * (128 + 64)
    keys_and_values = hidden * (512 + 64) + 512 * heads * (128 + 128)
    return queries + keys_and_values + heads * 128 * hidden


def deepseek(heads: int, first: int, number: int, vocab: int, indexer: int = 0) -> Shapes:
    """61 layers, the first ones dense, the others with a shared expert and a bias of the router."""
    hidden, moe_layers = 7168, 61 - first
    moe = (number + 1) * 3 * hidden * 2048 + number * hidden
    mlps = first * 3 * hidden * 18_432 + moe_layers * moe
    matrices = 61 * (latent(hidden, heads) + indexer) + mlps + 2 * vocab * hidden
    norms = 61 * (2 * hidden + 1536 + 512) + hidden
    of_indexers = 61 * 2 * 128 if indexer else 0
    return Shapes(matrices, norms + moe_layers * number + of_indexers)


def glm_4_5() -> Shapes:
    """92 layers, three dense; 96 query heads of 128 with biases, norms of queries and keys."""
    hidden, query, kv = 5120, 96 * 128, 8 * 128
    attention = 2 * hidden * query + 2 * hidden * kv
    moe = 161 * 3 * hidden * 1536 + 160 * hidden
    matrices = 92 * attention + 3 * 3 * hidden * 12_288 + 89 * moe + 2 * 151_552 * hidden
    small = 92 * (2 * hidden + 2 * 128 + query + 2 * kv) + hidden + 89 * 160
    return Shapes(matrices, small)


def jamba() -> Shapes:
    """28 Mamba layers of 8,192 channels and 4 of attention; experts in every other layer.

    Mamba: in, convolution of 4, x to dt (256), B and C (16 each), dt, A, D, out; biases of the
    convolution and of dt, norms of dt, B and C. The count of matrices has D, a vector, too.
    """
    hidden, inner = 4096, 8192
    projections = 2 * hidden * inner + inner * (256 + 2 * 16) + 256 * inner + inner * hidden
    mamba = projections + 4 * inner + 16 * inner + inner
    attention = 2 * hidden**2 + 2 * hidden * 1024
    mlp = 3 * hidden * 14_336
    mlps = 16 * (16 * mlp + 16 * hidden) + 16 * mlp
    matrices = 28 * mamba + 4 * attention + mlps + 2 * 65_536 * hidden
    norms = 28 * (2 * inner + 256 + 16 + 16) + 32 * 2 * hidden + hidden
    return Shapes(matrices, norms)


# of the indexer: queries of 64 heads of 128 from rank 1,536, one key, a weight for each head
INDEXER = 1536 * 64 * 128 + 7168 * 128 + 7168 * 64
TWO_NORMS = 2 * 128  # of queries and keys, for heads of 128

PUBLISHED = {
    "llama2-7b": (dense(32, 4096, 11_008, 4096, 4096, 32_000), 6_738_415_616),
    "llama2-13b": (dense(40, 5120, 13_824, 5120, 5120, 32_000), 13_015_864_320),
    "llama2-70b": (dense(80, 8192, 28_672, 8192, 1024, 32_000), 68_976_648_192),
    "llama3.1-8b": (dense(32, 4096, 14_336, 4096, 1024, 128_256), 8_030_261_248),
    "llama3.1-70b": (dense(80, 8192, 28_672, 8192, 1024, 128_256), 70_553_706_496),
    "llama3.3-70b": (dense(80, 8192, 28_672, 8192, 1024, 128_256), 70_553_706_496),
    "llama3.1-405b": (dense(126, 16_384, 53_248, 16_384, 1024, 128_256), 405_853_388_800),
    "mistral-7b": (dense(32, 4096, 14_336, 4096, 1024, 32_000), 7_241_732_096),
    "phi3-mini": (dense(32, 3072, 8192, 3072, 3072, 32_064), 3_821_079_552),
    "qwen2.5-7b": (dense(28, 3584, 18_944, 3584, 512, 152_064, beside=4608), 7_615_616_512),
    "qwen2.5-32b": (dense(64, 5120, 27_648, 5120, 1024, 152_064, beside=7168), 32_763_876_352),
    "qwen2.5-72b": (dense(80, 8192, 29_568, 8192, 1024, 152_064, beside=10_240), 72_706_203_648),
    "qwen3-8b": (
        dense(36, 4096, 12_288, 4096, 1024, 151_936, beside=TWO_NORMS),
        8_190_735_360,
    ),
    "qwen3-32b": (
        dense(64, 5120, 25_600, 8192, 1024, 151_936, beside=TWO_NORMS),
        32_762_123_264,
    ),
    # four norms a layer, those of queries and keys; 262,208 embeddings
    "gemma3-27b": (
        dense(62, 5376, 21_504, 4096, 2048, 262_208, beside=2 * 5376 + TWO_NORMS, tied=True),
        27_009_346_304,
    ),
    "mixtral-8x22b": (experts(56, 6144, 16_384, 6144, 1024, 32_000, number=8), 140_620_634_112),
    "qwen3-30b-a3b": (
        experts(48, 2048, 768, 4096, 512, 151_936, number=128, beside=TWO_NORMS),
        30_532_122_624,
    ),
    "qwen3-235b-a22b": (
        experts(94, 4096, 1536, 8192, 512, 151_936, number=128, beside=TWO_NORMS),
        235_093_634_560,
    ),
    "gpt-oss-20b": (gpt_oss(24, 32), 20_914_757_184),
    "gpt-oss-120b": (gpt_oss(36, 128), 116_829_156_672),
    "gpt-oss-120b-gguf": (gpt_oss(36, 128), 116_829_156_672),
    "opt-6.7b": (opt(32, 4096), 6_658_473_984),
    "opt-13b": (opt(40, 5120), 12_853_473_280),
    "opt-30b": (opt(48, 7168), 29_974_540_288),
    "bloom-176b": (bloom(), 176_247_271_424),
    "falcon-40b": (falcon_40b(), 41_303_293_952),
    "jamba-v0.1": (jamba(), 51_570_323_328),
    "glm-4.5": (glm_4_5(), 352_797_829_024),
    "deepseek-v3": (deepseek(128, 3, 256, 129_280), 671_026_419_200),
    "deepseek-r1": (deepseek(128, 3, 256, 129_280), 671_026_419_200),
    "deepseek-v3.2": (deepseek(128, 3, 256, 129_280, INDEXER), 671_877_944_064),
    "kimi-k2": (deepseek(64, 1, 384, 163_840), 1_026_408_232_448),
}
"""Shapes of a model, and what all of its tensors add up to."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_all_matrices_of_the_published_tensors(name: str) -> None:
    shapes, total = PUBLISHED[name]
    assert shapes.matrices + shapes.norms_and_biases == total
    assert model(name).parameters == shapes.matrices
    # what every count here leaves out
    assert shapes.norms_and_biases <= 1e-3 * total


def test_the_shape_of_mixtral_8x7b_is_that_of_its_paper_which_has_no_routers() -> None:
    shapes = experts(32, 4096, 14_336, 4096, 1024, 32_000, number=8)
    assert sum(shapes) == 46_702_792_704
    assert shapes.matrices - model("mixtral-8x7b").parameters == 32 * 8 * 4096


def test_glam_is_sixteen_dense_layers_and_sixteen_of_64_experts() -> None:
    """HILOS Table 2 in matrices of two per MLP, one embedding of 256,000 tokens."""
    attention, mlp, embeddings = 4 * 4096**2, 2 * 4096 * 16_384, 256_000 * 4096
    kinds = model("glam-143b").layer_types
    assert {name: kind.layers for name, kind in kinds.items()} == {"full_dense": 16, "full_moe": 16}
    assert kinds["full_dense"].layer_parameters(1) == attention + mlp
    assert kinds["full_moe"].layer_parameters(64) == attention + 64 * mlp
    assert model("glam-143b").parameters == 32 * attention + 16 * 65 * mlp + embeddings
    # a token uses two experts in every other layer
    assert model("glam-143b").active_parameters == 32 * attention + 16 * 3 * mlp + embeddings


NONE, TOKEN, BOTH = 0, 1, 2
"""Embeddings that a card leaves out: none, that of tokens, the output head too."""


ACTIVE = {
    "deepseek-v3": (TOKEN, 37),
    "deepseek-r1": (TOKEN, 37),
    "deepseek-v3.2": (TOKEN, 37),
    "kimi-k2": (TOKEN, 32),
    "glm-4.5": (BOTH, 32),
    "glm-5.2": (TOKEN, 40),
    "glm-5.3": (TOKEN, 40),
    "deepseek-v4-flash": (TOKEN, 13),
    "deepseek-v4-pro": (TOKEN, 49),
    "kimi-k3": (TOKEN, 104),
    "minimax-m2.5": (TOKEN, 10),
    "gemma-4-26b-a4b": (NONE, 3.8),
    "qwen3.6-35b-a3b": (TOKEN, 3),
    "gpt-oss-20b": (TOKEN, 3.6),
    "gpt-oss-120b": (TOKEN, 5.1),
    "gpt-oss-120b-gguf": (TOKEN, 5.1),
    "jamba-v0.1": (NONE, 12),
    "mixtral-8x22b": (NONE, 39),
    "qwen3-235b-a22b": (NONE, 22),
    "qwen3-30b-a3b": (NONE, 3.3),
}
"""What cards print, in 1e9."""


def test_every_published_active_count_is_checked() -> None:
    stated = {n for n in names("model") if "published_active" in load_llm(n).si}
    assert stated == set(ACTIVE)


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters_have_the_digits_of_the_card(name: str) -> None:
    left_out, printed = ACTIVE[name]
    llm = model(name)
    counted = float(llm.active_parameters - left_out * llm.vocab * llm.hidden) / 1e9
    digits = 1 if isinstance(printed, float) else 0
    # Qwen cuts 3.35 where others round
    rounded = np.floor(10 * counted) / 10 if name == "qwen3-30b-a3b" else round(counted, digits)
    assert rounded == printed
    assert load_llm(name).si["published_active"] == printed * 1e9


# Relative positions add one hidden x hidden matrix per layer (5.37e9), which no key describes.
# Cards print 40B of 41.3e9 and 1T of 1.026e12.
EXCEPTIONS = {"chinchilla-70b": 0.08, "falcon-40b": 0.035, "kimi-k2": 0.03}


@pytest.mark.parametrize("name", names("model"))
def test_parameters_agree_with_the_published_count(name: str) -> None:
    published = load_llm(name).numbers["published"].si
    assert model(name).parameters == pytest.approx(published, rel=EXCEPTIONS.get(name, 0.02))


def test_every_exception_is_needed() -> None:
    for name in EXCEPTIONS:
        assert model(name).parameters != pytest.approx(
            load_llm(name).numbers["published"].si, rel=0.02
        )
