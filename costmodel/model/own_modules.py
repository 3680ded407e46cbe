"""The modules of nearkv that register systems, and their text."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from functools import cache

_PACKAGE = "nearkv.costmodel.systems"
"""Its modules register systems when first imported, which is when a name is looked up."""


@cache
def own_modules() -> list[str]:
    """Modules of nearkv that register systems."""
    package = importlib.import_module(_PACKAGE)
    return [
        f"{_PACKAGE}.{module.name}" for module in pkgutil.iter_modules(package.__path__)
    ]


@cache
def modules_naming(name: str) -> list[str]:
    """Modules of nearkv whose text quotes the name of a system, one called like it first.

    One of them registers the system, if it is nearkv's own; importing all modules takes longer than
    reading their text.
    """
    alike = f"{_PACKAGE}.{name.replace('-', '_')}"
    naming = []
    for module in own_modules():
        if module == alike:
            return [module]
        if f'"{name}"' in text_of(module):
            naming.append(module)
    return naming


def text_of(module: str) -> str:
    """The Python of a module; empty where it has none."""
    spec = importlib.util.find_spec(module)
    read = getattr(spec and spec.loader, "get_source", None)
    text: str | None = read(module) if read else None
    return text or ""
