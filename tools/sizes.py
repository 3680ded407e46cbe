"""Print the sizes of the code, by folder.

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
        tokens, code_lines: tokens, and lines that hold one, short docstrings among them.
        code: lines that hold a token, docstrings left out.
        functions: lines of each function, without its docstring, by name.
        statements: tokens of each statement.
        nested: lines of conditional expressions that hold another.
        long: lines of more than 100 characters.
    """

    path: str
    lines: int
    tokens: int
    code_lines: int
    code: int
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
        code=len({line for line, _ in tokens} - set(_docstring_places(nodes))),
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


def _docstring_places(nodes: list[ast.AST]) -> Iterator[int]:
    """Lines of docstrings, those of attributes among them."""
    for node in nodes:
        if _is_text(node) and isinstance(node, ast.Expr):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


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


def neighbours_only() -> dict[str, str]:
    """Modules whose only importer lies in their own folder, with that importer."""
    files = {module_name(file): file for file in source_files()}
    packages = {name for name, file in files.items() if file.name == "__init__.py"}
    importers: dict[str, set[str]] = {name: set() for name in files}
    for name, imported in import_graph().items():
        for module in imported:
            importers[module].add(name)
    lonely = {}
    for name, known in importers.items():
        if name in packages or len(known - packages) != 1:
            continue
        (importer,) = known - packages
        if files[importer].parent == files[name].parent:
            lonely[name] = importer
    return lonely


def documented(path: Path) -> tuple[int, int]:
    """Lines of docstrings of a file's functions, and how many functions it has."""
    functions = [node for node in nodes_of(path) if isinstance(node, Function)]
    return sum(map(_docstring_lines, functions)), len(functions)


def comments(path: Path) -> int:
    """Lines of a file that are a comment and no code."""
    return sum(line.lstrip().startswith("#") for line in path.read_text("utf-8").splitlines())


def main() -> None:
    """Print the sizes of every folder and of all, and modules that only a neighbour imports."""
    every = {file: sizes_of(file) for file in source_files()}
    folders: dict[str, list[Sizes]] = {}
    for sizes in every.values():
        folders.setdefault(str(Path(sizes.path).parent), []).append(sizes)
    print(f"{'code':>6} {'modules':>8} {'tokens/line':>12}")
    for folder, members in sorted(folders.items()):
        code = sum(sizes.code for sizes in members)
        lines = sum(sizes.code_lines for sizes in members)
        density = sum(sizes.tokens for sizes in members) / max(lines, 1)
        print(f"{code:6} {len(members):8} {density:12.1f}  {folder}")
    tokens = sum(sizes.tokens for sizes in every.values())
    code = sum(sizes.code for sizes in every.values())
    dense = tokens / sum(sizes.code_lines for sizes in every.values())
    docstrings = [documented(file) for file in every]
    documentation, functions = (sum(column) for column in zip(*docstrings, strict=True))
    lonely = neighbours_only()
    print(f"code lines: {code:,} in {len(every)} modules")
    print(f"tokens per line: {dense:.2f}")
    print(
        f"docstring lines per function: {documentation / functions:.3f} ({functions:,} functions)"
    )
    print(f"comment lines: {sum(map(comments, every))}")
    print(f"modules that only a neighbour imports: {len(lonely)}")
    for name, importer in sorted(lonely.items()):
        print(f"  {name} <- {importer}")
    print(f"import cycles: {import_cycles() or 'none'}")


if __name__ == "__main__":
    main()
