"""`nearkv models new` and `check`: files of a user's own models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nearkv.sweeps.commands.browsing import models, write_new

NewModel = Annotated[str, typer.Argument(metavar="NAME", help="Name of the new model.")]
BaseModel = Annotated[
    str, typer.Option("--from", metavar="NAME", help="Model to start from.")
]
ModelFile = Annotated[
    str, typer.Argument(metavar="FILE", help="A model as FILE.toml, or a config.json.")
]


def new_model(name: NewModel, base: BaseModel = "llama2-7b") -> None:
    """Write NAME.toml, a model that works as it is, each number with its meaning.

    Example: nearkv models new my-model --from llama2-7b
    """
    from nearkv.hardware import own_models

    file = Path(f"{name.removesuffix('.toml')}.toml")
    write_new(file, own_models.new_model(file.stem, base))
    typer.echo(f"wrote {file}; use it as --model {file}")


def check_model(file: ModelFile) -> None:
    """Say all that is wrong with a model file; exit 1 where something is.

    Example: nearkv models check my-model.toml
    """
    from nearkv.hardware.own_models import model_problems

    sentences = model_problems(Path(file))
    for sentence in sentences or [f"{file}: nothing is wrong"]:
        typer.echo(sentence)
    if sentences:
        raise typer.Exit(1)


models.add(new_model, "new")
models.add(check_model, "check")
