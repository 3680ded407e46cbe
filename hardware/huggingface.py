"""Build a model from a Hugging Face config.json, or from the same keys in a catalogue file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nearkv.hardware.config import Config
from nearkv.hardware.errors import InputError, warn
from nearkv.hardware.families import FAMILIES, Family
from nearkv.hardware.files import check_integers, read_text
from nearkv.hardware.layers import Attention, Mlp, hidden_of, layers_of
from nearkv.hardware.part import Part, check_shape
from nearkv.hardware.quantity import Quantity
from nearkv.hardware.quantization import widths_of
from nearkv.hardware.schema import PART_TYPES
from nearkv.hardware.unread import warn_of_unread

QUANTISATION_FILE = "hf_quant_config.json"
"""Where ModelOpt writes the scheme of a checkpoint whose config.json has none."""
LOOKS_LIKE = "llama"
"""Family that an unknown model_type is read as, with a warning."""

Layer = tuple[Attention, Mlp]


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
    name = path.resolve().parent.name or path.stem
    return part_of_config(table, name, str(path), source=str(path))


def part_of_config(table: Mapping[str, Any], name: str, where: str, source: str) -> Part:
    """Build a model from the keys of a config.json.

    Args:
        table: the keys; of a multimodal model, those below `text_config` count.
        name: of the model.
        where: the file, put in front of every error.
        source: of every number.

    Raises:
        InputError: a key is missing, or its value is not modelled.
    """
    config, family = _config_of(table, where)
    layers = layers_of(config)
    attention, mlp = _layers(config, family, layers)
    common = _common(config, family)
    kinds = Counter(zip(attention, mlp, strict=True))
    tables = {
        label: {**common, **_numbers(layer, common), "layers": float(count)}
        for (layer, count), label in zip(kinds.items(), _labels(list(kinds)), strict=True)
    }
    alike = list(tables) == ["full"]
    whole = {**_stand_in(tables), **common, "layers": float(layers)}
    _check(whole, where)
    numbers = {
        key: _quantity(whole[key], "1", source) for key in PART_TYPES["llm"] if key in whole
    }
    for key, bits in widths_of(config).stated.items():
        numbers[key] = _quantity(bits, "bit", source)
    warn_of_unread(config, tables.values())
    parts = [_kind_part(label, table, source) for label, table in tables.items()]
    return Part(name, "llm", name, numbers, () if alike else tuple(parts))


# --- what a config is ---------------------------------------------------------------------------


def _config_of(table: Mapping[str, Any], where: str) -> tuple[Config, Family]:
    """The keys of the text part, and the family that reads them."""
    text = table.get("text_config")
    if isinstance(text, dict):
        outer = ("quantization_config", "tie_word_embeddings", "model_type")
        kept = {key: table[key] for key in outer if key in table}
        table = {**kept, **text}
    model_type = table.get("model_type")
    if not isinstance(model_type, str):
        raise InputError(f"{where}: names no model_type, which every config.json does")
    family = FAMILIES.get(model_type)
    if family is None:
        return _guess(table, model_type, where)
    return Config(table, where), family


def _guess(table: Mapping[str, Any], model_type: str, where: str) -> tuple[Config, Family]:
    """An unknown model_type, where every key is one of a known family."""
    config = Config(table, where)
    family = FAMILIES[LOOKS_LIKE]
    families = ", ".join(sorted(FAMILIES))
    unknown = f"{where}: unknown model_type {model_type!r}"
    try:
        _layers(config, family, layers_of(config))
        _common(config, family)
        widths_of(config)
    except InputError as problem:
        raise InputError(f"{unknown} ({problem}); known are {families}") from None
    if config.unread:
        keys = ", ".join(config.unread)
        raise InputError(
            f"{unknown}, whose {keys} may change bytes or FLOPs; known are {families}"
        )
    if reason := _left_to_the_family(config):
        raise InputError(f"{unknown}, which {reason}; known are {families}")
    warn(f"{unknown}; all its keys are those of {LOOKS_LIKE}, and it is modelled as one")
    return config, family


def _left_to_the_family(config: Config) -> str:
    """What an unknown family decides and its config does not say; empty where it says all."""
    activation = config.value("hidden_act")
    if activation not in ("silu", "swish"):
        return f"has hidden_act = {activation!r}, so its MLP may have no gate"
    if config.value("tie_word_embeddings") is None:
        return "does not say whether embeddings are tied (tie_word_embeddings)"
    if config.value("num_key_value_heads") is None:
        return "does not say how many KV heads there are (num_key_value_heads)"
    if config.value("sliding_window") and not config.value("layer_types"):
        return "does not say which layers its sliding_window limits (layer_types)"
    return ""


def _layers(
    config: Config, family: Family, layers: int
) -> tuple[list[Attention], list[Mlp]]:
    if not 1 <= layers <= 10_000:
        raise InputError(f"{config.where}: {layers} layers; a model has 1 to 10,000")
    return family.attention(config, layers), family.mlp(config, layers)


# --- numbers of a model -------------------------------------------------------------------------


def _common(config: Config, family: Family) -> dict[str, float]:
    """Numbers that all layers share."""
    positions = config.count(
        "max_position_embeddings", "n_positions", "max_seq_len", default=0
    )
    hidden = hidden_of(config)
    projected = config.count("word_embed_proj_dim", default=hidden)
    if projected != hidden:
        raise config.refuse("word_embed_proj_dim", "differs from hidden_size; not modelled")
    common = {
        "hidden": float(hidden),
        "vocab": float(config.count("vocab_size", default=family.vocab or None)),
        "positions": float(positions if family.learned else 0),
        "tied": float(config.flag("tie_word_embeddings", family.tied)),
    }
    if positions:
        common["longest"] = float(positions)
    return common


def _numbers(layer: Layer, common: Mapping[str, float]) -> dict[str, float]:
    """Numbers of one kind of layer."""
    attention, mlp = layer
    hidden = common["hidden"]
    shared = (2 + mlp.gated) * hidden * mlp.shared
    router = hidden * mlp.experts if mlp.experts > 1 else 0.0
    numbers = {
        "heads": float(attention.heads),
        "kv_heads": float(attention.kv_heads),
        "head_size": float(attention.head_size),
        "ffn": float(mlp.ffn),
        "gated": float(mlp.gated),
        "experts": float(mlp.experts),
        "active_experts": float(mlp.active),
    }
    beside = attention.beside + shared + router
    if beside:
        numbers["shared_parameters"] = float(beside)
    return numbers | dict(attention.numbers)


def _stand_in(tables: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Sizes of the most frequent kind, for whoever asks a model as a whole.

    Systems that do not sum over kinds of layer answer `not-modelled`; what they compute on the way
    needs heads that divide, and an MLP.
    """
    typical = dict(max(tables.values(), key=lambda table: table["layers"]))
    sizes = {key: typical[key] for key in PART_TYPES["llm"] if key in typical}
    if sizes["kv_heads"] < 1:
        sizes["kv_heads"] = sizes["heads"]
    if not sizes["ffn"]:
        sizes["ffn"] = sizes["hidden"]
    return sizes


