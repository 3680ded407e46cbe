"""The house: imports run downwards, files and functions stay small, docstrings say what matters."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import SYSTEMS

from nearkv.hardware.reading import sources

ROOT = Path(__file__).parent.parent
LAYERS = ["hardware", "costmodel", "solvers", "sweeps", "cli"]
FILES = sorted(
    [ROOT / "cli.py", *(file for layer in LAYERS[:-1] for file in (ROOT / layer).rglob("*.py"))]
)


def imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def layer_of(file: Path) -> int:
    return LAYERS.index(file.relative_to(ROOT).parts[0].removesuffix(".py"))


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_imports_run_downwards_only(file: Path) -> None:
    for module in imports(file):
        top = module.removeprefix("nearkv.").split(".")[0]
        if top in LAYERS:
            assert LAYERS.index(top) <= layer_of(file), module
        if file.parent.name == "systems":
            assert not module.startswith("nearkv.costmodel.systems"), "no system imports another"
        if LAYERS[layer_of(file)] == "costmodel":
            assert top not in {"random", "scipy", "pulp", "pandas", "os", "pathlib"}, (
                "formulas are pure"
            )


def functions(file: Path) -> Iterator[ast.FunctionDef]:
    return (
        node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)
    )


def lines_of(node: ast.FunctionDef) -> int:
    docstring = ast.get_docstring(node, clean=False)
    return (
        (node.end_lineno or 0) - node.lineno + 1 - (docstring.count("\n") + 1 if docstring else 0)
    )


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_functions_fit_a_screen_and_files_hold_one_idea(file: Path) -> None:
    for node in functions(file):
        assert lines_of(node) <= 70, f"{node.name}: {lines_of(node)} lines"
    text = file.read_text()
    documented = (
        n
        for n in ast.walk(ast.parse(text))
        if isinstance(n, ast.FunctionDef | ast.ClassDef | ast.Module)
    )
    docstrings = sum(
        d.count("\n") + 1 for n in documented if (d := ast.get_docstring(n, clean=False))
    )
    assert text.count("\n") - docstrings <= 330


def test_functions_are_short_in_the_median() -> None:
    sizes = sorted(lines_of(node) for file in FILES for node in functions(file))
    assert sizes[len(sizes) // 2] <= 10


@pytest.mark.parametrize(
    "file", [f for f in FILES if f.is_relative_to(ROOT / "costmodel")], ids=lambda f: f.name
)
def test_public_formulas_state_units(file: Path) -> None:
    """A public function of the formulas that returns numbers says in which unit, in brackets."""
    for node in functions(file):
        returns = ast.unparse(node.returns) if node.returns else ""
        if re.fullmatch(r"(tuple\[)?Real.*", returns) and not node.name.startswith("_"):
            assert re.search(r"\[[^\]]+\]", ast.get_docstring(node) or ""), (
                f"{node.name}: no unit in its docstring"
            )


def test_systems_cite_the_address_of_their_equations() -> None:
    for system in SYSTEMS.values():
        text = inspect.getdoc(system.model) or ""
        assert "Source:" in text, system.name
        assert re.search(r"sec\.|Eq\.|Table|Alg", text), system.name
        assert system.cite in sources()


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_times_are_composed_with_the_algebra(file: Path) -> None:
    """No system adds or maximises seconds by hand."""
    if file.parent.name == "systems":
        assert ".seconds" not in file.read_text()
