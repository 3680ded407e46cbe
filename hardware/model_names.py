"""Names of models as people write them: a hub's, or one nearly right."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from nearkv.hardware.errors import InputError, unknown
from nearkv.hardware.files import read_toml
from nearkv.hardware.folders import names, path_of

SAME_FAMILY = 0.75
"""Least likeness of the letters of two models of one family."""


def model_like(name: str) -> str:
    """The catalogue's model for a name that is not in it.

    Raises:
        InputError: none; says where to save a config.json, or names models of that size.
    """
    if "/" in name:
        return _on_hub(name)
    raise _unknown_model(name)


def _on_hub(name: str) -> str:
    """The catalogue's model that a hub calls by this name.

    Raises:
        InputError: none; says where to save the model's config.json.
    """
    for known in names("model"):
        hub = str(read_toml(path_of("model", known), "model").get("hub", ""))
        if hub.lower() == name.lower():
            return known
    folder = name.rpartition("/")[2]
    place = f"{folder}/config.json"
    advice = f"save its config.json as {place} and give --model {place}"
    raise InputError(f"model {name!r} is not in the catalogue; {advice}")


def _unknown_model(name: str) -> InputError:
    """The error for a model nobody knows, with a hint that stays in its size and family."""
    sizes = _sizes(name)
    alike = [known for known in names("model") if _sizes(known) == sizes]
    if not alike and sizes:
        alike = [known for known in names("model") if set(sizes) <= set(_sizes(known))]
    kin = [known for known in alike if _is_of_family(known, name)]
    if kin:
        return unknown("model", name, kin)
    listed = ", ".join(names("model"))
    return InputError(f"unknown model {name!r}; valid are: {listed}")


def _is_of_family(known: str, name: str) -> bool:
    """Whether two names begin with nearly the same letters, which name the family."""
    first, second = _letters(known), _letters(name)
    return SequenceMatcher(None, first, second).ratio() >= SAME_FAMILY


def _letters(name: str) -> str:
    """Letters in front of the first digit of a model's name."""
    return re.sub(r"\d.*|[^a-z]", "", name.lower())


def _sizes(name: str) -> list[str]:
    """Numbers in a model's name: of its version and its size."""
    return re.findall(r"\d+(?:\.\d+)?", name)
