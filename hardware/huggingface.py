"""A model from a Hugging Face config.json: its numbers, the widths of its scheme, its file."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nearkv.hardware.errors import InputError, warn
from nearkv.hardware.families import (
    CONFIG_KEYS,
    FAMILIES,
    LONGEST_VALUE,
    Config,
    ConfigShape,
    LayerSizes,
    layers_of,
)
from nearkv.hardware.files import FileTable, check_integers, read_text
from nearkv.hardware.formats import NATIVE_BITS, formats
from nearkv.hardware.platform import Part, check_shape
from nearkv.hardware.schema import PART_TYPES, Quantity
from nearkv.hardware.units import LARGEST

QUANTISATION_FILE = "hf_quant_config.json"
"""File to which ModelOpt writes the scheme of a checkpoint whose config.json has none."""
_QUANTISED = re.compile(
    r"(nv|mx)fp4|fp[48]|int[48]|w[48]a\d+|awq|gptq|gguf|bnb|[48]-?bit", re.IGNORECASE
)
"""Words in the name of a quantised checkpoint."""
_LARGEST_CONFIG = 1 << 23
"""Size of a config that names the algorithm of each expert, and more [B]."""
_HALF = ("float16", "bfloat16", "half", "auto")
_OTHER_TYPES = ("float32", "float", "float64", "float8_e4m3fn", "float8_e5m2")
"""Types of elements that PyTorch stores weights in; engines serve those of more bits in 16."""
_LOOKS_LIKE = (
    *("llama", "qwen3", "olmo3", "qwen3_moe", "glm4_moe", "mixtral", "deepseek_v3"),
    *("glm_moe_dsa", "qwen3_next"),
)
"""Families that an unknown model_type may be read as, with a warning, the first that fits."""


def load_config(path: Path) -> Part:
    """Read a model from a config.json, and its scheme from the file that ModelOpt puts beside it.

    Args:
        path: the file; its folder names the model.

    Raises:
        InputError: unreadable, not JSON, lacking a key, or of a kind that is not modelled.
    """
    table = _read(path)
    beside = path.parent / QUANTISATION_FILE
    if "quantization_config" not in table and beside.is_file():
        table["quantization_config"] = _read(beside).get("quantization")
    folder = path.resolve().parent.name
    name = folder if folder and path.name == "config.json" else path.stem
    if "quantization_config" not in table and (hint := _QUANTISED.search(name)):
        files = f"neither this file nor {QUANTISATION_FILE} beside it states a scheme"
        warn(f"{path}: {name} sounds like {hint[0]}, but {files}; weights count 16 bits")
    return part_of_config(table, name, str(path), source=str(path))


def part_of_config(table: FileTable, name: str, where: str, source: str) -> Part:
    """Build a model from the keys of a config.json.

    Args:
        table: the keys; of a multimodal model, those below `text_config` describe the layers.
        name: of the model.
        where: the file, put in front of every error.
        source: of every number.

    Raises:
        InputError: a key is missing, or its value is not modelled.
    """
    config, shape = _shape_of(table, where)
    layer_types = layers_of(shape)
    common = _common(shape)
    tables = {name: {**common, **sizes} for name, sizes in layer_types.items()}
    layers = sum(sizes["layers"] for sizes in tables.values())
    idle = _idle(shape, table, layers)
    sizes = {**_typical(tables.values()), **common, "layers": layers, **idle}
    for key, value in sizes.items():
        if fault := PART_TYPES["llm"][key].fault(value):
            raise InputError(f"{where}: {key} comes to {value:g}, which {fault}")
    check_shape(sizes, where)

    def quantity(value: float, unit: str = "1") -> Quantity:
        return Quantity(float(value), unit, "datasheet", source, "config.json")

    def quantities(table: LayerSizes) -> dict[str, Quantity]:
        return {key: quantity(value) for key, value in table.items()}

    _check_type(config)
    widths = widths_of(config)
    numbers = quantities({key: sizes[key] for key in PART_TYPES["llm"] if key in sizes})
    numbers |= {key: quantity(bits, "bit") for key, bits in widths.items()}
    _warn_of_unread(config)
    if list(tables) == ["full"]:
        return Part(name, "llm", name, numbers)
    parts = [
        Part(label, "llm-layer", label, quantities(sizes))
        for label, sizes in tables.items()
    ]
    return Part(name, "llm", name, numbers, tuple(parts))


# --- what a config is ---------------------------------------------------------------------------


def _shape_of(table: FileTable, where: str) -> tuple[Config, ConfigShape]:
    """The keys of the text part, and its sizes as its family names them."""
    text = table.get("text_config")
    if text is not None and not isinstance(text, dict):
        raise InputError(f"{where}: text_config must be a JSON object")
    if text:
        outer = (
            "quantization_config",
            "tie_word_embeddings",
            "model_type",
            "torch_dtype",
            "dtype",
        )
        kept = {key: table[key] for key in outer if key in table}
        tied = [part.get("tie_word_embeddings") for part in (table, text)]
        if None not in tied and tied[0] != tied[1]:
            conflict = "tie_word_embeddings is not what text_config says, which is followed"
            warn(f"{where}: {conflict}")
        table = {**kept, **text}
    model_type = table.get("model_type")
    if not isinstance(model_type, str):
        raise InputError(f"{where}: names no model_type, which every config.json does")
    if model_type in FAMILIES:
        config = Config(table, where)
        return config, ConfigShape(config, FAMILIES[model_type])
    return _guess(table, model_type, where)


_GENERATES = re.compile("CausalLM|ConditionalGeneration|LMHead")
"""Parts of the names of architectures that generate tokens."""


def _guess(table: FileTable, model_type: str, where: str) -> tuple[Config, ConfigShape]:
    """An unknown model_type, where every key is one of a known family.

    Raises:
        InputError: naming the key that no family has, or what the config leaves unsaid.
    """
    architectures = " ".join(map(str, table.get("architectures") or ()))
    if "type_vocab_size" in table or (
        architectures and not _GENERATES.search(architectures)
    ):
        kind = f"{where}: {architectures or model_type} is an encoder"
        raise InputError(f"{kind}, which generates no tokens; give a decoder's config")
    strange: list[str] = []
    problem = ""
    for name in _LOOKS_LIKE:
        config = Config(table, where)
        shape = ConfigShape(config, FAMILIES[name])
        try:
            layers_of(shape), _common(shape)
            widths_of(config)
        except InputError as error:
            reason = str(error).removeprefix(f"{where}: ").partition(", ")[0]
            problem = problem or f"which read as {name} {reason}"
            strange = strange or [key for key in config.unread if key not in CONFIG_KEYS]
            continue
        if not config.unread:
            _check_complete(config, model_type)
            warn(
                f"{where}: unknown model_type {model_type!r}; all its keys are those of {name}, "
                "and it is modelled as one"
            )
            return config, shape
        strange = config.unread
    sentence = f"{where}: unknown model_type {model_type!r}"
    if not strange:
        raise InputError(f"{sentence}, {problem}")
    raise InputError(f"{sentence}, whose {strange[0]} is not modelled")


def _check_complete(config: Config, model_type: str) -> None:
    """Refuse an unknown family whose config leaves to its code what changes bytes or FLOPs.

    Raises:
        InputError: it does.
    """
    activation = config.value("hidden_act")
    unsaid = ""
    if activation not in ("silu", "swish"):
        unsaid = f"has hidden_act = {activation!r}, so its MLP may have no gate"
    elif config.value("tie_word_embeddings") is None:
        unsaid = "does not say whether embeddings are tied (tie_word_embeddings)"
    elif config.value("num_key_value_heads") is None:
        unsaid = "does not say how many KV heads there are (num_key_value_heads)"
    elif config.value("sliding_window") and not config.value("layer_types"):
        unsaid = "does not say which layers its sliding_window limits (layer_types)"
    if unsaid:
        raise InputError(
            f"{config.where}: unknown model_type {model_type!r}, which {unsaid}"
        )


# --- numbers of a model -------------------------------------------------------------------------


def _common(shape: ConfigShape) -> dict[str, float]:
    """Numbers that all layers share."""
    positions = shape.count("positions")
    hidden = shape.hidden
    if shape.count("projected", default=hidden) != hidden:
        raise shape.config.refuse(
            "word_embed_proj_dim", "differs from hidden_size; not modelled"
        )
    common: dict[str, float] = {
        "hidden": hidden,
        "vocab": shape.count("vocab"),
        "positions": positions if shape.family.defaults["learned"] else 0,
        "tied": shape.flag("tied"),
    }
    if positions:
        common["longest"] = max(positions, _widened(shape.config))
    return common


def _widened(config: Config) -> float:
    """Tokens that scaled positions reach, as engines count them: those before, times the factor.

    YaRN (arXiv:2309.00071, sec. 3.4) and its kin state both; 0 where a config does not. Newer
    configs hold a table for each type of layer.
    """
    reach = 0.0
    for key in ("rope_scaling", "rope_parameters"):
        scaling = config.value(key)
        if not isinstance(scaling, dict):
            continue
        within = [value for value in scaling.values() if isinstance(value, dict)]
        for stated in (scaling, *within):
            table = Config(stated, f"{config.where}: {key}")
            before = table.count("original_max_position_embeddings", default=0)
            factor = table.number("factor", low=1.0, high=LARGEST, default=1.0)
            reach = max(reach, before * factor)
    return reach


def _idle(shape: ConfigShape, table: FileTable, layers: float) -> dict[str, float]:
    """Weights that generating text holds and does not read, and layers that draft tokens."""
    rows = shape.count("per_layer_input", default=0)
    embeddings = layers * rows * (shape.count("per_layer_vocab") if rows else 0)
    idle = embeddings + _vision_parameters(table, shape.config.where, shape.hidden)
    drafts = shape.count("mtp_layers")
    numbers = {"idle_parameters": idle, "mtp_layers": drafts}
    return {key: value for key, value in numbers.items() if value}


def _vision_parameters(table: FileTable, where: str, hidden: int) -> int:
    """Parameters of the blocks, patches and projector that `vision_config` describes [1].

    A block has four matrices of attention and two of its MLP; a patch is projected once; the
    projector joins patches and takes them to the width of the text (biases and norms left out).

    Args:
        table: the config.
        where: the file, put in front of warnings.
        hidden: width of the text model [1].
    """
    if not isinstance(table.get("vision_config"), dict):
        return 0
    config = Config(table["vision_config"], f"{where}: vision_config")
    try:
        depth = config.count("depth", "num_hidden_layers", "vt_num_hidden_layers")
        width = config.count("hidden_size", "embed_dim", "vt_hidden_size")
        inner = config.count("intermediate_size", "vt_intermediate_size", default=4 * width)
        patch = config.count("patch_size", default=14)
        frames = config.count("temporal_patch_size", default=1)
        colours = config.count("in_channels", "num_channels", default=3)
        joined = config.count("spatial_merge_size", default=1) ** 2 * width
    except InputError as problem:
        warn(f"{problem}; the vision tower is not counted")
        return 0
    blocks = depth * width * (4 * width + 2 * inner)
    patches = colours * frames * patch**2 * width
    projector = joined * hidden + (joined**2 if joined > width else 0)
    return blocks + patches + projector


def _typical(tables: Iterable[LayerSizes]) -> dict[str, float]:
    """Sizes of the most frequent type of layer, for formulas that do not sum over types.

    Systems with such formulas answer `not-modelled`; what they compute on the way needs heads that
    divide, and an MLP.
    """
    typical = max(tables, key=lambda table: table["layers"])
    sizes = {key: typical[key] for key in PART_TYPES["llm"] if key in typical}
    if sizes["kv_heads"] < 1:
        sizes["kv_heads"] = sizes["heads"]
    if not sizes["ffn"]:
        sizes["ffn"] = sizes["hidden"]
    return sizes


def _check_type(config: Config) -> None:
    """Warn of elements of another type than the 16 bits that are counted, unless quantised.

    Raises:
        InputError: there is no such type.
    """
    stated = config.value("torch_dtype", "dtype")
    name = str(stated).removeprefix("torch.")
    if stated is None or name in _HALF:
        return
    if name not in _OTHER_TYPES:
        raise config.refuse(
            "torch_dtype" if config.table.get("torch_dtype") is not None else "dtype",
            f"is no type that weights are stored in; known are {', '.join(_HALF + _OTHER_TYPES)}",
        )
    counted = (
        "weights count 16 bits, as engines load them; --set precision.weight=... changes it"
    )
    warn(f"{config.where}: stores {name}; {counted}")


# --- widths: bits of an element as a quantisation stores it, overhead included --------------------

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


def bits_in_groups(bits: float, group: float, scale: float, zero: float = 0.0) -> float:
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


def algorithm_bits(config: Config, name: object, place: str) -> tuple[float, float]:
    """Bits of a weight, its scale included, and of the operand of its products.

    Raises:
        InputError: an algorithm that is not modelled, and the place that names it.

    >>> algorithm_bits(Config({}, "config.json"), "W4A8_MXFP4_FP8", "quant_algo")
    (4.25, 8.0)
    """
    match = _ALGORITHM.fullmatch(str(name))
    if match is None or match[2].lower() not in formats():
        problem = f"has {place} {name!r}, which is not modelled"
        raise config.refuse("quantization_config", problem)
    bits = formats()[match[2].lower()]["bits"].value
    return bits, float(match[1] or bits // 1)


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
    method, mxfp4 = _method(scheme), formats()["mxfp4"]
    if method == "gguf":
        experts, others = (_gguf_bits(config, scheme, key) for key in ("experts", "others"))
        return {"weight_width": experts, "dense_width": others, "head_width": others}
    # DeepSeek-V4 states the type of its experts beside the scheme
    fp4_experts = config.value("expert_dtype") == "fp4"
    if scheme.value("quant_algo") == "MIXED_PRECISION":
        return _mixed(config, scheme)
    weight, operand = _weight_and_operand(config, scheme)
    kept = [name for key in _KEPT_UNDER for name in scheme.listed(key, str, "names")]
    attention_kept = any("attn" in name or "attention" in name for name in kept)
    widths = {
        "weight_width": mxfp4["bits"].value if fp4_experts else weight,
        "dense_width": NATIVE_BITS if attention_kept else weight,
        "head_width": NATIVE_BITS,
        "operand_width": operand,
    }
    if method == "mxfp4":
        widths["native_width"] = mxfp4["native"].value
    return widths


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
        return bits_in_groups(bits, group, scale=16, zero=zero), NATIVE_BITS
    if method == "bitsandbytes":
        return _bitsandbytes(scheme)
    if method in ("fp8", "fbgemm_fp8"):
        scheme.number("bits", low=8, high=8, default=8)
        return bits_in_groups(8, _block(scheme), scale=32), 8.0
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
    return bits_in_groups(4, 64, scale), NATIVE_BITS


def _modelopt(config: Config, scheme: Config) -> tuple[float, float]:
    algorithm = scheme.value("quant_algo")
    bits, operand = algorithm_bits(config, algorithm, "quant_algo")
    groups = scheme.table_of("config_groups")
    for name in groups.table:  # they repeat what the algorithm says
        for part, width in (("weights", bits // 1), ("input_activations", operand)):
            of_group = groups.table_of(name).table_of(part)
            of_group.value("type", "dynamic", "symmetric", "group_size")
            of_group.number("num_bits", low=width, high=width, default=width)
    if algorithm == "NVFP4":
        group = _group_size(scheme, "group_size", default=_NVFP4_GROUP)
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
    scheme.value("config_groups", "group_size", "moe_quant_algo", "weight_block_size")
    scheme.value(*_KEPT_UNDER)
    algorithms: dict[str, Counter[str]] = {}
    for name, table in modules.items():
        algorithm = str(table.get("quant_algo")) if isinstance(table, dict) else str(table)
        algorithms.setdefault(_role(name), Counter())[algorithm] += 1
    base = 8.0 if _method(scheme) == "fp8" else NATIVE_BITS
    bits: dict[str, tuple[float, float]] = {}
    for role, used in algorithms.items():
        [(commonest, _)] = used.most_common(1)
        bits[role] = algorithm_bits(config, commonest, "quantized_layers with quant_algo")
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
    of_group = groups.table_of(name).value("format")
    form = str(scheme.value("format") or of_group)
    fine = form.startswith(("nvfp4", "mxfp4"))
    zero = 0.0 if weights.flag("symmetric", default=True) else bits
    group = _group_size(weights, "group_size", default=0)
    activations = groups.table_of(name).table_of("input_activations")
    width = bits_in_groups(bits, group, scale=8 if fine else 16, zero=zero)
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


def _cache_width(config: Config, scheme: Config) -> LayerSizes:
    """Bits of the KV cache: a table of the config or its scheme, or an algorithm by name."""
    key = "kv_cache_scheme"
    for place in (config, scheme):
        if isinstance(place.value(key), dict):
            return {"kv_width": _bits(place.table_of(key), 8.0)}
    algorithm = (
        config.value(key) or scheme.value(key) or scheme.value("kv_cache_quant_algo")
    )
    if algorithm is None:
        return {}
    return {"kv_width": algorithm_bits(config, algorithm, "a KV cache in")[0]}


# --- keys that are not read ---------------------------------------------------------------------


def _warn_of_unread(config: Config) -> None:
    """Warn of each key that was not read, those of nested tables included."""
    for key in config.unread:
        value = json.dumps(config.table[key])[:LONGEST_VALUE]
        meaning = f"the meaning of {key} = {value} is unknown; it is ignored"
        warn(f"{config.where}: {meaning}, and may change bytes or FLOPs")
    for table in config.nested.values():
        _warn_of_unread(table)


# --- the file -----------------------------------------------------------------------------------


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object.

    Raises:
        ValueError: a key is repeated, of which JSON would silently keep the last.
    """
    table = dict(pairs)
    if len(table) < len(pairs):
        count = Counter(key for key, _ in pairs)
        key, times = count.most_common(1)[0]
        raise ValueError(f"key {key!r} stands {times} times")
    return table


def _infinity(constant: str) -> float:
    """An infinity, as limits of Mamba's time steps are written.

    Raises:
        ValueError: it is NaN.
    """
    if constant == "NaN":
        raise ValueError("NaN is no number")
    return float(constant)


def _read(path: Path) -> dict[str, Any]:
    try:
        text = read_text(path, "config.json", most=_LARGEST_CONFIG)
        table = json.loads(
            text, object_pairs_hook=_without_duplicates, parse_constant=_infinity
        )
    except (ValueError, RecursionError) as problem:  # no JSON, no UTF-8, or 5,000 digits
        raise InputError(
            f"{path}: not a valid JSON file ({problem}); correct it there"
        ) from None
    if not isinstance(table, dict):
        raise InputError(f"{path} must hold a JSON object with model_type and sizes")
    check_integers(table, str(path))
    return table
