"""What nearkv raises and warns of: one sentence saying where, what, and what to do."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

Names = TypeVar("Names", bound=Sequence[str])

LONGEST_ECHO = 80
"""Characters of a user's own text that an error repeats."""


class NearkvError(Exception):
    """Base of everything nearkv raises on purpose; its text is one sentence for the user."""


class InputError(NearkvError):
    """Malformed input: a name, a number, a unit or a file that cannot be used; correct it."""


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
}
"""Columns and options of earlier versions, and their names now."""


def unknown(what: str, name: str, known: Iterable[str], where: str = "") -> InputError:
    """Build the error for an unknown name, with the nearest valid one.

    Args:
        what: what was asked for, such as "model".
        name: what the user wrote.
        known: every valid name.
        where: a file or option, put in front of the sentence.
    """
    from difflib import get_close_matches

    names = sorted(set(known))
    near = get_close_matches(
        name[:LONGEST_ECHO].lower(), [n.lower() for n in names], n=1, cutoff=0.5
    )
    hint = next(
        (f"did you mean {n!r}?" for n in names if near and n.lower() == near[0]), ""
    )
    if name in RENAMED:
        hint = f"it is {RENAMED[name]!r} now"
    listed = ", ".join(names) if len(names) <= 24 else f"{', '.join(names[:24])}, ..."
    prefix = f"{where}: " if where else ""
    name = name if len(name) <= LONGEST_ECHO else f"{name[:LONGEST_ECHO]}..."
    return InputError(
        f"{prefix}unknown {what} {name!r}; {hint or 'valid are: ' + (listed or 'none')}"
    )


FORMULA = ("=", "+", "-", "@")
"""Characters at which a spreadsheet takes a cell for a formula."""


def once(names: Names, where: str) -> Names:
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
