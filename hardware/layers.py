"""What a config.json says of one layer: how it attends and what its MLP holds."""

from __future__ import annotations

from dataclasses import dataclass

from nearkv.hardware.config import Config


@dataclass(frozen=True)
class Attention:
    """How one layer attends.

    Attributes:
        kind: `full`, `window`, `chunk`, `latent`, `sparse` or `state`.
        heads, kv_heads, head_size: as cost models count them [1].
        beside: parameters beside the projections of these heads [1].
        numbers: what only this kind has, by name.
    """

    kind: str
    heads: int
    kv_heads: float
    head_size: int
    beside: int = 0
    numbers: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Mlp:
    """The MLP of one layer.

    Attributes:
        ffn: inner width, of one expert where there are several [1].
        gated: whether it has a gate matrix.
        experts, active: experts, and those that a token uses [1].
        shared: inner width of the experts that every token uses [1].
    """

    ffn: int
    gated: bool = True
    experts: int = 1
    active: int = 1
    shared: int = 0


def layers_of(config: Config) -> int:
    """Number of layers [1]."""
    return config.count("num_hidden_layers", "n_layer", "n_layers", "num_layers")


def hidden_of(config: Config) -> int:
    """Width of the model [1]."""
    return config.count("hidden_size", "n_embd", "n_embed", "d_model")


def heads_of(config: Config) -> int:
    """Number of query heads [1]."""
    return config.count("num_attention_heads", "n_head", "n_heads")
