"""Widths of a model's elements, as the scheme of a quantised config.json stores them."""

from __future__ import annotations

import re
from collections import Counter

from nearkv.hardware.errors import InputError, warn
from nearkv.hardware.families import Config
from nearkv.hardware.formats import NATIVE_BITS, formats
from nearkv.hardware.layer_sizes import LayerSizes
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
_ELSEWHERE = re.compile("visual|vision|image|audio|tower|projector|mtp|norm|indexer")
"""Words in the names of what is no large matrix of a layer that generates text."""
_ATTENTION = re.compile(r"att(?:n|ention)\b(.*)")
"""Attention, and those of its parts that a name goes on to say."""
_LAYER = re.compile(r"\.(\d+)\\?\.")
"""Number of a layer within a name or a regular expression."""
_ATTENTION_PARTS = {
    "queries": {"q", "wq", "query", "qkv", "wqkv", "qkvz"},
    "values": {"k", "v", "wk", "wv", "kv", "key", "value", "qkv", "wqkv", "qkvz"},
    "output": {"o", "wo", "out", "dense"},
}
"""Large matrices of attention, by the words of their names."""


def bits_in_groups(bits: float, group: float, scale: float, zero: float = 0.0) -> float:
    """Bits of an element in groups that share a scale and a zero point.

    Args:
        bits: of one element.
        group: elements that share a scale; 0 where the scale belongs to a row or a matrix.
        scale, zero: bits of both.
    """
    overhead = (scale + zero) / group if group else 0.0
    return bits + overhead


_ALGORITHM = re.compile(r"(?:W(\d+)A(4|8|16)_)?((?:NV|MX)?FP([48]))(?:_FP8)?")
"""An algorithm of ModelOpt: bits of weights and activations, if stated, and format and its bits."""
_NVFP4_GROUP = 16
"""Elements of NVFP4 that share a scale, where a scheme does not say."""


