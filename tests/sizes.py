"""Print the sizes of the code; `test_house.py` holds the limits.

Docstrings and comments are not counted. A token is a name, an operator, a number or a string
on one line. A simple statement has all its tokens, a compound statement those of its header.
"""

from __future__ import annotations

import ast
import io
import tokenize
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("hardware", "costmodel", "solvers", "sweeps")
LONGEST_LINE = 100
_COUNTED = {tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

Position = tuple[int, int]
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Sizes:
    """What one module measures.

    Attributes:
        path: of the file, relative to the repository.
        lines: of the module, without docstrings.
        tokens, code_lines: tokens, and lines that hold one.
        functions: lines of each function, without its docstring, by name.
        statements: tokens of each statement.
        nested: lines of conditional expressions that hold another.
        long: lines of more than 100 characters.
    """

    path: str
    lines: int
    tokens: int
    code_lines: int
    functions: dict[str, int]
    statements: list[int]
    nested: list[int]
    long: list[int]

    @property
    def density(self) -> float:
        """Tokens per line of code."""
        return self.tokens / max(self.code_lines, 1)


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Every node of a file's syntax tree, the module first."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def source_files() -> list[Path]:
    """Files of the package, as they lie in the repository."""
    files = [ROOT / "cli.py"]
    for package in PACKAGES:
        files += (ROOT / package).rglob("*.py")
    own = (file for file in (ROOT / "src" / "nearkv").glob("*.py") if not file.is_symlink())
    return sorted([*files, *own])


def test_files() -> list[Path]:
    """Files of the tests."""
    return sorted((ROOT / "tests").rglob("*.py"))


@cache
def sizes_of(path: Path) -> Sizes:
    """Measure a module."""
    text, nodes = path.read_text(encoding="utf-8"), nodes_of(path)
    tokens = list(_tokens(text))
    functions = [node for node in nodes if isinstance(node, Function)]
    rows = text.splitlines()
    return Sizes(
        path=path.relative_to(ROOT).as_posix(),
        lines=len(rows) - sum(map(_docstring_lines, nodes)),
        tokens=len(tokens),
        code_lines=len({line for line, _ in tokens}),
        functions={node.name: function_lines(node) for node in functions},
        statements=list(_statement_tokens(nodes, tokens)),
        nested=list(_nested_conditionals(nodes)),
        long=[number for number, row in enumerate(rows, 1) if len(row) > LONGEST_LINE],
    )


def function_lines(node: Function) -> int:
    """Lines of a function, without its docstring and decorators."""
    return (node.end_lineno or node.lineno) - node.lineno + 1 - _docstring_lines(node)


def _docstring_lines(node: ast.AST) -> int:
    if not isinstance(node, _DOCUMENTED):
        return 0
    docstring = ast.get_docstring(node, clean=False)
    return docstring.count("\n") + 1 if docstring else 0


def _tokens(text: str) -> Iterator[Position]:
    """Where each counted token begins."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        several_lines = token.type == tokenize.STRING and "\n" in token.string
        if token.type in _COUNTED and not several_lines:
            yield token.start


def _statement_tokens(nodes: list[ast.AST], tokens: list[Position]) -> Iterator[int]:
    """Tokens of each statement; those of a compound statement end where its body begins."""
    for node in nodes:
        if not isinstance(node, ast.stmt | ast.ExceptHandler) or _is_text(node):
            continue
        start = (node.lineno, node.col_offset)
        end = (node.end_lineno or node.lineno, node.end_col_offset or 0)
        body = getattr(node, "body", None) or getattr(node, "cases", None)
        if body:
            end = _begin(body[0])
        yield bisect_left(tokens, end) - bisect_left(tokens, start)


def _begin(node: ast.stmt | ast.match_case) -> Position:
    first = node.pattern if isinstance(node, ast.match_case) else node
    decorators = getattr(node, "decorator_list", None)
    if decorators:
        first = decorators[0]
    return first.lineno, first.col_offset


def _is_text(node: ast.AST) -> bool:
    value = getattr(node, "value", None) if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _nested_conditionals(nodes: list[ast.AST]) -> Iterator[int]:
    """Lines of conditional expressions that hold another."""
    for node in nodes:
        if isinstance(node, ast.IfExp):
            conditionals = [inner for inner in ast.walk(node) if isinstance(inner, ast.IfExp)]
            if len(conditionals) > 1:
                yield node.lineno


def percentile(values: Iterable[int], share: float) -> int:
    """The value that a share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def module_name(path: Path) -> str:
    """The name by which a file of the package is imported."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[0] == "src":
        parts = parts[2:]
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(["nearkv", *parts])


def imports(path: Path) -> Iterator[str]:
    """Names of modules that a file imports anywhere, for type checks too."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def import_graph() -> dict[str, set[str]]:
    """Which module of the package imports which."""
    files = {module_name(file): file for file in source_files()}
    return {name: set(imports(file)) & files.keys() - {name} for name, file in files.items()}


def import_cycles() -> list[list[str]]:
    """Modules that import one another, however far around; each group sorted."""
    graph = import_graph()
    reach = {name: _reachable(graph, name) for name in graph}
    groups = set()
    for name in graph:
        group = tuple(sorted(other for other in reach[name] if name in reach[other]))
        if group:
            groups.add(group)
    return [list(group) for group in sorted(groups)]


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        following = graph[waiting.pop()] - reached
        reached |= following
        waiting += following
    return reached


def main() -> None:
    """Print the sizes of all modules, the densest last, and of all together."""
    every = [sizes_of(file) for file in source_files()]
    print(f"{'lines':>6} {'longest function':>17} {'tokens/line':>12} {'p90/statement':>14}")
    for sizes in sorted(every, key=lambda sizes: sizes.density):
        longest = max(sizes.functions.values(), default=0)
        middle = percentile(sizes.statements, 0.9) if sizes.statements else 0
        numbers = f"{sizes.lines:6} {longest:17} {sizes.density:12.1f} {middle:14}"
        print(f"{numbers}  {sizes.path}")
    tokens = sum(sizes.tokens for sizes in every)
    statements = [count for sizes in every for count in sizes.statements]
    checked = [*every, *(sizes_of(file) for file in test_files())]
    print(f"modules: {len(every)}")
    print(f"tokens per line: {tokens / sum(sizes.code_lines for sizes in every):.2f}")
    print(f"tokens per statement, 90th percentile: {percentile(statements, 0.9)}")
    print(f"nested conditional expressions: {sum(len(sizes.nested) for sizes in checked)}")
    print(f"lines over {LONGEST_LINE} characters: {sum(len(sizes.long) for sizes in checked)}")
    print(f"import cycles: {import_cycles() or 'none'}")


if __name__ == "__main__":
    main()
