"""Print how much code each folder holds, and names that mean several things.

A token is a name, an operator, a number or a string outside docstrings and comments; unlike
lines, tokens do not change when code is reformatted.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("hardware", "costmodel", "solvers", "sweeps")
COUNTED = {tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING}


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


def tokens_and_lines(path: Path) -> tuple[int, int]:
    """Count the tokens of a file, and the lines that hold one."""
    documented = set(docstring_lines(path))
    tokens, lines = 0, set[int]()
    for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
        if token.type in COUNTED and token.start[0] not in documented:
            tokens += 1
            lines.update(range(token.start[0], token.end[0] + 1))
    return tokens, len(lines)


def docstring_lines(path: Path) -> Iterator[int]:
    """Numbers of the lines of docstrings, those of attributes among them."""
    for node in nodes_of(path):
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
            continue
        if isinstance(node.value.value, str):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def comments(path: Path) -> int:
    """Lines of a file that are a comment and no code."""
    return sum(line.lstrip().startswith("#") for line in path.read_text("utf-8").splitlines())


def definitions(path: Path) -> Iterator[tuple[str, ast.expr | None]]:
    """Names that a file defines at its top level: classes without a value, others with theirs."""
    module = nodes_of(path)[0]
    assert isinstance(module, ast.Module)
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            yield node.name, None
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value


def ambiguous_types() -> dict[str, list[str]]:
    """Names of types and aliases that several files define, with these files."""
    files: dict[str, list[str]] = defaultdict(list)
    for path in source_files():
        for name, _ in definitions(path):
            is_type = not name.isupper() and re.match("_?[A-Z]", name)
            if is_type:
                files[name].append(path.relative_to(ROOT).as_posix())
    return {name: sorted(found) for name, found in files.items() if len(found) > 1}


def ambiguous_constants() -> dict[str, list[str]]:
    """Names of constants that have different values in several files, with these files."""
    values: dict[str, dict[str, str]] = defaultdict(dict)
    for path in source_files():
        for name, value in definitions(path):
            if name.isupper() and value:
                values[name][path.relative_to(ROOT).as_posix()] = ast.dump(value)
    return {
        name: sorted(by_file) for name, by_file in values.items() if len(set(by_file.values())) > 1
    }


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
    """Modules that each module of the package imports."""
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


def main() -> None:
    """Print sizes by folder and in all, ambiguous names, and modules that need a second look."""
    folders: dict[str, list[tuple[int, int]]] = defaultdict(list)
    files = source_files()
    for file in files:
        folder = str(file.parent.relative_to(ROOT))
        folders[folder].append(tokens_and_lines(file))
    print(f"{'tokens':>8} {'code':>6} {'modules':>8} {'tokens/line':>12}")
    for folder, members in sorted(folders.items()):
        tokens, lines = (sum(column) for column in zip(*members, strict=True))
        density = tokens / max(lines, 1)
        print(f"{tokens:8,} {lines:6,} {len(members):8} {density:12.1f}  {folder}")
    every = [sizes for members in folders.values() for sizes in members]
    tokens, lines = (sum(column) for column in zip(*every, strict=True))
    print(f"{tokens:,} tokens in {lines:,} lines of code, {len(files)} modules")
    print(f"tokens per line: {tokens / lines:.2f}; comment lines: {sum(map(comments, files))}")
    for what, names in (("types", ambiguous_types()), ("constants", ambiguous_constants())):
        print(f"{what} of one name in several files: {len(names)} {', '.join(sorted(names))}")
    lonely = neighbours_only()
    print(f"modules that only a neighbour imports: {len(lonely)}")
    for name, importer in sorted(lonely.items()):
        print(f"  {name} <- {importer}")
    print(f"import cycles: {import_cycles() or 'none'}")


if __name__ == "__main__":
    main()
