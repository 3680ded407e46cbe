"""Lines of a user's file: of a key, of what cannot be read, of the key a sentence is about.

tomllib tells no lines of keys, so it is asked: a key stands on the line before which the text
lacks it and after whose statement the text has it.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

UNREADABLE = (ValueError, RecursionError)
"""What reading raises of a file that is no TOML or no UTF-8, or holds a number of 5,000 digits."""
LONGEST = 1 << 16
"""Characters of a text in which lines of keys are looked for."""
MOST_PLACES = 50
"""Lines that may name a key before it is left without its own."""
MOST_LINES = 200
"""Lines that a statement may take."""
_WORD = re.compile(r"([\w.-]+)(?:: | = |, | )")
_UNKNOWN = re.compile(r"unknown (?:key|field) (\S+);")
_LINE = re.compile(r"at line (\d+)")


def line_of_key(text: str, keys: Sequence[str]) -> int | None:
    """The line of TOML on which a key is stated, counted from 1; None where that is not clear.

    Args:
        text: of the file.
        keys: names of the tables around the key, and its own.
    """
    lines = text.split("\n")
    places = [place for place, line in enumerate(lines) if keys[-1] in line]
    if len(text) > LONGEST or len(places) > MOST_PLACES:
        return None
    for place in places:
        if _is_stated_at(place, lines, keys):
            return place + 1
    return None


def _is_stated_at(place: int, lines: Sequence[str], keys: Sequence[str]) -> bool:
    """Whether the statement that begins on a line is the first one with a key."""
    before = _table(lines[:place])
    if before is None or _has(before, keys):
        return False
    for stop in range(place + 1, place + 1 + MOST_LINES):
        statement = _table(lines[:stop])
        if statement is not None:
            return _has(statement, keys)
    return False


def _table(lines: Sequence[str]) -> dict[str, Any] | None:
    """What the first lines of a file state; None where they end inside a statement."""
    try:
        return tomllib.loads("\n".join([*lines, ""]))
    except UNREADABLE:
        return None


def _has(table: object, keys: Sequence[str]) -> bool:
    """Whether nested tables have a key."""
    for key in keys:
        if not isinstance(table, dict) or key not in table:
            return False
        table = table[key]
    return True


def line_of_json_key(text: str, key: str) -> int | None:
    """The line of a JSON file on which a key stands; None where it stands twice or nowhere."""
    places = [match.start() for match in re.finditer(rf'"{re.escape(key)}"\s*:', text)]
    if len(places) != 1:
        return None
    return text.count("\n", 0, places[0]) + 1


def line_of_failure(text: str, problem: Exception) -> int:
    """The line of TOML at which reading it fails.

    Args:
        text: of the file.
        problem: what reading all of it raises.
    """
    sentence = str(problem)
    if stated := _LINE.search(sentence):
        return int(stated[1])
    lines = text.split("\n")
    if "end of document" in sentence:
        return len(text.rstrip().split("\n"))
    return (
        bisect_left(range(1, len(lines)), 1, key=lambda n: _fails(lines[:n], problem)) + 1
    )


def _fails(lines: Sequence[str], problem: Exception) -> int:
    """1 where the first lines of a file fail in the same way as all of it, else 0."""
    try:
        tomllib.loads("\n".join(lines))
    except UNREADABLE as failure:
        return int(str(failure) == str(problem))
    return 0


def keys_named(problem: str, table: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The key that a sentence is about, behind the tables around it.

    `gpu: count: must be ...` is about `gpu.count`, `gpu: needs a count` about `gpu`.

    Args:
        problem: the sentence, without the file in front.
        table: what the file states.

    Returns:
        No keys where it is about the whole file; None where that is not clear.
    """
    keys: list[str] = []
    place: object = table
    while isinstance(place, dict) and (word := _WORD.match(problem)) and word[1] in place:
        keys.append(word[1])
        place = place[word[1]]
        problem = problem[word.end() :]
    if unknown := _UNKNOWN.match(problem):
        name = unknown[1].strip("'")
        if not isinstance(place, dict) or name not in place:
            return None
        keys.append(name)
    return tuple(keys)
