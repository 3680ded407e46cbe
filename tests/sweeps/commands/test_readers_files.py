"""Tables in files for readers: LaTeX, Markdown and JSON, from every command that prints one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command_line import printed

TWO = ("flexgen-ssd", "hilos", "--model", "opt-66b", "--context", "8k,16k")
CAPTION = ("--caption", "Steps", "--label", "tab:steps")


@pytest.mark.parametrize(
    "words",
    [
        ("compare", *TWO),
        ("estimate", "hilos", "--model", "opt-66b"),
        ("sweep", "--system", "hilos", "--model", "opt-66b", "--context", "8k,16k"),
        ("sweep", "--system", "hilos", "--model", "opt-66b", "--batch", "1,2", "--top", "1"),
        ("solve", "alpha", "--model", "opt-66b"),
        ("systems",),
        ("models", "show", "opt-66b"),
        ("compare", *TWO, "--pivot", "context_tok"),
    ],
)
@pytest.mark.slow
def test_the_ending_says_the_format(words: tuple[str, ...], tmp_path: Path) -> None:
    """Beside each stand the sources of its numbers, as beside CSV."""
    for ending, beginning in (("md", "| "), ("tex", r"\begin{table}"), ("json", "[")):
        file = tmp_path / f"table.{ending}"
        printed(*words, "-o", str(file), *(CAPTION if ending == "tex" else ()))
        lines = [line for line in file.read_text().splitlines() if not line.startswith("%")]
        assert lines[0].startswith(beginning)
        assert (tmp_path / f"table.{ending}.provenance.json").exists()
    assert json.loads(file.read_text())


@pytest.mark.slow
def test_a_table_of_latex_fits_a_page(tmp_path: Path) -> None:
    """What all rows share and what their notes say stands below; what is left out is named."""
    file = tmp_path / "table.tex"
    printed("compare", *TWO, "-o", str(file))
    text = file.read_text()
    assert "model opt-66b, platform hilos-a100" in text
    assert r"\\ 1: prompt and output exceed" in text
    assert text.startswith("% --columns shows alpha, ")
    header = next(line for line in text.splitlines() if line.startswith("system &"))
    assert len(header.split(" & ")) < 9
    tree = ("estimate", "hilos", "--model", "opt-66b", "--explain", "--columns", "span,equation")
    printed(*tree, "-o", str(file))
    assert r"h s\textasciicircum{}2" in file.read_text()
    printed("estimate", "hilos", "--model", "opt-66b", "-o", str(file))
    assert r"bottleneck & gpu.tensor \\" in file.read_text()


def test_what_a_file_for_readers_cannot_hold_is_refused(tmp_path: Path) -> None:
    sweep = ("sweep", "--system", "hilos", "--model", "opt-66b", "--context")
    file = str(tmp_path / "table.md")
    many = printed(*sweep, "1:20000:+1", "-o", file, code=2)
    assert "too many to read; write .csv, .jsonl or .parquet" in many
    assert "not for" in printed(*sweep, "8k", "-o", file, "--jobs", "2", code=2)
    assert "-o FILE.tex" in printed("compare", *TWO, "-o", file, *CAPTION, code=2)
    assert "leave out one" in printed("compare", *TWO, "-o", file, "--chart", code=2)
    assert not list(tmp_path.iterdir())
