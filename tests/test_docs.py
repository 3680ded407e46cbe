"""Every command and every code block of the site works."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import matplotlib as mpl
import pytest
from warm_command import run

DOCS = Path(__file__).parent.parent / "docs"
PAGES = sorted(DOCS.rglob("*.md"))

mpl.use("agg")


def blocks(page: Path, language: str) -> list[str]:
    """Code blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[list[str]]:
    """Command lines of a page: what stands behind a dollar sign."""
    lines = "\n".join(blocks(page, "console")).splitlines()
    return [shlex.split(line[2:]) for line in lines if line.startswith("$ ")]


WITH_COMMANDS = [page for page in PAGES if commands(page)]
WITH_CODE = [page for page in PAGES if blocks(page, "python")]


def test_pages_have_commands_and_code() -> None:
    assert {page.stem for page in WITH_COMMANDS} >= {"start", "tutorial"}
    assert WITH_CODE


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run_one_after_the_other(page: Path, tmp_path: Path) -> None:
    for name, *arguments in commands(page):
        assert name == "nearkv", f"{name} is not ours to run"
        done = run(*arguments, cwd=tmp_path, env={"COLUMNS": "80"})
        assert done.returncode == 0, f"nearkv {shlex.join(arguments)}\n{done.stderr}"


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code in blocks(page, "python"):
        exec(compile(code, str(page), "exec"), names)
