"""The words of a command line, before the parser reads them."""

from __future__ import annotations

from typing import Any


def check_repeats(command: Any, words: list[str]) -> None:
    """Refuse an option that is given twice where only the last would count."""
    from nearkv.hardware.errors import InputError

    options = [word.partition("=")[0] for word in words if word.startswith("-")]
    for parameter in command.params:
        given = [word for word in options if word in parameter.opts]
        if len(given) > 1 and not getattr(parameter, "multiple", False):
            name = parameter.opts[0]
            raise InputError(
                f"{name}: is given twice; give it once, with commas between values"
            )


def zipped(words: list[str]) -> list[str]:
    """The same words, all axes that follow --zip as one."""
    joined: list[str] = []
    for word in words:
        is_axis = "=" in word and not word.startswith("-")
        if is_axis and len(joined) > 1 and joined[-2] == "--zip":
            joined[-1] += f" {word}"
        else:
            joined.append(word)
    return joined
