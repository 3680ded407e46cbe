"""Errors and warnings of nearkv: one sentence saying where, what, and what to do."""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

_Names = TypeVar("_Names", bound=Sequence[str])

LONGEST_ECHO = 80
"""Characters of a user's own text that an error repeats."""


class NearkvError(Exception):
    """Base of everything nearkv raises on purpose; its text is one sentence for the user."""


class InputError(NearkvError):
    """Malformed input: a name, a number, a unit or a file that cannot be used; correct it."""


class UnmetError(InputError):
    """Well-formed input that no design meets; relax what is asked."""


class NearkvWarning(UserWarning):
    """Something is answered, but not exactly what was asked; its text is one sentence."""


def warn(sentence: str) -> None:
    """Warn the caller; the command line prints the sentence to standard error."""
    import warnings

    warnings.warn(sentence, NearkvWarning, stacklevel=2)


RENAMED = {
    "output_tok": "output_tokens",
    "tbt_ms": "tpot_ms",
    "--target": "--slo",
    "--limit": "--slo",
    "--output": "--output-tokens",
    "--placement": "--homes",
    "gpu-only": "gpu",
    "tensor-parallel": "gpu",
    "vllm-multinode": "gpu",
    "file_read": "ssd.file_read",
    "host.file_read": "ssd.file_read",
}
"""Columns, options, systems and numbers of earlier versions, and their names now."""


LISTED = 8
"""Names that an error lists at most."""
_WORD = re.compile(r"[a-z]+|\d+(?:\.\d+)?")
_ALIKE, _ALMOST_EQUAL = 0.6, 0.8
"""Least similarity of two names, as `difflib` measures it: of one initial, and of two."""


def a_few(names: Iterable[str], like: str = "") -> str:
    """List names in an error: all, or the first ones of many.

    Args:
        names: in the order in which they are listed.
        like: what the user wrote; of many names those most like it are listed, if it is given.

    >>> a_few("abc"), a_few("abcdefghij")
    ('a, b, c', 'a, b, c, d, e, f, g, h, ...')
    """
    listed = list(names)
    if len(listed) > LISTED:
        nearest_first = (
            sorted(listed, key=lambda n: -_likeness(like[:LONGEST_ECHO], n))
            if like
            else listed
        )
        listed = [*nearest_first[:LISTED], "..."]
    return ", ".join(listed) or "none"


def unknown(
    what: str,
    name: str,
    known: Iterable[str],
    where: str = "",
    near: Iterable[str] | None = None,
) -> InputError:
    """Build the error for an unknown name, with the nearest valid one.

    Args:
        what: what was asked for, such as "model".
        name: what the user wrote.
        known: every valid name.
        where: a file or option, put in front of the sentence.
        near: the valid names that may be meant; all of them unless given.
    """
    names = sorted(set(known))
    written, name = name[:LONGEST_ECHO], echo(name)
    meant = nearest(written, names if near is None else near)
    prefix = f"{where}: " if where else ""
    if name in RENAMED:
        hint = f"it is {RENAMED[name]!r} now"
    elif meant:
        hint = f"did you mean {meant!r}?"
    else:
        order = ", the most alike first" if len(names) > LISTED else ""
        hint = f"valid are{order}: {a_few(names, like=written)}"
    return InputError(f"{prefix}unknown {what} {name!r}; {hint}")


def check_known(
    what: str, names: Iterable[str], known: Collection[str], where: str = ""
) -> None:
    """Refuse a name that is not among the valid ones.

    Args:
        what, known, where: as of `unknown`.
        names: what the user wrote.

    Raises:
        InputError: the first of them that is unknown, with the nearest valid one.
    """
    for name in names:
        if name not in known:
            raise unknown(what, name, known, where)


def echo(text: str) -> str:
    """A user's own text as an error repeats it, cut where it is long."""
    return text if len(text) <= LONGEST_ECHO else f"{text[:LONGEST_ECHO]}..."


def nearest(name: str, known: Iterable[str]) -> str:
    """The name that another one is most likely meant to be; empty where none is alike.

    A name that holds all its words comes first: `b200` is in `b200-sxm`, not in `gb200`, and
    `llama3` in `llama3.1`. Else the most similar one: typing errors seldom change an initial.
    """
    names = sorted(set(known))
    words = words_of(name)
    is_telling = any(len(word) > 1 for word in words)
    holding = [other for other in names if holds(words, words_of(other))]
    if holding and is_telling:
        return min(holding, key=lambda n: (not n.lower().startswith(name.lower()), len(n)))
    best = max(names, key=lambda n: _likeness(name, n), default="")
    same_initial = best[:1].lower() == name[:1].lower()
    enough = _ALIKE if same_initial else _ALMOST_EQUAL
    return best if _likeness(name, best) >= enough else ""


def words_of(name: str) -> list[str]:
    """Runs of letters, and numbers, of a name in small letters: `h200-sxm` has h, 200, sxm."""
    return _WORD.findall(name.lower())


def holds(words: Iterable[str], others: Sequence[str]) -> bool:
    """True if each word is among others; version 3 stands for 3.1, too."""
    return all(
        any(other == word or other.startswith(f"{word}.") for other in others)
        for word in words
    )


def _likeness(name: str, other: str) -> float:
    """Similarity of two names, from 0 to 1; letters alone that differ in case differ a little."""
    from difflib import SequenceMatcher

    ratio = SequenceMatcher(None, name.lower(), other.lower()).ratio()
    return ratio - 1e-3 * (1 - SequenceMatcher(None, name, other).ratio())


FORMULA = ("=", "+", "-", "@")
"""Characters at which a spreadsheet takes a cell for a formula."""


def once(names: _Names, where: str) -> _Names:
    """Return names unchanged; refuse one that comes twice or that no table may show.

    Raises:
        InputError: one is there twice, or a spreadsheet would compute it.
    """
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{where}: names {name!r} twice; name it once")
        *_, folder, file = ("", *name.split("/"))
        if any(text.startswith(FORMULA) for text in (name, folder, file)):
            problem = "begins like a formula, which a spreadsheet would compute; rename it"
            raise InputError(f"{where} {name!r}: {problem}")
    return names
