"""What the MLP of a kind of layer holds: a dense one, experts, or none."""

from __future__ import annotations

from dataclasses import dataclass

from nearkv.hardware.families import Shape


@dataclass(frozen=True)
class Mlp:
    """The MLP of one layer.

    Attributes:
        ffn: inner width, of one expert where there are several [1].
        gated: whether it has a gate matrix.
        experts, active: experts, and those that a token uses [1].
        beside: parameters that every token uses beside them: shared experts, router [1].
    """

    ffn: float
    gated: bool = True
    experts: int = 1
    active: int = 1
    beside: int = 0


def mlp(kind: str, shape: Shape) -> Mlp:
    """The MLP of one kind: `dense`, `wide` (twice as wide), `moe`, `shared` (its alone), `none`.

    Raises:
        InputError: a size is missing.
    """
    gated = bool(shape.family.defaults["gated"])
    shape.value("ffn")  # known, whether or not a layer is dense
    if kind == "none":
        return Mlp(0)
    if kind == "moe":
        return _experts(shape, gated)
    if kind == "shared":
        return Mlp(shape.count("shared_ffn"), gated)
    ratio = 1 if gated else shape.count("ffn_ratio")
    width = shape.count("ffn", default=None if gated else ratio * shape.hidden)
    return Mlp(2 * width if kind == "wide" else width, gated)


def _experts(shape: Shape, gated: bool) -> Mlp:
    """Experts, a router, and the experts or the MLP that every token uses beside them."""
    hidden, width = shape.hidden, shape.count("moe_ffn")
    experts = shape.count("experts")
    matrices = 2 + gated
    beside = hidden * experts if experts > 1 else 0
    beside += matrices * hidden * _shared_width(shape, width)
    narrow = shape.count("moe_hidden", default=hidden)
    if narrow != hidden:
        beside += 2 * hidden * narrow
    # experts between narrower activations: the width that has as many parameters
    return Mlp(
        width if narrow == hidden else width * narrow / hidden,
        gated,
        experts,
        shape.count("active"),
        beside,
    )


def _shared_width(shape: Shape, width: int) -> int:
    """Inner width of what every token uses beside the experts [1]."""
    if shape.family.keys["beside_experts"]:
        return shape.count("beside_experts")
    if shape.family.defaults["shared_ffn_alone"]:
        return shape.count("shared_ffn", default=0)
    own = shape.count("shared_ffn", default=width)
    return shape.count("shared", default=0) * own
