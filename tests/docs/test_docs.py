"""Every command, every file and every code block of the site works, in the order of its page."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import pytest
from support.command_line import succeed
from support.helpers import COMMAND

import nearkv
from nearkv.costmodel.model import registry
from nearkv.sweeps.figures.style import load_pyplot

DOCS = Path(__file__).parents[2] / "docs"
ELSEWHERE = ("own", "cluster", "models")
"""Pages that a test of their own follows."""
RUN_BY_OTHER_TESTS = {
    "nearkv validate": "test_claims",
    "nearkv validate independent": "test_claims",
    "nearkv validate independent --format csv | nearkv plot parity - -o parity.pdf": "test_claims",
    "nearkv calibrate --claims hilos": "test_calibration",
}
"""Commands that take longer than a page's test should, and the test that runs them."""

FENCE = re.compile(
    r"^```(?:\{code-block\} )?(\w+)\n(?::caption: (\S+)\n\n?)?(.*?)^```", re.S | re.M
)

mpl.use("agg")


@dataclass(frozen=True)
class Block:
    """One block of a page.

    Attributes:
        language: of its text.
        file: its name, where it is one that the reader writes.
        text: what it holds.
    """

    language: str
    file: str
    text: str


def blocks(page: Path) -> list[Block]:
    """Blocks of a page that a reader types."""
    every = [Block(*groups) for groups in FENCE.findall(page.read_text())]
    return [block for block in every if block.file or block.language in FOLLOW]


def test_a_page_says_first_for_whom_it_is() -> None:
    for page in DOCS.glob("*.md"):
        _, _, text = page.read_text().partition("\n\n")
        assert text.startswith("For "), page.name


PAPERS = ("hilos", "inf2", "l3", "h2m2", "hillinfer")
FORM = (
    "Numbered equations",
    "One (decode step|decode layer|iteration)",
    "Baselines|",
    "Open points of the paper",
    "Misses",
)


@pytest.mark.parametrize("paper", PAPERS)
def test_pages_of_papers_have_one_form(paper: str) -> None:
    """The drawing of data paths stands above the equations; open points and misses end a page."""
    text = (DOCS / f"{paper}.md").read_text()
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert text.index("{data-paths}") < text.index("## Numbered equations")
    if len(headings) == len(FORM) - 1:  # baselines stand beside the paper's own system
        headings.insert(2, "")
    assert len(headings) == len(FORM)
    for heading, pattern in zip(headings, FORM, strict=True):
        assert re.match(pattern, heading), heading


def follow_console(block: Block, _: dict[str, object]) -> None:
    """Run what stands behind each dollar sign; a pipe gives the next command what one prints."""
    for line in block.text.splitlines():
        if not line.startswith("$ ") or line.removeprefix("$ ") in RUN_BY_OTHER_TESTS:
            continue
        printed = ""
        for command in line.removeprefix("$ ").split(" | "):
            name, *arguments = shlex.split(command)
            assert name == "nearkv", f"{name} is not ours to run"
            words = [SMALLER.get(word, quickly_drawn(word)) for word in arguments]
            printed = succeed(*words, text=printed)


SMALLER = {
    "1:64:x2": "1,4",
    "4k:256k:+4k": "4k,256k",
    "independent": "hillinfer",
}
"""Users, contexts and claims to evaluate, and fewer of them that ask the same of a command."""


def quickly_drawn(word: str) -> str:
    """A figure's name, whose PDF is an SVG where fonts to embed would take most of the time.

    `test_style` looks into PDFs; here `bars.pdf` stands for all.
    """
    if word.endswith(".pdf") and word != "bars.pdf":
        return word.replace(".pdf", ".svg")
    return word


def follow_python(block: Block, names: dict[str, object]) -> None:
    """Run code; names stay for the next block of the page."""
    exec(compile(block.text, "page", "exec"), names)


FOLLOW: dict[str, Callable[[Block, dict[str, object]], None]] = {
    "console": follow_console,
    "python": follow_python,
}
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if blocks(page)]
LONG = ("atlas", "design", "experts", "figures", "reuse")
"""Pages whose commands take more than five seconds of work: `make deep` follows them."""


