"""Groups of commands that tell every failure in one sentence, without a traceback."""

from __future__ import annotations

import importlib
import inspect
import io
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperGroup

from nearkv.sweeps.commands.conversion import pass_plain_values
from nearkv.sweeps.commands.words import check_repeats, zipped
from nearkv.sweeps.commands.writing import tell

USAGE: Any = typer.BadParameter.__base__
"""What the parser raises for words it cannot use; typer gives it no name of its own."""
SUCCESS, BAD_INPUT, STOPPED = 0, 2, 130
"""Exit codes; 1 is for a check that failed."""
LONGEST = 1_000
"""Characters of the longest sentence that is printed."""


class Commands(TyperGroup):
    """A group of commands that turns every failure a user can cause into one sentence."""

    @property
    def registry(self) -> Registry:
        """Where the commands are registered."""
        registry: Registry = self.context_settings["obj"]
        return registry

    def list_commands(self, _: Any) -> list[str]:
        """Names of the commands, in the order in which they were registered."""
        return list(self.registry.entries)

    def get_command(self, _: Any, name: str) -> Any:
        """Build a command when it is asked for: building all would take longer than any help."""
        return self.registry.built(name)

    def format_commands(self, _: Any, formatter: Any) -> None:
        """Write a line per command, without building any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.registry.summaries()))

    def main(self, *arguments: Any, **settings: Any) -> Any:
        """Run the command line; a standard output that takes no more is a failure like others."""
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(
                errors="replace"
            )  # a terminal that lacks a letter shows another
        try:
            try:
                return super().main(*arguments, **settings)
            finally:
                if sys.stdout:
                    sys.stdout.flush()
        except BrokenPipeError:
            _silence()
            sys.exit(SUCCESS)
        except OSError as problem:
            _silence()
            place = str(problem.filename) if problem.filename else "standard output"
            complain(f"{place} cannot be used ({problem.strerror}); choose another")
            sys.exit(BAD_INPUT)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options of the group itself; a failure is one sentence, as in `invoke`."""
        pass_plain_values(self.get_params(ctx))
        try:
            rest: list[str] = super().parse_args(ctx, args)
        except USAGE as problem:
            if type(problem).__name__ == "NoArgsIsHelpError":
                raise
            advice = f"options follow the command; see `{ctx.command_path} --help`"
            complain(f"{_sentence(problem)}; {advice}")
            raise typer.Exit(BAD_INPUT) from None
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run a command; bad input exits with 2, Ctrl-C with 130; warnings go to standard error."""
        from nearkv.hardware.errors import NearkvError, NearkvWarning

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", NearkvWarning)
                warnings.showwarning = _print_once()
                return super().invoke(ctx)
        except USAGE as problem:
            if (
                type(problem).__name__ == "NoArgsIsHelpError"
            ):  # a group alone shows its help
                raise
            place = problem.ctx.command_path if problem.ctx else "nearkv"
            complain(f"{_sentence(problem)}; see `{place} --help`")
            raise typer.Exit(BAD_INPUT) from None
        except NearkvError as problem:
            complain(str(problem))
            raise typer.Exit(BAD_INPUT) from None
        except MemoryError:
            complain(
                "not enough memory; ask for fewer design points, or write them with sweep -o"
            )
            raise typer.Exit(BAD_INPUT) from None
        except KeyboardInterrupt as stopped:
            complain(stopped.args[0] if stopped.args else "stopped")
            raise typer.Exit(STOPPED) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that words ask for; no word of theirs may be empty.

        Raises:
            InputError: one is, or there is no such command.
        """
        from nearkv.hardware.errors import InputError, unknown

        for before, word in zip(["", *args], args, strict=False):
            option, value = before, word
            if word.startswith("--") and "=" in word:
                option, _, value = word.partition("=")
            if not value.strip(" ,"):
                place = f"{option} {value!r}".strip()
                raise InputError(f"{place}: is empty; give it a value, or leave it out")
        if args[0] not in self.registry.entries and not args[0].startswith("-"):
            place = ctx.command_path.partition(" ")[2]
            raise unknown("command", args[0], self.registry.entries, place)
        name, command, rest = super().resolve_command(ctx, zipped(args))
        if command:
            pass_plain_values(command.get_params(ctx))
        check_repeats(command, rest)
        return name, command, rest


