"""Bits of an element as a config's quantisation stores it, overhead included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from nearkv.hardware.config import Config

NATIVE_BITS = 16.0


@dataclass(frozen=True)
class Widths:
    """Bits of an element; None where the platform decides.

    Attributes:
        weight: of experts and MLPs.
        dense: of attention, and of what every token shares.
        head: of embeddings and output head.
        kv: of the KV cache.
        operand: of the wider operand of products with quantised weights.
    """

    weight: float | None = None
    dense: float | None = None
    head: float | None = None
    kv: float | None = None
    operand: float | None = None

    @property
    def stated(self) -> dict[str, float]:
        """Widths that the config states, by key of a model."""
        bits = asdict(self).items()
        return {f"{name}_width": width for name, width in bits if width is not None}


def grouped(bits: float, group: float, scale: float, zero: float = 0.0) -> float:
    """Bits of an element in groups that share a scale and a zero point.

    Args:
        bits: of one element.
        group: elements that share a scale; 0 where the scale belongs to a whole row or matrix.
        scale, zero: bits of both.
    """
    overhead = (scale + zero) / group if group else 0.0
    return bits + overhead


def widths_of(config: Config) -> Widths:
    """Bits of weights and KV, from `quantization_config` and `kv_cache_scheme`.

    Embeddings and output head stay in 16 bits, as all these schemes leave them by default;
    `modules_to_not_convert` and `ignore` may name attention beside them.

    Raises:
        InputError: a scheme that is not modelled.
    """
    scheme = config.table_of("quantization_config")
    kv = _kv_bits(config, scheme)
    if not scheme:
        return Widths(kv=kv)
    if scheme.get("quant_method") == "gguf":
        others = _gguf_bits(config, scheme, "others")
        return Widths(_gguf_bits(config, scheme, "experts"), others, others, kv)
    weight = _weight_bits(config, scheme)
    kept = _unquantised(scheme)
    attention_kept = any("attn" in name or "attention" in name for name in kept)
    dense = NATIVE_BITS if attention_kept else weight
    return Widths(weight, dense, NATIVE_BITS, kv, _operand_bits(scheme))


def _unquantised(scheme: Mapping[str, Any]) -> list[str]:
    listed = [name for key in _KEPT_UNDER for name in scheme.get(key) or []]
    return [str(name) for name in listed]


_KEPT_UNDER = (
    "modules_to_not_convert",
    "ignore",
    "llm_int8_skip_modules",
    "ignored_layers",
    "exclude_modules",
)
"""Keys of a scheme that list matrices it leaves as they are."""


def _operand_bits(scheme: Mapping[str, Any]) -> float:
    """Bits of activations where they are quantised with the weights; 16 where they are not."""
    method = _method(scheme)
    if method in ("fp8", "fbgemm_fp8"):
        return 8.0
    if method == "bitsandbytes":
        return NATIVE_BITS if scheme.get("load_in_4bit") else 8.0
    if method == "modelopt":
        return float(int(_MODELOPT.get(str(scheme.get("quant_algo")), NATIVE_BITS)))
    if method == "compressed-tensors":
        groups = (scheme.get("config_groups") or {}).values()
        inputs = [
            (group.get("input_activations") or {}).get("num_bits") for group in groups
        ]
        return float(inputs[0] or NATIVE_BITS) if inputs else NATIVE_BITS
    return NATIVE_BITS


def _method(scheme: Mapping[str, Any]) -> str:
    """The method by name; ModelOpt's own files name only its algorithm."""
    unnamed = "modelopt" if "quant_algo" in scheme else None
    return str(scheme.get("quant_method", unnamed))


def _weight_bits(config: Config, scheme: Mapping[str, Any]) -> float:
    method = _method(scheme)
    if method in ("awq", "gptq"):
        bits = float(scheme.get("bits") or scheme.get("w_bit") or 4)
        stated = scheme.get("group_size") or scheme.get("q_group_size")
        group = max(float(stated or 128), 0.0)
        return grouped(bits, group, scale=16, zero=bits)
    if method == "bitsandbytes":
        return _bitsandbytes(scheme)
    if method in ("fp8", "fbgemm_fp8"):
        block = scheme.get("weight_block_size") or [0, 0]
        return grouped(8, block[0] * block[1], scale=32)
    if method == "mxfp4":
        return grouped(4, 32, scale=8)
    if method == "modelopt":
        return _modelopt(config, scheme)
    if method == "compressed-tensors":
        return _compressed(config, scheme)
    problem = f"has quant_method {method!r}, which is not modelled"
    raise config.refuse("quantization_config", problem)


def _gguf_bits(config: Config, scheme: Mapping[str, Any], tensors: str) -> float:
    name = str(scheme.get(tensors))
    if name not in _GGUF:
        raise config.refuse("quantization_config", f"has {tensors} {name!r}, not modelled")
    return _GGUF[name]


_GGUF = {
    "F16": NATIVE_BITS,
    "Q8_0": grouped(8, 32, scale=16),
    "MXFP4": grouped(4, 32, scale=8),
}
"""Bits by the types of llama.cpp's files: blocks of 32 that share a scale."""
_MODELOPT = {"FP8": 8.0, "NVFP4": grouped(4, 16, scale=8)}
"""Bits by the algorithm that ModelOpt names."""


def _bitsandbytes(scheme: Mapping[str, Any]) -> float:
    """NF4 in blocks of 64 with FP32 scales, themselves in 8 bits if quantised twice (QLoRA)."""
    if not scheme.get("load_in_4bit"):
        return 8.0
    if scheme.get("bnb_4bit_use_double_quant"):
        return grouped(4, 64, scale=8 + 32 / 256)
    return grouped(4, 64, scale=32)


def _modelopt(config: Config, scheme: Mapping[str, Any]) -> float:
    algorithm = str(scheme.get("quant_algo"))
    if algorithm not in _MODELOPT:
        problem = f"has quant_algo {algorithm!r}, which is not modelled"
        raise config.refuse("quantization_config", problem)
    return _MODELOPT[algorithm]


def _compressed(config: Config, scheme: Mapping[str, Any]) -> float:
    """The weights of the only group: bits, and a scale for each group of elements."""
    groups = list((scheme.get("config_groups") or {}).values())
    if len(groups) != 1:
        raise config.refuse(
            "quantization_config", "has several groups, which is not modelled"
        )
    weights = groups[0].get("weights") or {}
    bits = float(weights.get("num_bits", 16))
    fine = str(scheme.get("format", "")).startswith("nvfp4")
    zero = 0.0 if weights.get("symmetric", True) else bits
    return grouped(bits, weights.get("group_size") or 0, scale=8 if fine else 16, zero=zero)


def _kv_bits(config: Config, scheme: Mapping[str, Any]) -> float | None:
    cache = config.value("kv_cache_scheme") or scheme.get("kv_cache_scheme")
    if isinstance(cache, Mapping):
        return float(cache.get("num_bits", 8))
    algorithm = cache or scheme.get("kv_cache_quant_algo")
    if algorithm is None:
        return None
    if algorithm not in _MODELOPT:
        problem = f"has a KV cache in {algorithm!r}, which is not modelled"
        raise config.refuse("quantization_config", problem)
    return _MODELOPT[algorithm]
