"""Families of models by `model_type`: how their layers attend and what their MLPs hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nearkv.hardware import attention as attend
from nearkv.hardware import hybrids as hybrid
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
_BLOOM = Family(attend.plain, mlp.ungated("n_inner"), tied=True)
_FALCON = Family(attend.falcon, mlp.ungated("ffn_hidden_size"), tied=True)
_MPT = Family(attend.mpt, mlp.ungated("ffn_hidden_size"), tied=True)
_MIXTRAL = Family(attend.plain, mlp.experts_everywhere)
_TIED = Family(attend.plain, mlp.gated, tied=True)
_PLAIN_UNGATED = Family(attend.plain, mlp.ungated("intermediate_size"))
_OLMO_3 = Family(attend.every(4), mlp.gated)
_EXAONE_4 = Family(attend.exaone, mlp.gated)
_SMOLLM_3 = Family(attend.smollm, mlp.gated, tied=True)
_HUNYUAN = Family(attend.hunyuan, mlp.gated)
_ERNIE_MOE = Family(attend.plain, mlp.ernie_experts, tied=True)
_LING = Family(attend.plain, mlp.ling_experts)
_GPT_OSS = Family(attend.every(2), mlp.experts_everywhere)
_QWEN = Family(attend.qwen, mlp.gated)
_QWEN_MOE = Family(attend.qwen, mlp.every_nth_sparse)
_QWEN_NEXT = Family(hybrid.qwen3_next, mlp.every_nth_sparse)
_GEMMA_2 = Family(attend.every(2), mlp.gated, tied=True, vocab=256000)
_GEMMA_3 = Family(attend.every(6), mlp.gated, tied=True, vocab=262208)
_COHERE = Family(attend.every(4), mlp.gated, tied=True)
_GLM = Family(attend.plain, mlp.first_dense)
_DEEPSEEK = Family(attend.latent, mlp.first_dense)
_LLAMA_4 = Family(attend.llama4, mlp.llama4_experts)
_JAMBA = Family(hybrid.jamba, mlp.jamba_experts)
_GRANITE_4 = Family(hybrid.granite_hybrid, mlp.granite_experts)
_MAMBA = Family(hybrid.mamba2, mlp.none)

FAMILIES: dict[str, Family] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "ministral3": _LLAMA,
    "phi3": _LLAMA,
    "olmo2": _LLAMA,
    "granite": _LLAMA,
    "seed_oss": _LLAMA,
    "gemma": _TIED,
    "cohere": _TIED,
    "ernie4_5": _TIED,
    "apertus": _PLAIN_UNGATED,
    "nemotron": _PLAIN_UNGATED,
    "phi": _PLAIN_UNGATED,
    "olmo3": _OLMO_3,
    "exaone4": _EXAONE_4,
    "smollm3": _SMOLLM_3,
    "hunyuan_v1_dense": _HUNYUAN,
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
    "glm4_moe_lite": _DEEPSEEK,
    "bailing_moe": _LING,
    "ernie4_5_moe": _ERNIE_MOE,
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _DEEPSEEK,
    "glm_moe_dsa": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "llama4_text": _LLAMA_4,
    "falcon": _FALCON,
    "opt": _OPT,
    "gpt2": _OPT,
    "gpt_neox": _PLAIN_UNGATED,
    "bloom": _BLOOM,
    "mpt": _MPT,
    "jamba": _JAMBA,
    "granitemoehybrid": _GRANITE_4,
    "mamba2": _MAMBA,
}
"""Families by `model_type`."""