def _labels(kinds: list[Layer]) -> list[str]:
    """A name for each kind: its attention, with its MLP where that does not tell them apart."""
    attentions = Counter(attention.kind for attention, _ in kinds)
    labels: list[str] = []
    for attention, mlp in kinds:
        label = attention.kind
        if attentions[label] > 1:
            label += "_moe" if mlp.experts > 1 else "_dense"
        repeated = sum(other.startswith(label) for other in labels)
        labels.append(f"{label}_{repeated + 1}" if label in labels else label)
    return labels


def _check(sizes: Mapping[str, float], where: str) -> None:
    for key, value in sizes.items():
        if fault := PART_TYPES["llm"][key].fault(value):
            raise InputError(f"{where}: {key} comes to {value:g}, which {fault}")
    check_shape(sizes, where)


def _kind_part(label: str, table: Mapping[str, float], source: str) -> Part:
    numbers = {key: _quantity(value, "1", source) for key, value in table.items()}
    return Part(label, "llm-layer", label, numbers)


def _quantity(value: float, unit: str, source: str) -> Quantity:
    return Quantity(value, unit, "datasheet", source, "config.json")


# --- the file -----------------------------------------------------------------------------------


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, none of whose keys stands twice.

    Raises:
        ValueError: one does; of the others JSON would keep the last alone.
    """
    table = dict(pairs)
    if len(table) < len(pairs):
        count = Counter(key for key, _ in pairs)
        key, times = count.most_common(1)[0]
        raise ValueError(f"key {key!r} stands {times} times")
    return table


def _read(path: Path) -> dict[str, Any]:
    try:
        text = read_text(path, "config.json")
        table = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as problem:  # no JSON, no UTF-8, or 5,000 digits
        raise InputError(
            f"{path}: not a valid JSON file ({problem}); correct it there"
        ) from None
    if not isinstance(table, dict):
        raise InputError(f"{path}: must hold a JSON object with model_type and sizes")
    check_integers(table, str(path))
    return table
