"""Options that many commands take together: what is asked, and how a table is shown."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_type_hints

from nearkv.sweeps.commands.bands import Band, Samples
from nearkv.sweeps.commands.options import (
    Batch,
    Bed,
    Caption,
    Context,
    Format,
    Knobs,
    Label,
    Llm,
    Method,
    Only,
    Out,
    OutputTokens,
    Parts,
    Pivot,
    Plugins,
    Seed,
    Set,
    Traces,
    Zip,
)
from nearkv.sweeps.commands.views import View

if TYPE_CHECKING:
    from nearkv.sweeps.study.study import Study

TABLE_FILES = (".csv", ".jsonl", ".parquet")


def axes(
    model: Llm = "",
    batch: Batch = "16",
    context: Context = "32k",
    output_tokens: OutputTokens = "64",
    platform: Bed = "",
    sets: Set = [],
    knobs: Knobs = [],
    zipped: Zip = [],
    trace: Traces = "",
    method: Method = "fluid",
    seed: Seed = 0,
    band: Band = None,
    samples: Samples = 1024,
    parts: Parts = [],
    plugins: Plugins = [],
) -> Study:
    """Collect the axes of a study that has no systems yet.

    Raises:
        InputError: an option that is not NAME=VALUE, that is given twice, or that is empty.
    """
    from nearkv.sweeps.study.plugin_files import load_plugins
    from nearkv.sweeps.study.study import Study, comma_list, pairs

    traces = _traces(trace, seed, samples, band)
    load_plugins(plugins)
    return Study(
        systems=(),
        models=comma_list(model),
        batch=batch,
        context=context,
        output_tokens=_checked_tokens(output_tokens),
        platforms=_names(platform, "--platform"),
        sets=pairs(sets, "--set"),
        knobs=pairs(knobs, "--knob"),
        zipped=pairs(" ".join(zipped).split(), "--zip"),
        traces=traces,
        method=method,
        seed=seed,
        band=band or 0.0,
        samples=samples,
        plugins=tuple(plugins),
        parts=pairs(parts, "--part"),
    )


def _traces(trace: str, seed: int, samples: int, band: float | None) -> tuple[str, ...]:
    """Traces by name; refuses options of draws where nothing is drawn."""
    from nearkv.sweeps.study.bands import check_draws

    traces = _names(trace, "--trace")
    check_draws(seed, samples, band, traces)
    return traces


def _checked_tokens(output: str) -> str:
    """The tokens that are generated, as written.

    Raises:
        InputError: the name of a file.
    """
    from nearkv.hardware.errors import InputError

    if output.endswith(TABLE_FILES):
        place = f"--output-tokens {output!r}"
        raise InputError(f"{place}: is a number of tokens; -o {output} names the file")
    return output


def _names(text: str, option: str) -> tuple[str, ...]:
    """The names in a list; none where the option is left out.

    Raises:
        InputError: a list without a name.
    """
    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.study.study import comma_list

    names = comma_list(text)
    if text and not names:
        raise InputError(f"{option} {text!r}: is empty; give a name, or leave it out")
    return names


def view(
    columns: Only = "",
    form: Format = "",
    file: Out = "",
    pivot: Pivot = "",
    caption: Caption = "",
    label: Label = "",
) -> View:
    """Collect how a table is shown; a file's name is checked before any work.

    Raises:
        InputError: an unknown format, or a caption or a label that no format prints.
    """
    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.tables.formats import check_format

    if form:
        check_format(form)
    is_latex = form == "latex" or file.endswith(".tex")
    if (caption or label) and not is_latex:
        advice = "add --format latex, or -o FILE.tex"
        raise InputError(f"--caption and --label are of LaTeX tables; {advice}")
    return View(form, columns, file, pivot, caption, label)


BUNDLES: dict[str, Callable[..., Any]] = {"study": axes, "view": view}
"""Parameter of a command -> what makes it of options."""


def bound(command: Callable[..., None]) -> Callable[..., None]:
    """A command as the parser calls it, its study and its view made of their options."""
    own = inspect.signature(command).parameters
    bundled = {name: BUNDLES[name] for name in own if name in BUNDLES}
    if not bundled:
        return command
    options = {name: inspect.signature(make).parameters for name, make in bundled.items()}

    @functools.wraps(command)
    def called(**values: Any) -> None:
        made = {}
        for name, make in bundled.items():
            made[name] = make(**{option: values.pop(option) for option in options[name]})
        command(**made, **values)

    hints = _hints_of(command)
    parameters: list[inspect.Parameter] = []
    parameters += [parameter for name, parameter in own.items() if name not in bundled]
    for name, make in bundled.items():
        hints |= _hints_of(make)
        parameters += options[name].values()
    keywords = []
    for parameter in parameters:
        hint = hints[parameter.name]
        keyword = parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=hint)
        keywords.append(keyword)
    called.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    called.__annotations__ = {keyword.name: keyword.annotation for keyword in keywords}
    return called


def _hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    names = {**function.__globals__, "Study": Any, "View": Any}
    return get_type_hints(function, names, include_extras=True)
