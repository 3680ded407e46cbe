"""Count what a question enters: files and functions of nearkv, and how often a system runs.

`python tools/footsteps.py estimate hilos --model opt-66b --context 64k` runs the command once so
that everything is imported, then once more and counts. Without arguments it asks two questions.
"""

from __future__ import annotations

import ast
import io
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from types import FrameType

from nearkv.cli import app
from nearkv.costmodel.model.registry import System

PACKAGE = Path(sys.modules["nearkv"].__file__ or "").parent
SCIENCE = ("costmodel", "hardware", "solvers")
QUESTIONS = (
    "estimate hilos --model opt-66b --context 64k",
    "solve alpha --system hilos --model opt-66b --context 64k",
)

PAGE = """# Walk of a question through the code

For those who open the code for the first time. `make walk` asks `nearkv {words}`
and lists the {count} files that it enters once everything is imported, in the order in which it
first enters them: what each file says of itself, the function that is entered first, and how many
are. `python tools/footsteps.py --list COMMAND` lists every function for a question of your own.

A command reads its options into a study, the study is divided into blocks of design points, a block
is evaluated by its system, whose spans of time and memory needs become columns, and a row of these
is printed. Formulas stand in `costmodel`, numbers in `hardware`, what is solved for in `solvers`.

| file | what it is | entered by | functions |
|---|---|---|---|
{rows}"""

Place = tuple[str, str, int]
"""File below the package, function, its first line."""


def run(words: Sequence[str]) -> None:
    """Ask a question; what it prints is dropped."""
    with redirect_stdout(io.StringIO()):
        app(list(words), standalone_mode=False)


def footsteps(words: Sequence[str]) -> Counter[Place]:
    """Functions of nearkv that a question enters, with the number of calls, imports apart."""
    run(words)
    entered: Counter[Place] = Counter()

    def enter(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)):
            file = Path(code.co_filename).relative_to(PACKAGE).as_posix()
            entered[file, code.co_qualname, code.co_firstlineno] += 1

    sys.setprofile(enter)
    try:
        run(words)
    finally:
        sys.setprofile(None)
    return entered


def report(words: Sequence[str], listed: bool) -> None:
    """Print what a question enters outside the science, and how often a system is evaluated."""
    entered = footsteps(words)
    outside = [place for place in entered if place[0].split("/")[0] not in SCIENCE]
    evaluated = sum(
        calls for (_, name, _), calls in entered.items() if name == System.__call__.__qualname__
    )
    files = {file for file, _, _ in outside}
    print(f"nearkv {' '.join(words)}")
    print(f"  outside {', '.join(SCIENCE)}: {len(files)} files, {len(outside)} functions")
    print(f"  the system is evaluated {evaluated} times")
    for file, name, line in sorted(outside) if listed else ():
        print(f"    {file}:{line} {name}")


def page(words: Sequence[str]) -> str:
    """The files that a question enters, in this order, as a page: what each is for, and where."""
    functions: dict[str, list[str]] = {}
    for file, name, _ in footsteps(words):
        if "<" not in name:
            functions.setdefault(file, []).append(name)
    rows = []
    for file, names in functions.items():
        module = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
        about = (ast.get_docstring(module) or "").partition("\n")[0]
        rows.append(f"| `{file}` | {about} | `{names[0]}` | {len(names)} |")
    return PAGE.format(words=" ".join(words), count=len(rows), rows="\n".join(rows))


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word not in ("--list", "--page")]
    for question in [words] if words else [text.split() for text in QUESTIONS]:
        if "--page" in sys.argv:
            print(page(question))
        else:
            report(question, "--list" in sys.argv)
