"""Mutants: small changes of one expression, drawn from every module of the models and solvers."""

from __future__ import annotations

import ast
import random
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

FOLDERS = ("costmodel", "solvers")
OPERATORS = (
    "ReplaceBinaryOperator_Add_Sub",
    "ReplaceBinaryOperator_Sub_Add",
    "ReplaceBinaryOperator_Mul_Div",
    "ReplaceBinaryOperator_Div_Mul",
    "ReplaceComparisonOperator_Lt_GtE",
    "ReplaceComparisonOperator_GtE_Lt",
    "ReplaceComparisonOperator_Gt_LtE",
    "ReplaceComparisonOperator_LtE_Gt",
    "ReplaceComparisonOperator_Eq_NotEq",
    "ReplaceComparisonOperator_NotEq_Eq",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceUnaryOperator_USub_UAdd",
    "AddNot",
    "NumberReplacer",
)
"""Those of Cosmic Ray that change a value. What breaks a type (a bit of a float) proves nothing."""
EQUIVALENT = Path(__file__).with_name("equivalent.toml")


@dataclass(frozen=True)
class Mutant:
    """One change of one expression."""

    file: str
    operator: str
    occurrence: int
    line: int
    text: str

    def source(self, original: str) -> str:
        """The file with the change."""
        changed = mutate_code(original, _change(self.operator), self.occurrence)
        assert changed is not None
        return str(changed)


@dataclass(frozen=True)
class Equivalent:
    """Mutants that no test can notice, and why.

    Attributes:
        lines: where, as "file: line" without the indentation.
        reason: why no answer changes, or why none should be asked to.
        operator: its name or how it begins; any where empty.
        becomes: what a line is changed to, without its spaces; whatever where empty.
    """

    lines: list[str]
    reason: str
    operator: str = ""
    becomes: list[str] = field(default_factory=list)

    def covers(self, mutant: Mutant, root: Path) -> bool:
        """Whether a mutant of the project under `root` is one of these."""
        here = f"{mutant.file}: {mutant.text}"
        if here not in self.lines or not mutant.operator.startswith(self.operator):
            return False
        if not self.becomes:
            return True
        changed = mutant.source((root / mutant.file).read_text()).splitlines()[mutant.line - 1]
        return changed.replace(" ", "") in self.becomes


def equivalents() -> list[Equivalent]:
    """Those that are known."""
    rows = tomllib.loads(EQUIVALENT.read_text())["mutant"]
    return [Equivalent(**row) for row in rows]


def sample(root: Path, count: int, seed: int, under: str = "") -> list[Mutant]:
    """So many mutants, each of any module's with equal chance: the same for the same seed.

    Args:
        root: of the project.
        count: how many, or all where there are fewer.
        seed: of the draw.
        under: a folder or module to draw from alone.
    """
    files = [file for file in _modules(root) if str(file.relative_to(root)).startswith(under)]
    known = equivalents()
    mutants = [
        mutant
        for file in files
        for mutant in _mutants(root, file)
        if not any(equivalent.covers(mutant, root) for equivalent in known)
    ]
    random.Random(seed).shuffle(mutants)
    return list(islice((mutant for mutant in mutants if _parses(root, mutant)), count))


def _parses(root: Path, mutant: Mutant) -> bool:
    """Whether it is Python; Cosmic Ray takes the star of unpacked arguments for a product."""
    try:
        ast.parse(mutant.source((root / mutant.file).read_text()))
    except SyntaxError:
        return False
    return True


def _modules(root: Path) -> Sequence[Path]:
    return sorted(file for folder in FOLDERS for file in (root / folder).rglob("*.py"))


def _mutants(root: Path, file: Path) -> Iterator[Mutant]:
    """Every mutant of a module that may change an answer.

    Cosmic Ray takes the star before keyword-only arguments for a product.
    """
    source = file.read_text()
    tree, lines = get_ast(source), source.splitlines()
    unanswering = set(_unanswering(ast.parse(source)))
    name = str(file.relative_to(root))
    for operator in OPERATORS:
        positions = _change(operator).mutation_positions
        places = [place for node in ast_nodes(tree) for place in positions(node)]
        apart = 2 if operator == "NumberReplacer" else 1  # one more and one less: one of them
        for occurrence, (start, _) in list(enumerate(places))[::apart]:
            star = lines[start[0] - 1].startswith("*,", start[1])
            if start not in unanswering and not star:
                yield Mutant(name, operator, occurrence, start[0], lines[start[0] - 1].strip())


def _unanswering(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """Where a change alters no answer: dataclass(frozen=True), zip(strict=True)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in ("frozen", "strict"):
            yield node.value.lineno, node.value.col_offset


def _change(operator: str) -> Any:
    """What Cosmic Ray knows by a name."""
    return get_operator(f"core/{operator}")()
