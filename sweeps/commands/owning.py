"""`nearkv models new` and `check`: files of a user's own models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nearkv.sweeps.commands.browsing import models, say_problems, write_own

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
    from nearkv.hardware import own

    write_own(name, lambda stem: own.new_model(stem, base), "--model")


def check_model(file: ModelFile) -> None:
    """Say all that is wrong with a model file; exit 1 where something is.

    Example: nearkv models check my-model.toml
    """
    from nearkv.hardware.own import model_problems

    say_problems(file, model_problems(Path(file)))


models.add(new_model, "new")
models.add(check_model, "check")
