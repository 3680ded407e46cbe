"""A model from a Hugging Face config.json: its numbers, and its file."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nearkv.hardware.errors import InputError, echo, warn
from nearkv.hardware.families import CONFIG_KEYS, FAMILIES, NESTED, Config
from nearkv.hardware.files import FileTable, check_integers, read_text
from nearkv.hardware.layer_sizes import LayerSizes, layers_of
from nearkv.hardware.platform import Part, check_shape
from nearkv.hardware.quantization import widths_of
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
    folder = path.resolve().parent.name
    name = folder if folder and path.name == "config.json" else path.stem
    beside, is_silent = path.parent / QUANTISATION_FILE, "quantization_config" not in table
    if is_silent and beside.is_file():
        table["quantization_config"] = _read(beside).get("quantization")
    elif is_silent and (hint := _QUANTISED.search(name)):
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
    config = _config_of(table, where)
    layer_types = layers_of(config)
    common = _common(config)
    tables = {name: {**common, **sizes} for name, sizes in layer_types.items()}
    layers = sum(sizes["layers"] for sizes in tables.values())
    idle = _idle(config, table, layers)
    sizes = {**_typical(tables.values()), **common, "layers": layers, **idle}
    for key, value in sizes.items():
        if fault := PART_TYPES["llm"][key].fault(value):
            raise InputError(f"{where}: {key} comes to {value:g}, which {fault}")
    check_shape(sizes, where)
    _check_type(config)
    ordered = {key: sizes[key] for key in PART_TYPES["llm"] if key in sizes}
    numbers = _quantities({**ordered, **widths_of(config)}, source)
    _warn_of_unread(config)
    if list(tables) == ["full"]:
        return Part(name, "llm", name, numbers)
    parts = (
        Part(label, "llm-layer", label, _quantities(sizes, source))
        for label, sizes in tables.items()
    )
    return Part(name, "llm", name, numbers, tuple(parts))


def _quantities(sizes: LayerSizes, source: str) -> dict[str, Quantity]:
    """Sizes, and widths in bits, with their source."""
    numbers = {}
    for key, size in sizes.items():
        unit = "bit" if key.endswith("_width") else "1"
        numbers[key] = Quantity(float(size), unit, "datasheet", source, "config.json")
    return numbers


# --- what a config is ---------------------------------------------------------------------------


def _config_of(table: FileTable, where: str) -> Config:
    """The text part, read as its family is."""
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
        return Config(table, where, FAMILIES[model_type])
    return _guess(table, model_type, where)


_GENERATES = re.compile("CausalLM|ConditionalGeneration|LMHead")
"""Parts of the names of architectures that generate tokens."""


def _guess(table: FileTable, model_type: str, where: str) -> Config:
    """An unknown model_type, where every key is one of a known family.

    Raises:
        InputError: naming the key that no family has, or what the config leaves unsaid.
    """
    architectures = " ".join(Config(table, where).listed("architectures", str, "names"))
    if "type_vocab_size" in table or (
        architectures and not _GENERATES.search(architectures)
    ):
        kind = f"{where}: {architectures or model_type} is an encoder"
        raise InputError(f"{kind}, which generates no tokens; give a decoder's config")
    strange: list[str] = []
    problem = ""
    for name in _LOOKS_LIKE:
        config = Config(table, where, FAMILIES[name])
        try:
            layers_of(config), _common(config)
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
            return config
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


def _common(config: Config) -> dict[str, float]:
    """Numbers that all layers share."""
    positions, hidden = config["positions"], config["hidden"]
    if config.count("projected", default=hidden) != hidden:
        raise config.refuse("word_embed_proj_dim", "differs from hidden_size; not modelled")
    common: dict[str, float] = {
        "hidden": hidden,
        "vocab": config["vocab"],
        "positions": positions if config.family.defaults["learned"] else 0,
        "tied": config.flag("tied"),
    }
    if positions:
        common["longest"] = max(positions, _widened(config))
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


def _idle(config: Config, table: FileTable, layers: float) -> dict[str, float]:
    """Weights that generating text holds and does not read, and layers that draft tokens."""
    rows = config.count("per_layer_input", default=0)
    embeddings = layers * rows * (config["per_layer_vocab"] if rows else 0)
    idle = embeddings + _vision_parameters(table, config.where, config["hidden"])
    drafts = config["mtp_layers"]
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
    stated = table.get("vision_config")
    if not isinstance(stated, dict):
        return 0
    config = Config(stated, f"{where}: vision_config", NESTED["vision_config"])
    try:
        # hidden_size beside embed_dim is the width of the text (Qwen2-VL)
        width = config["embed_dim" if config.has("embed_dim") else "width"]
        depth, patch = config["depth"], config["patch"]
        inner = config.count("inner", default=4 * width)
        frames, colours = config["frames"], config["colours"]
        joined = config["joined"] ** 2 * width
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
    for key, stated in config.stated(("torch_dtype", "dtype")).items():
        name = str(stated).removeprefix("torch.")
        if name not in _HALF + _OTHER_TYPES:
            known = ", ".join(_HALF + _OTHER_TYPES)
            problem = f"is no type that weights are stored in; known are {known}"
            raise config.refuse(key, problem)
        if name not in _HALF:
            counted = "weights count 16 bits, as engines load them"
            change = "--set precision.weight=... changes it"
            warn(f"{config.where}: stores {name}; {counted}; {change}")


# --- keys that are not read ---------------------------------------------------------------------


def _warn_of_unread(config: Config) -> None:
    """Warn of each key that was not read, those of nested tables included."""
    for key in config.unread:
        value = echo(json.dumps(config.table[key]))
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