def algorithm_bits(config: Config, name: object, place: str) -> tuple[float, float]:
    """Bits of a weight, its scale included, and of the operand of its products.

    Raises:
        InputError: an algorithm that is not modelled, and the place that names it.

    >>> algorithm_bits(Config({}, "config.json"), "W4A8_MXFP4_FP8", "quant_algo")
    (4.25, 8.0)
    """
    match = _ALGORITHM.fullmatch(str(name))
    contradicts = match is not None and match[1] not in (None, match[4])
    if match is None or contradicts or match[3].lower() not in formats():
        problem = f"has {place} {name!r}, which is not modelled"
        raise config.refuse("quantization_config", problem)
    bits = formats()[match[3].lower()]["bits"].value
    return bits, float(match[2] or bits // 1)


def widths_of(config: Config) -> LayerSizes:
    """Bits of elements that a config states, by key of a model; the platform decides the others.

    weight_width    experts and MLPs
    dense_width     attention, and what every token shares
    operand_width   the wider operand of products with quantised weights
    native_width    that operand on GPUs that multiply the weights as they are stored
    Embeddings and output head stay in 16 bits, as all these schemes leave them by default;
    `modules_to_not_convert` and `ignore` may name attention beside them.

    Raises:
        InputError: a scheme that is not modelled.
    """
    scheme = config.table_of("quantization_config")
    cache = _cache_width(config, scheme)
    return {**_scheme_widths(config, scheme), **cache} if scheme.table else cache


def _scheme_widths(config: Config, scheme: Config) -> LayerSizes:
    if _method(scheme) == "gguf":
        experts, others = (_gguf_bits(config, scheme, key) for key in ("experts", "others"))
        return {"weight_width": experts, "dense_width": others, "head_width": others}
    # DeepSeek-V4 states the type of its experts beside the scheme
    fp4_experts = config.value("expert_dtype") == "fp4"
    if scheme.value("quant_algo") == "MIXED_PRECISION":
        return _mixed(config, scheme)
    weight, operand = _weight_and_operand(config, scheme)
    widths = {
        "weight_width": formats()["mxfp4"]["bits"].value if fp4_experts else weight,
        "dense_width": NATIVE_BITS if _attention_is_kept(config, scheme) else weight,
        "head_width": NATIVE_BITS,
        "operand_width": operand,
    }
    if _method(scheme) == "mxfp4":
        widths["native_width"] = formats()["mxfp4"]["native"].value
    return widths


def _attention_is_kept(config: Config, scheme: Config) -> bool:
    """True if a scheme leaves attention in 16 bits, all of it in most layers; else it warns."""
    every = set(map(str, range(config.count("layers", default=1))))
    kept: dict[str, set[str]] = {part: set() for part in _ATTENTION_PARTS}
    for name in (name for key in _KEPT_UNDER for name in scheme.listed(key, str, "names")):
        attention, numbered = _ATTENTION.search(name), _LAYER.search(name)
        if attention is None or _ELSEWHERE.search(name):
            continue
        words = set(re.findall("[a-z]+", attention[1]))
        for part, known in _ATTENTION_PARTS.items():
            if words <= {"proj"} or words & known:
                kept[part] |= {numbered[1]} & every if numbered else every
    whole, touched = set.intersection(*kept.values()), set.union(*kept.values())
    is_kept = 2 * len(whole) > len(every)
    if touched and whole != every:
        counted = "in 16 bits" if is_kept else "as quantised"
        partly = "keeps some matrices of attention in 16 bits and quantises others"
        warn(f"{scheme.where} {partly}; all of attention counts {counted}")
    return is_kept


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
    match _method(scheme):
        case "awq" | "gptq":
            bits = scheme.number("width", low=1, high=_WIDEST, default=4)
            zero = bits if scheme.flag("zero_point", default=True) else 0.0
            group = _group_size(scheme, default=128)
            return bits_in_groups(bits, group, scale=16, zero=zero), NATIVE_BITS
        case "bitsandbytes":
            return _bitsandbytes(scheme)
        case "fp8" | "fbgemm_fp8":
            scheme.number("bits", low=8, high=8, default=8)
            return bits_in_groups(8, _block(scheme), scale=32), 8.0
        case "mxfp4":
            scheme.number("bits", low=4, high=4, default=4)
            return formats()["mxfp4"]["bits"].value, NATIVE_BITS
        case "modelopt":
            return _modelopt(config, scheme)
        case "compressed-tensors":
            return _compressed_tensors(scheme)
        case method:
            problem = f"has quant_method {method!r}, which is not modelled"
            raise config.refuse("quantization_config", problem)


def _bitsandbytes(scheme: Config) -> tuple[float, float]:
    """NF4 in blocks of 64 with FP32 scales, themselves in 8 bits if quantised twice (QLoRA).

    Raises:
        InputError: not just one of the two widths is chosen.
    """
    in_4_bits, in_8_bits = scheme.flag("load_in_4bit"), scheme.flag("load_in_8bit")
    if in_4_bits == in_8_bits:
        problem = "just one of load_in_4bit and load_in_8bit must be true"
        raise InputError(f"{scheme.where}: {problem}")
    if in_8_bits:
        return 8.0, 8.0
    twice = scheme.flag("bnb_4bit_use_double_quant", default=False)
    scale = 8 + 32 / 256 if twice else 32.0
    return bits_in_groups(4, 64, scale), NATIVE_BITS


def _modelopt(config: Config, scheme: Config) -> tuple[float, float]:
    algorithm = scheme.value("quant_algo")
    bits, operand = algorithm_bits(config, algorithm, "quant_algo")
    groups = scheme.table_of("config_groups")
    for name in groups.table:  # they repeat what the algorithm says
        for part, width in (("weights", bits // 1), ("input_activations", operand)):
            repeated = groups.table_of(name).table_of(part)
            repeated.value("group_size")
            repeated.number("num_bits", low=width, high=width, default=width)
    if algorithm == "NVFP4":
        group = _group_size(scheme, default=_NVFP4_GROUP)
        bits = bits_in_groups(4, group, scale=8)
    return bits, operand


def _mixed(config: Config, scheme: Config) -> LayerSizes:
    """An algorithm for each module, in `quantized_layers`: the commonest of each of three roles.

    What is not listed stays as the method of the others leaves it: in 8 bits, or in 16. Where only
    the output head is quantised, embeddings and head have a mean width.

    Raises:
        InputError: no such list, or an algorithm that is not modelled.
    """
    modules = scheme.value("quantized_layers")
    if not isinstance(modules, dict) or not modules:
        raise scheme.refuse("quantized_layers", "must name the algorithm of each module")
    repeated = ("config_groups", "group_size", "moe_quant_algo", "weight_block_size")
    scheme.stated((*repeated, *_KEPT_UNDER))
    used: dict[str, list[str]] = {}
    for name, table in modules.items():
        algorithm = table.get("quant_algo") if isinstance(table, dict) else table
        used.setdefault(_role(name), []).append(str(algorithm))
    place = "quantized_layers with quant_algo"
    bits = {}
    for role, algorithms in used.items():
        [(commonest, _)] = Counter(algorithms).most_common(1)
        bits[role] = algorithm_bits(config, commonest, place)
    base = 8.0 if _method(scheme) == "fp8" else NATIVE_BITS
    weight, operand = bits.get("experts", bits.get("mlp", (base, base)))
    dense, _ = bits.get("dense", bits.get("shared", (base, base)))
    head = (NATIVE_BITS + bits["head"][0]) / 2 if "head" in bits else NATIVE_BITS
    return {
        "weight_width": weight,
        "dense_width": dense,
        "head_width": head,
        "operand_width": operand,
    }


def _role(module: str) -> str:
    """Part of a model that a module belongs to, by the words of its name."""
    roles = {"shared": "shared_expert", "experts": "expert", "head": "lm_head"}
    named = (role for role, word in roles.items() if word in module)
    return next(named, "mlp" if "mlp" in module or "ffn" in module else "dense")


def _compressed_tensors(scheme: Config) -> tuple[float, float]:
    """The only group of matrices: bits, and a scale for each group of elements.

    Raises:
        InputError: there are several groups of matrices, or none.
    """
    groups = scheme.table_of("config_groups")
    if len(groups.table) != 1:
        raise scheme.refuse("config_groups", "must be one group; others are not modelled")
    (name,) = groups.table
    only = groups.table_of(name)
    weights, activations = only.table_of("weights"), only.table_of("input_activations")
    bits, size = _bits(weights, NATIVE_BITS), _group_size(weights, default=0)
    own_form = only.value("format")
    form = str(scheme.value("format") or own_form)
    scale = 8 if form.startswith(("nvfp4", "mxfp4")) else 16
    zero = 0.0 if weights.flag("symmetric", default=True) else bits
    return bits_in_groups(bits, size, scale, zero), _bits(activations, NATIVE_BITS)


def _bits(table: Config, default: float) -> float:
    return table.number("num_bits", low=1, high=_WIDEST, default=default)


def _group_size(table: Config, default: float) -> float:
    """Elements that share a scale; 0 where a row does, which some write as -1.

    Raises:
        InputError: a scale is said to belong to no element.
    """
    size = table.number("group", low=-1, high=LARGEST, default=default)
    if table.value("group") is not None and size != -1 and size < 1:
        key = table.key("group")
        raise InputError(f"{table.where}: {key} must be 1 or more, or -1 for a row")
    return max(size, 0.0)


def _block(scheme: Config) -> float:
    """Elements of a block that shares a scale; 0 where a matrix does.

    Raises:
        InputError: its sizes are not two whole numbers.
    """
    sizes = scheme.value("weight_block_size") or [0, 0]
    is_pair = isinstance(sizes, list) and len(sizes) == 2
    if not is_pair or not all(type(size) is int and 0 <= size <= LARGEST for size in sizes):
        problem = "must be two whole numbers, as in [128, 128]"
        raise scheme.refuse("weight_block_size", problem)
    rows, columns = sizes
    return float(rows * columns)


def _cache_width(config: Config, scheme: Config) -> LayerSizes:
    """Bits of the KV cache: a table of the config or its scheme, or an algorithm by name."""
    stated_by = [(config, "kv_cache_scheme"), (scheme, "kv_cache_scheme")]
    for table, key in (*stated_by, (scheme, "kv_cache_quant_algo")):
        stated = table.value(key)
        if isinstance(stated, dict):
            return {"kv_width": _bits(table.table_of(key), 8.0)}
        if stated is not None:
            return {"kv_width": algorithm_bits(config, stated, "a KV cache in")[0]}
    return {}
