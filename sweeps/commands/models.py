"""The commands `nearkv models`: the models with their numbers, and models of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nearkv.sweeps.commands import options
from nearkv.sweeps.commands.options import argument, option
from nearkv.sweeps.commands.printing import (
    counted_by,
    print_table,
    report_problems,
    write_toml,
)


@options.with_options(options.View)
def models(line: typer.Context) -> None:
    """List the models with their shapes."""
    from nearkv.sweeps.api import catalogues

    view = options.view_of(line)
    table = catalogues.models()
    below = [f"{len(table)} models; `nearkv models show NAME` prints every number of one."]
    print_table(table, view, below=below)


@options.with_options(options.View)
def show(
    line: typer.Context,
    name: Annotated[str, argument("MODEL", "A model, or path/config.json.")],
) -> None:
    """Print parameters, weights, KV cache and layers of a model, and every number's source.

    Example: nearkv models show mixtral-8x7b
    """
    from nearkv.sweeps.evaluate.models import model_numbers

    rows = model_numbers(name)
    print_table(rows, options.view_of(line), below=[counted_by(rows, "kind", "number")])


def new(
    name: Annotated[str, argument("NAME", "Name of the new model.")],
    base: Annotated[str, option("NAME", "Model to start from.", "--from")] = "llama2-7b",
) -> None:
    """Write NAME.toml, a model that works as it is, each number with its meaning.

    Example: nearkv models new my-model --from llama2-7b
    """
    from nearkv.hardware import own

    write_toml(name, lambda stem: own.new_model(stem, base), "--model")


def check(
    file: Annotated[str, argument("FILE", "A model as FILE.toml, or a config.json.")],
) -> None:
    """Say all that is wrong with a model file; exit 1 where something is.

    Example: nearkv models check my-model.toml
    """
    from nearkv.hardware.own import model_problems

    report_problems(file, model_problems(Path(file)))