class Registry(typer.Typer):
    """A group of commands and groups, by name, in the order of their registration.

    Args:
        about: help text.
        alone: its name without a command does something.
    """

    def __init__(self, about: str, *, alone: bool = False) -> None:
        self.about = about
        self.entries: dict[str, Entry | Announced] = {}
        super().__init__(
            cls=Commands,
            help=about,
            context_settings={"help_option_names": ["-h", "--help"], "obj": self},
            invoke_without_command=alone,
            no_args_is_help=not alone,
            rich_markup_mode=None,  # plain help text starts at once and pipes
            pretty_exceptions_enable=False,
        )

    def announce(self, name: str, home: str, summary: str) -> None:
        """Register a command or a group by name; its module is imported when it is asked for.

        Args:
            name: as users write it; that of the function, with hyphens.
            home: the module of `sweeps.commands` that holds it.
            summary: the first line of its help.
        """
        self.entries[name] = Announced(name.replace("-", "_"), home, summary)

    def add(self, command: Entry, name: str = "") -> None:
        """Register a command under its function's name or another, or a group of commands."""
        self.entries[name or str(getattr(command, "__name__", ""))] = command

    def entry(self, name: str) -> Entry | None:
        """A command's function or a group; none where the name is unknown."""
        entry = self.entries.get(name)
        return entry.imported() if isinstance(entry, Announced) else entry

    def built(self, name: str) -> Any:
        """A command or a group as the parser knows it; none where the name is unknown."""
        entry = self.entry(name)
        if entry is None:
            return None
        if isinstance(entry, Registry):
            command: Any = typer.main.get_group(entry)
            command.name = name
            return command
        from nearkv.sweeps.commands.bundles import bound

        single = typer.Typer(rich_markup_mode=None, add_completion=False)
        single.command(name)(bound(entry))
        command = typer.main.get_command(single)
        _name_arguments(command)
        return command

    def summaries(self) -> Iterator[tuple[str, str]]:
        """Name and first line of help of every command."""
        for name, entry in self.entries.items():
            yield name, entry.summary if isinstance(entry, Announced) else _summary(entry)


Entry = Callable[..., Any] | Registry


class Announced:
    """A command or a group whose module is not imported yet."""

    def __init__(self, name: str, home: str, summary: str) -> None:
        self.name = name
        self.home = home
        self.summary = summary

    def imported(self) -> Entry:
        """The command's function, or the group."""
        module = importlib.import_module(f"nearkv.sweeps.commands.{self.home}")
        entry: Entry = getattr(module, self.name)
        return entry


def _summary(entry: Entry) -> str:
    """The first line of the help of a command or a group."""
    text = entry.about if isinstance(entry, Registry) else inspect.getdoc(entry)
    return (text or "").split("\n")[0]


def _name_arguments(command: Any) -> None:
    """Let help name arguments as manuals do: SYSTEM, or [STUDY.toml] where it may be left out."""
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            name = parameter.metavar
            usage = [name if parameter.required else f"[{name}]"]
            parameter.get_usage_pieces = lambda ctx, usage=usage: usage
            parameter.display_type_rich = lambda ctx: ""


def print_version(requested: bool) -> None:
    """Print the version and stop."""
    if requested:
        from importlib.metadata import version

        typer.echo(f"nearkv {version('nearkv')}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version", callback=print_version, is_eager=True, help="Print the version."
    ),
]


def complain(sentence: str) -> None:
    """Say something on standard error; the exit code tells whoever does not listen."""
    printable = "".join(letter if letter.isprintable() else " " for letter in sentence)
    shown = printable if len(printable) <= LONGEST else f"{printable[:LONGEST]}..."
    tell(f"nearkv: {shown}")


def _sentence(problem: Any) -> str:
    """What the parser says of a value, without its own names of types."""
    sentence: str = problem.format_message().rstrip(".")
    kind = re.search(r"valid (integer|number)", sentence)
    if not kind or not problem.param:
        return sentence
    needed = "whole number" if kind[1] == "integer" else "number"
    return f"{problem.param.opts[0]} takes a {needed}"


def _print_once() -> Callable[..., None]:
    """What prints a warning, unless it has printed the same sentence already."""
    printed: set[str] = set()

    def print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
        sentence = str(message)
        if sentence not in printed:
            complain(f"warning: {sentence}")
        printed.add(sentence)

    return print_warning


def _silence() -> None:
    """Point standard output nowhere, so that the interpreter's last flush does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
