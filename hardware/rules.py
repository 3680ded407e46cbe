"""Which layer is of which kind: the rules of families.toml, each painted over those before it.

A rule has one of these keys, and paints `kind` on the layers it names, `other` on the rest:
    all      every layer
    list     the key's list has an entry for each layer; `kinds` says which is which
    letters  a word whose letters repeat over the layers, by `kinds`
    every    one layer in so many (`offset` from 0; the last of each period without it)
    first, last, from, beyond   so many at the start or end, or layers from a number on or beyond it
    layers   a list of numbers of layers, counted from `base`
    refuse   no layer: a config with this key is not modelled
`needs` names sizes without which a rule does not apply, `skips` a type of value that it leaves to
another rule. `prefix` goes before the kind that a layer has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nearkv.hardware.config import Config
from nearkv.hardware.errors import InputError, warn
from nearkv.hardware.families import KINDS, Rule, Shape

Kinds = list[str]
Named = Callable[[Rule, Shape, int], "list[bool] | Kinds | None"]
"""The layers that a rule names, or the kind of every layer; None where it does not apply."""


def painted(rules: Iterable[Rule], shape: Shape, layers: int) -> Kinds:
    """The kind of every layer.

    Args:
        rules: those that apply are painted one over the other.
        shape: sizes of the model.
        layers: how many [1].

    Raises:
        InputError: a key holds something that no rule models.
    """
    kinds = [""] * layers
    before, listed = "", False
    for rule in rules:
        form = next(key for key in rule if key in _RULES)
        named = _RULES[form](rule, shape, layers)
        needs = [shape.has(size) for size in rule.get("needs", "").split()]
        if named is None or not all(needs):
            continue
        old = kinds
        kinds = [_over(rule, kind, new) for kind, new in zip(old, named, strict=True)]
        key = _stated(rule[form], shape)
        listed |= form == "list"
        if key and before and listed and kinds != old and "prefix" not in rule:
            said = f"{key} and {before} say otherwise of some layers; {key} is followed"
            warn(f"{shape.config.where}: {said}")
        before = key or before
    return kinds


def _stated(keys: str | list[str], shape: Shape) -> str:
    """The first of a rule's keys that the config has; empty where it has none."""
    names = [keys] if isinstance(keys, str) else keys
    places = [(name, *shape.place(name)) for name in names]
    return next((name for name, table, key in places if table.value(key) is not None), "")


def _over(rule: Rule, old: str, new: object) -> str:
    """The kind of a layer after a rule."""
    if isinstance(new, str):
        return new
    if new and "prefix" in rule:
        return str(rule["prefix"]) + old
    return str(rule.get("kind" if new else "other", old))


def _all(rule: Rule, _: Shape, layers: int) -> Kinds:
    return [rule["all"]] * layers


def _refuse(rule: Rule, shape: Shape, _: int) -> None:
    table, name = shape.place(rule["refuse"])
    if table.value(name):
        raise table.refuse(name, rule["why"])


def _list(rule: Rule, shape: Shape, layers: int) -> Kinds | None:
    table, name = shape.place(rule["list"])
    value = table.value(name)
    if type(value).__name__ == rule.get("skips"):
        return None
    if not value and rule.get("required"):
        raise InputError(f"{table.where}: lacks {name!r}, which names every layer")
    if rule.get("longer") and isinstance(value, list) and len(value) > layers:
        # layers of multi-token prediction stand behind them
        return by_entry(value[:layers], rule["kinds"], table, name)
    return (
        by_entry(table.items(name, layers), rule.get("kinds", KINDS), table, name) or None
    )


def by_entry(
    entries: Iterable[Any], kinds: Mapping[str, str], table: Config, name: str
) -> Kinds:
    """Kinds by the entries of a list.

    Raises:
        InputError: an entry names a layer that is not modelled.
    """
    found = []
    for entry in entries:
        word = str(int(entry)) if isinstance(entry, bool) else str(entry)
        if word not in kinds:
            problem = f"{name} names {entry!r}, which is not modelled"
            raise InputError(f"{table.where}: {problem}")
        found.append(kinds[word])
    return found


def _letters(rule: Rule, shape: Shape, layers: int) -> Kinds | None:
    table, name = shape.place(rule["letters"])
    word, kinds = table.value(name), rule["kinds"]
    if not isinstance(word, str):
        return None
    if not word or set(word) - set(kinds):
        raise table.refuse(name, f"has letters other than {' and '.join(kinds)}")
    return [kinds[word[layer % len(word)]] for layer in range(layers)]


def _every(rule: Rule, shape: Shape, layers: int) -> list[bool] | None:
    config, names = shape.config, rule["every"]
    if type(config.value(*names)).__name__ == rule.get("skips"):
        return None
    period = config.period(*names, default=rule["default"])
    offset = rule.get("offset", period - 1)
    if "offset_key" in rule:
        offset = config.count(rule["offset_key"], default=offset)
    return [layer % period == offset for layer in range(layers)]


def _first(rule: Rule, shape: Shape, layers: int) -> list[bool]:
    count = shape.config.count(rule["first"], default=0)
    return [layer < count for layer in range(layers)]


def _last(rule: Rule, shape: Shape, layers: int) -> list[bool]:
    count = shape.config.count(rule["last"], default=0)
    return [layer >= layers - count for layer in range(layers)]


def _from(rule: Rule, shape: Shape, layers: int) -> list[bool]:
    start = shape.config.count(rule["from"], default=layers)
    return [layer >= start for layer in range(layers)]


def _beyond(rule: Rule, shape: Shape, layers: int) -> list[bool]:
    value = shape.config.value(rule["beyond"])
    end = value if isinstance(value, int) and value >= 0 else layers
    return [layer > end for layer in range(layers)]


def _layers(rule: Rule, shape: Shape, layers: int) -> list[bool] | None:
    table, name = shape.place(rule["layers"])
    numbers = table.listed(name, int, "numbers of layers")
    if not numbers and "other" in rule:
        return None
    base = rule.get("base", 0)
    return [layer + base in numbers for layer in range(layers)]


_RULES: dict[str, Named] = {
    "all": _all,
    "list": _list,
    "letters": _letters,
    "every": _every,
    "first": _first,
    "last": _last,
    "from": _from,
    "beyond": _beyond,
    "layers": _layers,
    "refuse": _refuse,
}


def blocks(shape: Shape) -> list[tuple[str, str]] | None:
    """Mixer and MLP of every layer of a model whose config lists them as blocks.

    A mixer and the MLP behind it are a layer, as in other models; either may stand alone. None
    where the family has layers of both.

    Raises:
        InputError: the list is missing, has an unknown entry, or another length than the config
            says.
    """
    table = shape.family.blocks
    if not table:
        return None
    config = shape.config
    entries = config.value(*table["keys"])
    if not isinstance(entries, str | list) or not entries:
        keys = " or ".join(table["keys"])
        raise InputError(f"{config.where}: {keys} must name every block")
    name = next(key for key in table["keys"] if config.value(key) is not None)
    if config.count("num_hidden_layers", default=len(entries)) != len(entries):
        raise config.refuse("num_hidden_layers", f"is not the {len(entries)} of {name}")
    kinds = by_entry(entries, {**table["mixers"], **table["mlps"]}, config, name)
    mixers = set(table["mixers"].values())
    layers: list[tuple[str, str]] = []
    for kind in kinds:
        if kind in mixers:
            layers.append((kind, "none"))
        elif layers and layers[-1][1] == "none":
            layers[-1] = (layers[-1][0], kind)
        else:
            layers.append(("none", kind))
    return layers
