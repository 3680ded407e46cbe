"""Numbered equations: the code they name exists, and worked numbers are those of the code."""

from __future__ import annotations

import csv
import io
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest
from support.command_line import succeed

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"```\{equation\} (\S+)\n(.+?)\n\n(.+?)\n```", re.S)
PAPERS = ("hilos", "inf2", "hillinfer", "l3", "h2m2")


def equations() -> dict[str, dict[str, str]]:
    """The options of every equation, by its number."""
    found: dict[str, dict[str, str]] = {}
    for paper in PAPERS:
        for name, options, _ in BLOCK.findall((DOCS / f"{paper}.md").read_text()):
            assert name not in found
            assert name.startswith(f"{paper.upper()}-")
            found[name] = dict(re.findall(r"^:(\w+): (.+)$", options, re.M))
    return found


EQUATIONS = equations()


def test_every_paper_has_numbered_equations() -> None:
    assert {name.partition("-")[0].lower() for name in EQUATIONS} == set(PAPERS)


@pytest.mark.parametrize("name", EQUATIONS)
def test_the_code_of_an_equation_exists(name: str) -> None:
    module, _, function = EQUATIONS[name]["code"].rpartition(".")
    code = getattr(import_module(module), function)
    assert callable(code)
    assert re.search(rf"docs/\w+\.md, eq\. .*{name}\b", code.__doc__)


@pytest.mark.parametrize("name", EQUATIONS)
@pytest.mark.slow
def test_a_worked_number_follows_from_the_parts_and_is_that_of_the_code(name: str) -> None:
    given = EQUATIONS[name]
    arithmetic, _, printed = given["worked"].partition(" = ")
    by_hand = eval(arithmetic, {"__builtins__": {}})  # numbers and operators of our own page
    digits = len(printed.replace(".", "").lstrip("0"))
    assert by_hand == pytest.approx(float(printed), rel=10.0 ** (1 - digits))
    words = shlex.split(given["case"])
    is_tree = words[0] == "estimate"
    text = succeed(*words, *(["--explain"] if is_tree else []), "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    if is_tree:
        value = {row["span"]: row["seconds"] for row in rows}[given["reads"]]
    else:
        value = rows[0][given["reads"]]
    assert float(value) == pytest.approx(by_hand, rel=2e-3)
