"""Statements that no column of a table answers: each a small computation over the models, by name.

A module here holds the checks of one subject; what they ask is in `validation.questions`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, TypeVar

Check = Callable[..., Any]
_Check = TypeVar("_Check", bound=Check)

_CHECKS: dict[str, Check] = {}


def check(function: _Check) -> _Check:
    """Register a check under its function's name.

    It takes the words of a claim's `system` field, split at commas, and returns the
    predicted value or values in the claim's unit; of what holds or does not, true or false.
    """
    if function.__name__ in _CHECKS:
        raise ValueError(f"check {function.__name__!r} is registered twice")
    _CHECKS[function.__name__] = function
    return function


def checks() -> dict[str, Check]:
    """All checks by name."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return _CHECKS
