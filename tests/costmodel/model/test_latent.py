"""Bytes and FLOPs of layers that cache latents, by hand."""

from __future__ import annotations

from support.systems import model

from nearkv.costmodel.model.chosen import Sparse
from nearkv.costmodel.model.latent import Latent
from nearkv.costmodel.model.llm import LLM

K = 1024.0


def kind(name: str, label: str) -> LLM:
    return model(name).layer_types[label]


def test_a_latent_layer_absorbs_its_projections() -> None:
    latent = kind("deepseek-v3", "latent_moe")
    assert isinstance(latent, Latent)
    # DeepSeek-V3: q 7168 x 1536 and 1536 x 128 x 192; kv 7168 x 576 and 512 x 128 x 256; out
    matrices = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    assert latent.attention_parameters == matrices
    assert latent.qkv_flops(1) + latent.output_flops(1) == 2 * matrices
    # each head: 576 multiply-adds of the query, 512 of the output, a token
    assert latent.attention_flops(1, 1) == 2 * 128 * (576 + 512)
    assert latent.kv_bytes(1, 1) == 576 * 2
    # FLOPs per byte of 16-bit cache: what a kernel built for `group` queries sees
    assert latent.group == latent.attention_flops(1, 1) / latent.kv_bytes(1, 1)


def test_an_indexer_reads_every_key_and_few_latents() -> None:
    sparse = kind("deepseek-v3.2", "sparse_moe")
    assert isinstance(sparse, Sparse)
    # a token caches 512 + 64 latent elements and an indexer's key of 128, in 2 B
    assert sparse.kv_bytes(1, 1) == (576 + 128) * 2
    # a step at 64k reads all keys, 2,048 latents
    assert sparse.cache_traffic(1, 64 * K) == (64 * K * 128 + 2048 * 576) * 2
    assert sparse.cache_traffic(1, 1000) == sparse.kv_bytes(1, 1000)
    scores = 2 * 64 * K * 64 * 128
    attended = 2 * 2048 * 128 * (576 + 512)
    assert sparse.attention_flops(1, 64 * K) == scores + attended
    # queries 1536 x 64 x 128, key 7168 x 128, weights 7168 x 64
    indexer = 1536 * 64 * 128 + 7168 * 128 + 7168 * 64
    latent = kind("deepseek-v3", "latent_moe")
    assert sparse.attention_parameters - latent.attention_parameters == indexer


def test_a_long_prompt_attends_to_chosen_latents_and_a_short_one_to_heads() -> None:
    sparse = kind("deepseek-v3.2", "sparse_moe")
    dense = kind("deepseek-v3", "latent_moe")
    scores = 64 * 128
    short, long = 1024.0, 64 * K
    assert sparse.prefill_attention_flops(1, short) == (
        scores * short**2 + dense.prefill_attention_flops(1, short)
    )
    band = 2048 * long - 2048**2 / 2
    assert sparse.prefill_attention_flops(1, long) == (
        scores * long**2 + 2 * band * 128 * (576 + 512)
    )
