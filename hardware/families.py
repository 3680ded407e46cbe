"""Families of models by `model_type`: how their layers attend and what their MLPs hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nearkv.hardware import attention as attend
from nearkv.hardware import mlps as mlp
from nearkv.hardware.attention import Attention
from nearkv.hardware.config import Config
from nearkv.hardware.mlps import Mlp


@dataclass(frozen=True)
class Family:
    """How a family of models is read.

    Attributes:
        attention: of every layer: (config, layers).
        mlp: of every layer: (config, layers).
        tied: whether embeddings are shared where the config does not say.
        learned: whether positions are learned embeddings.
        vocab: vocabulary where the config leaves it out; 0 where none does.
    """

    attention: Callable[[Config, int], list[Attention]]
    mlp: Callable[[Config, int], list[Mlp]]
    tied: bool = False
    learned: bool = False
    vocab: int = 0


_FAMILIES: dict[str, Family] = {
    "llama mistral ministral3 phi3 olmo2 granite seed_oss": Family(attend.plain, mlp.gated),
    "gemma cohere ernie4_5": Family(attend.plain, mlp.gated, tied=True),
    "opt gpt2": Family(
        attend.plain, mlp.ungated("ffn_dim", "n_inner"), tied=True, learned=True
    ),
    "apertus nemotron phi gpt_neox": Family(attend.plain, mlp.ungated("intermediate_size")),
    "bloom": Family(attend.plain, mlp.ungated("n_inner"), tied=True),
    "falcon": Family(attend.falcon, mlp.ungated("ffn_hidden_size"), tied=True),
    "mpt": Family(attend.mpt, mlp.ungated("ffn_hidden_size"), tied=True),
    "hunyuan_v1_dense": Family(attend.hunyuan, mlp.gated),
    # windows in some layers
    "qwen2 qwen3": Family(attend.qwen, mlp.gated),
    "smollm3": Family(attend.smollm, mlp.gated, tied=True),
    "olmo3": Family(attend.every(4), mlp.gated),
    "exaone4": Family(attend.exaone, mlp.gated),
    "gemma2": Family(attend.every(2), mlp.gated, tied=True, vocab=256000),
    "gemma3_text": Family(attend.every(6), mlp.gated, tied=True, vocab=262208),
    "cohere2": Family(attend.every(4), mlp.gated, tied=True),
    # experts
    "mixtral minimax_m2": Family(attend.plain, mlp.experts_everywhere),
    "gpt_oss": Family(attend.every(2), mlp.experts_everywhere),
    "qwen2_moe qwen3_moe": Family(attend.qwen, mlp.every_nth_sparse),
    "ernie4_5_moe": Family(attend.plain, mlp.ernie_experts, tied=True),
    "bailing_moe": Family(attend.plain, mlp.ling_experts),
    "glm4_moe": Family(attend.plain, mlp.first_dense),
    "llama4_text": Family(attend.llama4, mlp.llama4_experts),
    # latents
    "deepseek_v2 deepseek_v3 deepseek_v32": Family(attend.latent, mlp.first_dense),
    "glm4_moe_lite glm_moe_dsa kimi_k2": Family(attend.latent, mlp.first_dense),
    # recurrent states
    "qwen3_next": Family(attend.qwen3_next, mlp.every_nth_sparse),
    "jamba": Family(attend.jamba, mlp.jamba_experts),
    "granitemoehybrid": Family(attend.granite_hybrid, mlp.granite_experts),
    "mamba2": Family(attend.mamba2, mlp.none),
}

FAMILIES = {
    model_type: family
    for model_types, family in _FAMILIES.items()
    for model_type in model_types.split()
}
"""Families by `model_type`."""
