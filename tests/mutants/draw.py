"""Mutants: small changes of one expression, drawn from every module of the models and solvers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Mutant:
    """One change of one expression."""

    file: str
    operator: str
    occurrence: int
    line: int

    def source(self, original: str) -> str:
        """The file with the change."""
        changed = mutate_code(original, _change(self.operator), self.occurrence)
        assert changed is not None
        return str(changed)


def sample(root: Path, count: int, seed: int) -> list[Mutant]:
    """So many mutants, each of any module's with equal chance: the same for the same seed."""
    everyone = [mutant for file in _modules(root) for mutant in _mutants(root, file)]
    return random.Random(seed).sample(everyone, min(count, len(everyone)))


def _modules(root: Path) -> Sequence[Path]:
    return sorted(file for folder in FOLDERS for file in (root / folder).rglob("*.py"))


def _mutants(root: Path, file: Path) -> Iterator[Mutant]:
    """Every mutant of a module."""
    tree = get_ast(file.read_text())
    name = str(file.relative_to(root))
    for operator in OPERATORS:
        positions = _change(operator).mutation_positions
        places = [place for node in ast_nodes(tree) for place in positions(node)]
        apart = 2 if operator == "NumberReplacer" else 1  # one more and one less: one of them
        for occurrence, ((line, _), _) in list(enumerate(places))[::apart]:
            yield Mutant(name, operator, occurrence, line)


def _change(operator: str) -> Any:
    """What Cosmic Ray knows by a name."""
    return get_operator(f"core/{operator}")()