def test_pages_have_blocks() -> None:
    assert {page.stem for page in PAGES} >= {"start", "tutorial", "own", "figures", "cluster"}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.stem in LONG], ids=lambda page: page.stem
)
def test_every_command_of_a_page_is_one(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command and option exists; nothing is run."""
    monkeypatch.setattr("nearkv.cli.Command.invoke", lambda *_: None)
    for block in blocks(page):
        if block.language == "console":
            follow_console(block, {})


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.deep if page.stem in LONG else pytest.mark.slow)
        for page in PAGES
    ],
    ids=lambda page: page.stem,
)
def test_a_page_works_from_an_empty_folder(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page.stem in ELSEWHERE:
        pytest.skip("a test of its own follows this page")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    # what a page's plugin registers is gone after it
    monkeypatch.setattr(registry, "_SYSTEMS", registry.systems().copy())
    names: dict[str, object] = {}
    for block in blocks(page):
        if block.file:
            Path(block.file).write_text(block.text)
        else:
            FOLLOW[block.language](block, names)
    load_pyplot().close("all")


def test_the_paragraph_of_the_tutorial_states_what_is_predicted() -> None:
    stated = {"flexgen-dram": 0.12, "hilos": 0.53, "l3": 170, "h2m2": 27, "lpddr-only": 21}
    table = nearkv.compare([*stated], model="llama3.1-70b", batch=16, context="128k")
    page = (DOCS / "tutorial.md").read_text()
    for name, speed in zip(table["system"], table["decode_tok_s"], strict=True):
        assert stated[name] == float(f"{speed:.2g}"), name
        assert f" {stated[name]} " in page


def test_the_example_of_what_is_not_modelled_has_such_a_row() -> None:
    (example,) = blocks(DOCS / "not-modelled.md")
    _, *words = shlex.split(example.text.removeprefix("$ "))
    statuses = {line.split(",")[1] for line in succeed(*words, "--format", "csv").splitlines()}
    assert statuses == {"status", "ok", "not-modelled"}


SBATCH = """#!/bin/bash
tasks=$(sed -n 's/^#SBATCH --array=0-//p' "$1")
for task in $(seq 0 "$tasks"); do
  SLURM_ARRAY_TASK_ID=$task SLURM_CPUS_PER_TASK=1 bash "$1" || exit 1
done
"""
"""Runs the jobs of an array one after the other, as Slurm's `sbatch` would have them run."""


@pytest.mark.slow
@pytest.mark.processes
def test_the_page_of_clusters_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a smaller size, as the page says; Dask is real, Slurm is not."""
    stub = tmp_path / "bin" / "sbatch"
    stub.parent.mkdir()
    stub.write_text(SBATCH)
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stub.parent}:{COMMAND.parent}", prepend=os.pathsep)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks(DOCS / "cluster.md"):
        smaller = Block(block.language, block.file, re.sub(r":\+1(?=k|\b)", ":+32", block.text))
        if block.language == "sh" and block.file.endswith(".sh"):
            shell = ["bash", "-m", "-c", smaller.text]
            done = subprocess.run(shell, capture_output=True, text=True, check=False, timeout=60)
            assert done.returncode == 0, done.stderr
        elif block.file:
            Path(block.file).write_text(smaller.text)
        else:
            FOLLOW[block.language](smaller, names)
    table = names["table"]
    assert isinstance(table, pd.DataFrame)
    assert len(table) == 2 * 8 * 8  # an array of two, eight batches, eight contexts
    assert Path("dask.csv").read_bytes() == Path("best.csv").read_bytes()


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_no_command_hides_in_an_indented_block(page: Path) -> None:
    assert not re.findall(r"^    (?:\$ )?nearkv .*", page.read_text(), re.M)


def test_the_table_of_what_is_not_modelled_is_as_generated() -> None:
    """`python docs/not_modelled.py` writes it."""
    written = runpy.run_path(str(DOCS / "not_modelled.py"))
    text = (DOCS / "not-modelled.md").read_text()
    assert written["page"](text) == text


def test_no_line_of_a_page_is_lost_to_markdown() -> None:
    """A line that begins with % is a comment of MyST, and not on the site."""
    for page in DOCS.glob("*.md"):
        assert [line for line in page.read_text().splitlines() if line.startswith("%")] == [], page


def test_the_walk_of_a_question_names_files_that_there_are() -> None:
    """`make walk` writes it."""
    listed = re.findall(r"^\| `([\w/.]+)` \|", (DOCS / "walk.md").read_text(), re.MULTILINE)
    assert len(listed) > 30
    assert not [file for file in listed if not (DOCS.parent / file).exists()]
