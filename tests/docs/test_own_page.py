"""The page `docs/own.md` as it stands: its files typed, its commands run, its sweep killed."""

from __future__ import annotations

import os
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from support.helpers import COMMAND, piped, until_safe
from support.warm_command import run

PAGE = (Path(__file__).parents[2] / "docs" / "own.md").read_text()
BLOCK = re.compile(r"^```\{code-block\} (\w+)\n(?::caption: (\S+)\n)?(.*?)^```", re.S | re.M)


def typed_lines() -> list[str]:
    """Lines that a user types: of files, and commands."""
    lines = []
    for _, file, text in BLOCK.findall(PAGE):
        own = text.splitlines()
        lines += [line for line in own if line and (file or line.startswith("$ "))]
    return lines


@pytest.mark.slow
@pytest.mark.processes
def test_the_page_works_from_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    printed: dict[str, str] = {}
    for _, file, text in BLOCK.findall(PAGE):
        if file:
            Path(file).parent.mkdir(exist_ok=True)
            Path(file).write_text(text)
        lines = [*text.splitlines(), ""]
        for line, following in pairwise(lines):
            if line.startswith("$ nearkv "):
                words = shlex.split(line)[2:]
                follow = killed if following == "Killed" else finished
                printed[" ".join(words[:2])] = follow(words)
    assert "hilos-4bit: keeps every contract" in printed["systems check"]
    assert "hilos-4bit " in printed["systems --plugin"]
    assert printed["solve alpha"].count("hilos-4bit ") == 5
    rows = Path("out.csv").read_text().splitlines()
    assert len(rows) == 1 + 2 * 256 * 32 * 16
    assert not list(tmp_path.glob(".out.csv*"))


def finished(words: list[str]) -> str:
    done = run(*words)
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stderr}"
    return done.stdout


def killed(words: list[str]) -> str:
    """Start a sweep and kill it once a part of it is safe."""
    with piped([str(COMMAND), *words]) as process:
        assert until_safe(process, Path("out.csv"))
        process.kill()
    assert not Path("out.csv").exists()
    assert os.path.isdir(".out.csv.partial")
    return ""


def test_the_page_is_typed_in_under_sixty_lines() -> None:
    assert len(typed_lines()) < 60


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    """The block of what a system may use asserts each number beside its name."""
    (code,) = re.findall(r"^```python\n(from nearkv import .*?)^```", PAGE, re.S | re.M)
    exec(compile(code, "own.md", "exec"), {})
