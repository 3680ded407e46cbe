"""Catalogues: systems, models, platforms, parts, columns; models and platforms to change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nearkv.hardware import catalog
from nearkv.hardware.catalog import Platform
from nearkv.hardware.platform import Part
from nearkv.sweeps.api.arguments import Value, path_of
from nearkv.sweeps.api.tables import table_of_rows
from nearkv.sweeps.evaluate import catalogue
from nearkv.sweeps.evaluate.models import model_rows
from nearkv.sweeps.study.own_systems import load_plugins

if TYPE_CHECKING:
    import pandas as pd


def systems(plugin: Iterable[str] = (), platform: Value = "") -> pd.DataFrame:
    """List the systems: name, origin, paper, platform, knobs and what they do.

    Args:
        plugin: files that register systems of your own.
        platform: a name or file; adds `runs`, and what the platform `lacks` for the others.

    Raises:
        InputError: no such platform, or a file that cannot be used.

    >>> "hilos" in set(systems()["system"])
    True
    """
    load_plugins([plugin] if isinstance(plugin, str) else plugin)
    return table_of_rows(catalogue.system_rows(path_of(platform, "platform")))


def models() -> pd.DataFrame:
    """List the models with their shapes.

    >>> models().set_index("model").loc["opt-66b", "layers"].item()
    64
    """
    return table_of_rows(model_rows())


def platforms() -> pd.DataFrame:
    """List the platforms: test beds, and the roles their parts fill.

    >>> "hilos-a100" in set(platforms()["name"])
    True
    """
    return table_of_rows(catalogue.platform_rows())


def parts() -> pd.DataFrame:
    """List the parts that platforms are made of: name, kind and what they are.

    >>> parts().set_index("name").loc["smartssd", "kind"]
    'csd'
    """
    return table_of_rows(catalogue.part_rows())


def columns() -> pd.DataFrame:
    """List the columns of results: name, unit and definition.

    >>> columns().set_index("column").loc["step_ms", "unit"]
    'ms'
    """
    return table_of_rows(catalogue.column_rows())


def load_model(name: Value) -> Part:
    """Read a model, to pass it as `model=`.

    Args:
        name: of the catalogue, or the path of a config.json or a .toml file.

    Raises:
        InputError: unknown name or unusable file.

    >>> load_model("opt-66b").numbers["layers"].value
    64.0
    """
    return catalog.load_llm(path_of(name, "name"))


def load_platform(name: Value) -> Platform:
    """Read a platform, to change its numbers and pass it as `platform=`.

    Args:
        name: of the catalogue, or the path of a .toml file.

    Raises:
        InputError: unknown name or unusable file.

    >>> machine = load_platform("hilos-a100").override("csd.count", 4)
    >>> machine.roles["csd"].numbers["count"].si
    4.0
    """
    return catalog.load_platform(path_of(name, "name"))
