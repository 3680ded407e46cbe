"""Bits of an element as a config's quantisation stores it, overhead included."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import asdict, dataclass

from nearkv.hardware.config import Config
from nearkv.hardware.errors import InputError
from nearkv.hardware.formats import NATIVE_BITS, formats
from nearkv.hardware.units import LARGEST

_WIDEST = 32.0
"""Bits of the widest element that a scheme may state."""
_KEPT_UNDER = (
    "modules_to_not_convert",
    "ignore",
    "llm_int8_skip_modules",
    "ignored_layers",
    "exclude_modules",
)
"""Keys of a scheme that list matrices it leaves as they are."""


@dataclass(frozen=True)
class Widths:
    """Bits of an element; None where the platform decides.

    Attributes:
        weight: of experts and MLPs.
        dense: of attention, and of what every token shares.
        head: of embeddings and output head.
        kv: of the KV cache.
        operand: of the wider operand of products with quantised weights.
        native: of that operand on GPUs that multiply the weights as they are stored.
    """

    weight: float | None = None
    dense: float | None = None
    head: float | None = None
    kv: float | None = None
    operand: float | None = None
    native: float | None = None

    @property
    def stated(self) -> dict[str, float]:
        """Widths that the config states, by key of a model."""
        bits = asdict(self).items()
        return {f"{name}_width": width for name, width in bits if width is not None}


def grouped(bits: float, group: float, scale: float, zero: float = 0.0) -> float:
    """Bits of an element in groups that share a scale and a zero point.

    Args:
        bits: of one element.
        group: elements that share a scale; 0 where the scale belongs to a row or a matrix.
        scale, zero: bits of both.
    """
    overhead = (scale + zero) / group if group else 0.0
    return bits + overhead


_ALGORITHM = re.compile(r"(?:W\d+A(\d+)_)?((?:NV|MX)?FP[48])(?:_FP8)?")
"""An algorithm of ModelOpt: bits of activations where they are not those of weights, and format."""
_NVFP4_GROUP = 16
"""Elements of NVFP4 that share a scale, where a scheme does not say."""


def algorithm_bits(name: object) -> tuple[float, float] | None:
    """Bits of a weight, its scale included, and of the operand of its products; None if unknown.

    >>> algorithm_bits("W4A8_MXFP4_FP8")
    (4.25, 8.0)
    """
    match = _ALGORITHM.fullmatch(str(name))
    if match is None or match[2].lower() not in formats():
        return None
    bits = formats()[match[2].lower()]["bits"].value
    return bits, float(match[1] or bits // 1)


def widths_of(config: Config) -> Widths:
    """Bits of weights and KV, from `quantization_config` and `kv_cache_scheme`.

    Embeddings and output head stay in 16 bits, as all these schemes leave them by default;
    `modules_to_not_convert` and `ignore` may name attention beside them.

    Raises:
        InputError: a scheme that is not modelled.
    """
    scheme = config.table_of("quantization_config")
    kv = _kv_bits(config, scheme)
    if not scheme.table:
        return Widths(kv=kv)
    if _method(scheme) == "gguf":
        experts, others = (_gguf_bits(config, scheme, key) for key in ("experts", "others"))
        return Widths(experts, others, others, kv)
    fp4_experts = config.value("expert_dtype") == "fp4"
    if scheme.value("quant_algo") == "MIXED_PRECISION":
        return _mixed(config, scheme, kv)
    weight, operand = _weight_and_operand(config, scheme)
    kept = [name for key in _KEPT_UNDER for name in scheme.listed(key, str, "names")]
    attention_kept = any("attn" in name or "attention" in name for name in kept)
    dense = NATIVE_BITS if attention_kept else weight
    mxfp4 = formats()["mxfp4"]
    if fp4_experts:  # experts alone (DeepSeek-V4)
        weight = mxfp4["bits"].value
    native = mxfp4["native"].value if _method(scheme) == "mxfp4" else None
    return Widths(weight, dense, NATIVE_BITS, kv, operand, native)


def _method(scheme: Config) -> str:
    """The method by name; ModelOpt's own files name only its algorithm."""
    unnamed = "modelopt" if scheme.value("quant_algo") else None
    return str(scheme.value("quant_method") or unnamed)


