"""Families of models by `model_type`: how their layers attend and what their MLPs hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nearkv.hardware import attention as attend
from nearkv.hardware import mlps as mlp
from nearkv.hardware.config import Config
from nearkv.hardware.layers import Attention, Mlp


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


_LLAMA = Family(attend.plain, mlp.gated)
_OPT = Family(attend.plain, mlp.ungated("ffn_dim", "n_inner"), tied=True, learned=True)
_NEOX = Family(attend.plain, mlp.ungated("intermediate_size"))
_BLOOM = Family(attend.plain, mlp.ungated("n_inner"), tied=True)
_FALCON = Family(attend.falcon, mlp.ungated("ffn_hidden_size"), tied=True)
_MPT = Family(attend.mpt, mlp.ungated("ffn_hidden_size"), tied=True)
_MIXTRAL = Family(attend.plain, mlp.experts_everywhere)
_GPT_OSS = Family(attend.every(2), mlp.experts_everywhere)
_QWEN = Family(attend.qwen, mlp.gated)
_QWEN_MOE = Family(attend.qwen, mlp.every_nth_sparse)
_QWEN_NEXT = Family(attend.qwen3_next, mlp.every_nth_sparse)
_GEMMA_2 = Family(attend.every(2), mlp.gated, tied=True, vocab=256000)
_GEMMA_3 = Family(attend.every(6), mlp.gated, tied=True, vocab=262208)
_COHERE = Family(attend.every(4), mlp.gated, tied=True)
_GLM = Family(attend.plain, mlp.first_dense)
_DEEPSEEK = Family(attend.latent, mlp.first_dense)
_LLAMA_4 = Family(attend.llama4, mlp.llama4_experts)
_JAMBA = Family(attend.jamba, mlp.jamba_experts)
_MAMBA = Family(attend.mamba2, mlp.none)

FAMILIES: dict[str, Family] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "ministral3": _LLAMA,
    "phi3": _LLAMA,
    "olmo2": _LLAMA,
    "granite": _LLAMA,
    "mixtral": _MIXTRAL,
    "minimax_m2": _MIXTRAL,
    "gpt_oss": _GPT_OSS,
    "qwen2": _QWEN,
    "qwen3": _QWEN,
    "qwen2_moe": _QWEN_MOE,
    "qwen3_moe": _QWEN_MOE,
    "qwen3_next": _QWEN_NEXT,
    "gemma2": _GEMMA_2,
    "gemma3_text": _GEMMA_3,
    "cohere2": _COHERE,
    "glm4_moe": _GLM,
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _DEEPSEEK,
    "glm_moe_dsa": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "llama4_text": _LLAMA_4,
    "falcon": _FALCON,
    "opt": _OPT,
    "gpt2": _OPT,
    "gpt_neox": _NEOX,
    "bloom": _BLOOM,
    "mpt": _MPT,
    "jamba": _JAMBA,
    "mamba2": _MAMBA,
}
"""Families by `model_type`."""
