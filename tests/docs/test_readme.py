"""README shows what the commands print."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from support.warm_command import run

README = (Path(__file__).parents[2] / "README.md").read_text()
PYTHON = re.findall(r"```python\n(.+?)```", README, re.S)
SHOWN = re.findall(r"<!-- nearkv (.+?) -->\n\n(.+?)(?:\n\n|\Z)", README, re.S)


def test_the_readme_shows_something() -> None:
    assert SHOWN


@pytest.mark.parametrize(
    ("command", "text"), SHOWN, ids=[command.split()[0] for command, _ in SHOWN]
)
def test_the_readme_shows_what_the_command_prints(command: str, text: str) -> None:
    done = run(*shlex.split(command))
    assert done.returncode == 0, done.stderr
    assert [line.rstrip() for line in done.stdout.splitlines()] == [
        line.removeprefix("    ").rstrip() for line in text.splitlines()
    ]


def test_three_lines_give_a_table_and_a_plot_of_it() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    (lines,) = PYTHON
    assert len([line for line in lines.splitlines() if line]) == 3
    names: dict[str, Any] = {}
    exec(lines, names)
    systems = ("hilos", "inf2", "hillinfer", "l3", "h2m2")
    assert names["table"].groupby("system").size().to_dict() == dict.fromkeys(systems, 8)
    (axes,) = matplotlib.pyplot.gcf().axes
    _, labels = axes.get_legend_handles_labels()
    assert labels == ["HILOS", "INF²", "HillInfer", "L3", "H2M2"]
    assert axes.get_xlabel() == "Context (tokens)"
    matplotlib.pyplot.close("all")