def _gguf_bits(config: Config, scheme: Config, tensors: str) -> float:
    name = str(scheme.value(tensors))
    if name.lower() not in formats():
        raise config.refuse("quantization_config", f"has {tensors} {name!r}, not modelled")
    return formats()[name.lower()]["bits"].value


def _weight_and_operand(config: Config, scheme: Config) -> tuple[float, float]:
    """Bits of weights, and of activations: 16 where only the weights are quantised."""
    method = _method(scheme)
    if method in ("awq", "gptq"):
        bits = scheme.number("bits", "w_bit", low=1, high=_WIDEST, default=4)
        group = _group_size(scheme, "group_size", "q_group_size", default=128)
        zero = bits if scheme.flag("zero_point", default=True) else 0.0
        return grouped(bits, group, scale=16, zero=zero), NATIVE_BITS
    if method == "bitsandbytes":
        return _bitsandbytes(scheme)
    if method in ("fp8", "fbgemm_fp8"):
        scheme.number("bits", low=8, high=8, default=8)
        return grouped(8, _block(scheme), scale=32), 8.0
    if method == "mxfp4":
        scheme.number("bits", low=4, high=4, default=4)
        return formats()["mxfp4"]["bits"].value, NATIVE_BITS
    if method == "modelopt":
        return _modelopt(config, scheme)
    if method == "compressed-tensors":
        return _compressed(scheme)
    problem = f"has quant_method {method!r}, which is not modelled"
    raise config.refuse("quantization_config", problem)


def _bitsandbytes(scheme: Config) -> tuple[float, float]:
    """NF4 in blocks of 64 with FP32 scales, themselves in 8 bits if quantised twice (QLoRA)."""
    if not scheme.flag("load_in_4bit", default=False):
        return 8.0, 8.0
    twice = scheme.flag("bnb_4bit_use_double_quant", default=False)
    scale = 8 + 32 / 256 if twice else 32.0
    return grouped(4, 64, scale), NATIVE_BITS


