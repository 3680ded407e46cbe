"""Weights of a vision tower, which a checkpoint holds and generating text does not read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nearkv.hardware.config import Config
from nearkv.hardware.errors import InputError, warn


def vision_parameters(table: Mapping[str, Any], where: str, hidden: int) -> float:
    """Parameters of the blocks, patches and projector that `vision_config` describes [1].

    A block has four matrices of attention and two of its MLP; a patch is projected once; the
    projector joins patches and takes them to the width of the text (biases and norms left out).

    Args:
        table: the config.
        where: the file, put in front of warnings.
        hidden: width of the text model [1].
    """
    if not isinstance(table.get("vision_config"), dict):
        return 0.0
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
        return 0.0
    blocks = depth * width * (4 * width + 2 * inner)
    hidden_of_projector = joined * joined if joined > width else 0
    return float(
        blocks + colours * frames * patch**2 * width + hidden_of_projector + joined * hidden
    )
