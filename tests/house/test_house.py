"""The house: imports run downwards, docstrings say what matters."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import sizes
from sizes import ROOT
from support.systems import SYSTEMS

from nearkv.hardware.schema import sources

ROOMS = (
    "hardware",
    "costmodel",
    "costmodel.algebra",
    "costmodel.model",
    "costmodel.mechanisms",
    "costmodel.systems",
    "solvers",
    "sweeps",
    "sweeps.study",
    "sweeps.tables",
    "sweeps.uncertainty",
    "sweeps.simulate",
    "sweeps.evaluate",
    "sweeps.jobs",
    "sweeps.explore",
    "sweeps.validation",
    "sweeps.figures",
    "sweeps.api",
    "sweeps.commands",
    "cli",
)
"""Every room, in the order in which they may import: only those before, and themselves."""

FILES = sizes.source_files()
TESTS = sorted(Path(__file__).parents[1].rglob("*.py"))


def room_of(module: str) -> str | None:
    """The innermost room that a module lies in; none for the package's own front."""
    inner = module.removeprefix("nearkv").removeprefix(".")
    rooms = [room for room in ROOMS if f"{inner}.".startswith(f"{room}.")]
    return max(rooms, key=len, default=None)


def upward_imports(file: Path) -> Iterator[str]:
    """Imports that run against the order of the rooms, or past the installed name."""
    own = room_of(sizes.module_name(file))
    for module in sizes.imports(file):
        top = module.split(".")[0]
        if top in (*sizes.PACKAGES, "cli"):
            yield f"{module}: import it from nearkv"
        if top != "nearkv" or own is None:
            continue
        room = room_of(module)
        if room is None:
            yield f"{module}: nothing inside imports the package's front"
        elif ROOMS.index(room) > ROOMS.index(own):
            yield f"{module}: lies above {own}"


def misplaced_imports(file: Path) -> Iterator[str]:
    """Imports that a room may not have, whatever their direction."""
    path = file.relative_to(ROOT).as_posix()
    room = room_of(sizes.module_name(file)) or ""
    impure = {"random", "scipy", "pulp", "pandas", "os", "pathlib"}
    for module in sizes.imports(file):
        top = module.split(".")[0]
        if room == "costmodel.systems" and module.startswith("nearkv.costmodel.systems."):
            yield f"{module}: no system imports another"
        if room.startswith("costmodel") and top in impure:
            yield f"{module}: formulas are pure"
        if top == "typer" and room not in ("cli", "sweeps.commands"):
            yield f"{module}: {path} is no part of the command line"


def test_imports_run_downwards() -> None:
    against = []
    for file in FILES:
        path = file.relative_to(ROOT).as_posix()
        problems = (*upward_imports(file), *misplaced_imports(file))
        against += [f"{path}: {problem}" for problem in problems]
    assert not against, "\n".join(against)


def test_no_module_imports_itself_however_far_around() -> None:
    assert not sizes.import_cycles()


def assertions_of_literals(file: Path) -> Iterator[int]:
    """Lines of assertions that name nothing of the code."""
    for node in sizes.nodes_of(file):
        if isinstance(node, ast.Assert):
            names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
            if not names - {"pytest", "math", "np"}:
                yield node.lineno


def test_every_assertion_can_fail() -> None:
    """An assertion on literals alone says nothing of the code."""
    lines = {file.name: list(assertions_of_literals(file)) for file in TESTS}
    assert not {name: literal for name, literal in lines.items() if literal}


def test_no_test_imports_another() -> None:
    """Helpers that tests share lie in modules of their own."""
    imported = {file.name: list(sizes.imports(file)) for file in TESTS}
    assert not [
        (name, module)
        for name, modules in imported.items()
        for module in modules
        if module.split(".")[0].startswith("test_")
    ]


def test_every_room_has_its_place() -> None:
    """A package that no room names would be free to import anything."""
    data_folders = {"costmodel.llms"}
    packages = {sizes.module_name(file) for file in FILES if file.name == "__init__.py"}
    inner = {name.removeprefix("nearkv").removeprefix(".") for name in packages} - {""}
    assert {room_of(name) for name in inner} <= set(ROOMS)
    assert {name for name in inner if name.count(".") == 1 and "solvers." not in name} <= {
        *ROOMS,
        *data_folders,
    }


def without_unit(file: Path) -> Iterator[str]:
    """Public functions of the formulas that return numbers, and say no unit in brackets."""
    for node in sizes.nodes_of(file):
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
            continue
        returns = ast.unparse(node.returns) if node.returns else ""
        if re.fullmatch(r"(tuple\[)?Real.*", returns):
            docstring = ast.get_docstring(node) or ""
            if not re.search(r"\[[^\]]+\]", docstring):
                yield f"{file.name}: {node.name}"


def test_public_formulas_state_units() -> None:
    formulas = [file for file in FILES if file.is_relative_to(ROOT / "costmodel")]
    assert not [name for file in formulas for name in without_unit(file)]


def test_systems_cite_the_address_of_their_equations() -> None:
    for system in SYSTEMS.values():
        text = inspect.getdoc(system.model) or ""
        assert "Source:" in text, system.name
        assert re.search(r"sec\.|Eq\.|Table|Alg", text), system.name
        assert system.cite in sources()


def test_times_are_composed_with_the_algebra() -> None:
    """No system adds or maximises seconds by hand."""
    files = (ROOT / "costmodel" / "systems").glob("*.py")
    assert not [file.name for file in files if ".seconds" in file.read_text()]
