"""Statements that no column of a table answers: each a small computation over the models, by name.

A module here holds the checks one paper needs; a check that serves several papers is in `shared`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

from costmodel.llm import LLM, llm_of
from costmodel.span import Real
from hardware.catalog import load_llm, load_platform
from hardware.errors import unknown
from hardware.machine import Machine

Check = Callable[..., Any]

_CHECKS: dict[str, Check] = {}


def check(function: Check) -> Check:
    """Register a check under its function's name.

    It takes the words of a claim's `system` field, split at commas, and gives the predicted value or
    values in the claim's unit.
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


def find_check(name: str) -> Check:
    """Look a check up.

    Raises:
        InputError: no check has that name.
    """
    known = checks()
    if name not in known:
        raise unknown("check", name, known)
    return known[name]


def model_on(platform: str, name: str) -> tuple[Machine, LLM]:
    """A platform and a model at its element widths."""
    hw = load_platform(platform).machine()
    shape: dict[str, Real] = {key: number.si for key, number in load_llm(name).numbers.items()}
    return hw, llm_of(shape, hw["precision"])