def _modelopt(config: Config, scheme: Config) -> tuple[float, float]:
    algorithm = scheme.value("quant_algo")
    known = algorithm_bits(algorithm)
    if known is None:
        problem = f"has quant_algo {algorithm!r}, which is not modelled"
        raise config.refuse("quantization_config", problem)
    bits, operand = known
    groups = scheme.table_of("config_groups")
    for name in groups.table:  # they repeat what the algorithm says
        for part, width in (("weights", bits // 1), ("input_activations", operand)):
            of_group = groups.table_of(name).table_of(part)
            of_group.value("type", "dynamic", "symmetric", "group_size")
            of_group.number("num_bits", low=width, high=width, default=width)
    if algorithm == "NVFP4":
        group = _group_size(scheme, "group_size", default=_NVFP4_GROUP)
        bits = grouped(4, group, scale=8)
    return bits, operand


def _mixed(config: Config, scheme: Config, kv: float | None) -> Widths:
    """An algorithm for each module, in `quantized_layers`: the commonest of each of three roles.

    What is not listed stays as the method of the others leaves it: in 8 bits, or in 16. Where only
    the output head is quantised, embeddings and head have a mean width.

    Raises:
        InputError: no such list, or an algorithm that is not modelled.
    """
    modules = scheme.value("quantized_layers")
    if not isinstance(modules, dict) or not modules:
        raise scheme.refuse("quantized_layers", "must name the algorithm of each module")
    scheme.value("config_groups", "group_size", "moe_quant_algo", "weight_block_size")
    scheme.value(*_KEPT_UNDER)
    found: dict[str, Counter[str]] = {}
    for name, table in modules.items():
        algorithm = str(table.get("quant_algo")) if isinstance(table, dict) else str(table)
        found.setdefault(_role(name), Counter())[algorithm] += 1
    common = {role: of_role.most_common(1)[0][0] for role, of_role in found.items()}
    base = 8.0 if _method(scheme) == "fp8" else NATIVE_BITS
    bits: dict[str, tuple[float, float]] = {}
    for role, algorithm in common.items():
        known = algorithm_bits(algorithm)
        if known is None:
            problem = f"has quant_algo {algorithm!r} in quantized_layers, not modelled"
            raise config.refuse("quantization_config", problem)
        bits[role] = known
    mlp = bits.get("experts", bits.get("mlp", (base, base)))
    dense = bits.get("dense", bits.get("shared", (base, base)))[0]
    head = (NATIVE_BITS + bits["head"][0]) / 2 if "head" in bits else NATIVE_BITS
    return Widths(mlp[0], dense, head, kv, mlp[1])


def _role(module: str) -> str:
    """Which part of a model a module belongs to, by the words of its name."""
    roles = {"shared": "shared_expert", "experts": "expert", "head": "lm_head"}
    named = (role for role, word in roles.items() if word in module)
    return next(named, "mlp" if "mlp" in module or "ffn" in module else "dense")


def _compressed(scheme: Config) -> tuple[float, float]:
    """The only group of matrices: bits, and a scale for each group of elements.

    Raises:
        InputError: there are several groups of matrices, or none.
    """
    groups = scheme.table_of("config_groups")
    if len(groups.table) != 1:
        raise scheme.refuse("config_groups", "must be one group; others are not modelled")
    (name,) = groups.table
    weights = groups.table_of(name).table_of("weights")
    bits = _bits(weights, NATIVE_BITS)
    form = str(scheme.value("format") or groups.table_of(name).value("format"))
    groups.table_of(name).value("format")
    fine = form.startswith(("nvfp4", "mxfp4"))
    zero = 0.0 if weights.flag("symmetric", default=True) else bits
    group = _group_size(weights, "group_size", default=0)
    activations = groups.table_of(name).table_of("input_activations")
    width = grouped(bits, group, scale=8 if fine else 16, zero=zero)
    return width, _bits(activations, NATIVE_BITS)


def _bits(table: Config, default: float) -> float:
    table.value("type", "dynamic", "symmetric")  # how values are rounded, at the same width
    return table.number("num_bits", low=1, high=_WIDEST, default=default)


def _group_size(table: Config, *names: str, default: float) -> float:
    """Elements that share a scale; 0 where a row does, which some write as -1.

    Raises:
        InputError: a scale is said to belong to no element.
    """
    size = table.number(*names, low=-1, high=LARGEST, default=default)
    if table.value(*names) is not None and size != -1 and size < 1:
        raise InputError(f"{table.where}: {names[0]} must be 1 or more, or -1 for a row")
    return max(size, 0.0)


def _block(scheme: Config) -> float:
    """Elements of a block that shares a scale; 0 where a matrix does.

    Raises:
        InputError: its sizes are not two whole numbers.
    """
    sizes = scheme.value("weight_block_size") or [0, 0]
    problem = "must be two whole numbers, as in [128, 128]"
    if not isinstance(sizes, list) or len(sizes) != 2:
        raise scheme.refuse("weight_block_size", problem)
    rows, columns = sizes
    if not all(type(size) is int and 0 <= size <= LARGEST for size in sizes):
        raise scheme.refuse("weight_block_size", problem)
    return float(rows * columns)


def _kv_bits(config: Config, scheme: Config) -> float | None:
    """Bits of the KV cache: a table of the config or its scheme, or an algorithm by name."""
    key = "kv_cache_scheme"
    for place in (config, scheme):
        if isinstance(place.value(key), dict):
            return _bits(place.table_of(key), 8.0)
    algorithm = (
        config.value(key) or scheme.value(key) or scheme.value("kv_cache_quant_algo")
    )
    if algorithm is None:
        return None
    known = algorithm_bits(algorithm)
    if known is None:
        problem = f"has a KV cache in {algorithm!r}, which is not modelled"
        raise config.refuse("quantization_config", problem)
    return known[0]
