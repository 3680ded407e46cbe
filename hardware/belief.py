"""Whether the numbers of a part can be believed together, and which of them are odd."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nearkv.hardware.errors import InputError, warn
from nearkv.hardware.part import Part
from nearkv.hardware.schema import DERATE, KINDS, RELATIONS, Key

Values = Mapping[str, Sequence[float]]
"""Key -> the values it takes, in SI."""


def check_relations(kind: str, values: Values, where: str, prefix: str = "") -> None:
    """Refuse numbers of one part that contradict each other.

    Args:
        kind: of the part.
        values: every value that each key takes; each combination must be possible.
        where: file or option, put in front of the sentence.
        prefix: put in front of the keys, as `dimm.`.

    Raises:
        InputError: naming both keys and values.
    """
    keys = KINDS[kind]
    for relation in RELATIONS[kind]:
        if relation.left not in values or relation.right not in values:
            continue
        left, right = max(values[relation.left]), min(values[relation.right])
        if not relation.holds(left, right):
            raise InputError(
                f"{where}: {prefix}{relation.left}, {keys[relation.left].text(left)}, "
                f"{relation.text} {prefix}{relation.right}, {keys[relation.right].text(right)}"
            )


def doubts(kind: str, values: Values, where: str, prefix: str = "") -> Iterator[str]:
    """A sentence for each value that is possible but outside the usual range."""
    for name, numbers in values.items():
        key = key_of(kind, name)
        for value in numbers:
            if doubt := key.doubt(value):
                yield f"{where}{prefix}{name} = {key.text(value)} {doubt}"
                break


def warn_of_doubts(kind: str, values: Values, where: str, prefix: str = "") -> None:
    """Warn of values that are possible but odd."""
    for sentence in doubts(kind, values, where, prefix):
        warn(sentence)


def check_part(part: Part, where: str, is_own: bool) -> None:
    """Refuse a part whose numbers contradict each other; of a user's own, warn of odd ones.

    Raises:
        InputError: two numbers that cannot stand in one part.
    """
    values = {name: (number,) for name, number in part.si.items()}
    check_relations(part.kind, values, where)
    if is_own:
        warn_of_doubts(part.kind, values, f"{where}: ")


def key_of(kind: str, name: str) -> Key:
    """The schema of a number of a part; every derate has the same."""
    return DERATE if kind == "derate" else KINDS[kind][name]
