"""Values of options that are what they should be already pass without a conversion.

The parser converts values, defaults too, with a library that takes longer to import than the parser
itself. Text is what was typed and a default is of its own type, so most commands need none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, get_args, get_origin


class Conversion:
    """Passes on a value that is of its option's type, and has the parser convert any other.

    Args:
        kind: what the option takes, as `str`, `int` or `list[str]`.
        parsers: makes the parser's own conversion.
    """

    def __init__(self, kind: Any, parsers: Callable[[], Any]) -> None:
        self.kind = kind
        self.parsers = parsers

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value that a command gets."""
        if _is_of(value, self.kind):
            return value
        return self.parsers().coerce(value, param=param, ctx=ctx)


def pass_plain_values(parameters: Iterable[Any]) -> None:
    """Let values that need no conversion pass, where the parser converts by this library."""
    for parameter in parameters:
        parsers = getattr(type(parameter), "get_runtime_param", None)
        if parsers is None:  # a version of the parser that does without
            continue
        kind = parameter.type_descriptor.annotation
        conversion = Conversion(kind, partial(parsers, parameter))
        parameter.get_runtime_param = partial(_itself, conversion)


def _itself(conversion: Conversion) -> Conversion:
    return conversion


def _is_of(value: Any, kind: Any) -> bool:
    """Whether a value is of a type; text of other letters than ASCII may be no text at all."""
    if get_origin(kind) is list:
        (inner,) = get_args(kind)
        return isinstance(value, list) and all(_is_of(item, inner) for item in value)
    if isinstance(value, str):
        return kind is str and value.isascii()
    return value is None or isinstance(value, kind)
