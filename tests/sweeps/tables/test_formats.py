"""Tables as text: every format holds what was asked for, LaTeX compiles."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from nearkv.sweeps.tables.formats import render
from nearkv.sweeps.tables.table import Display

ROWS = [
    {"system": "hilos", "step_ms": 12.5, "what": "a & b | c"},
    {"system": "inf2", "step_ms": float("inf"), "what": "50 % of x_1"},
]


def test_json_has_no_infinity() -> None:
    assert json.loads(render(Display(ROWS), "json"))[1]["step_ms"] is None


def lines_of(latex: str) -> list[str]:
    """Lines without the blanks that align their cells."""
    return [" ".join(line.split()) for line in latex.splitlines()]


def test_latex_prints_a_column_with_equally_many_decimals_and_a_name_once() -> None:
    rows = [
        {"system": "hilos", "model": "a", "context_tok": 8192, "decode_tok_s": 12.345},
        {"system": "hilos", "model": "a", "context_tok": 16384, "decode_tok_s": 0.25},
        {"system": "hilos", "model": "b", "context_tok": 8192, "decode_tok_s": "OOM"},
        {"system": "inf2", "model": "b", "context_tok": 8192, "decode_tok_s": 1234.5},
    ]
    header, _, *body = lines_of(render(Display(rows, tuple(rows[0])), "latex"))[2:8]
    assert header == r"System & Model & Context (tokens) & Decode (tok/s) \\"
    assert body == [
        r"hilos & a & 8192 & 12.35 \\",
        r"& & 16384 & 0.25 \\",
        r"& b & 8192 & OOM \\",
        r"inf2 & b & 8192 & 1,234.50 \\",
    ]


def test_markdown_keeps_bars_in_their_cells() -> None:
    header, _, first, _ = render(Display(ROWS), "markdown").splitlines()
    assert header.split() == ["|", "system", "|", "step_ms", "|", "what", "|"]
    assert r"a & b \| c" in first


def test_latex_escapes_and_prints_units() -> None:
    text = render(Display(ROWS), "latex", "Steps of 100 %", "tab:steps")
    lines = lines_of(text)
    assert r"System & Step (ms) & What \\" in lines
    assert r"hilos & 12.5 & a \& b \textbar{} c \\" in lines
    assert r"inf2 & inf & 50 \% of x\_1 \\" in lines
    assert r"\caption{Steps of 100 \%}" in text
    assert r"\label{tab:steps}" in text
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 1
    assert not re.search(r"(?<!\\)_", text)


def test_one_row_of_many_quantities_stands_upright_in_latex() -> None:
    row = {f"number_{i}_ms": float(i) for i in range(8)} | {"note": "its sentence"}
    text = render(Display([row]), "latex")
    assert r"Number 3 (ms) & 3 \\" in lines_of(text)
    assert r"{\footnotesize note: its sentence\par}" in text


def test_latex_says_what_does_not_fit_a_page() -> None:
    rows = [{f"quantity_{i}": i + j for i in range(12)} for j in range(2)]
    first, *lines = render(Display(rows, tuple(rows[0])), "latex").splitlines()
    assert re.fullmatch(r"% --columns shows quantity_\d+, .*quantity_11 too", first)
    assert lines[0].startswith(r"\begin{tabular}")
    assert len(lines[2].split(" & ")) < 12


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="LaTeX is not installed")
def test_latex_compiles(tmp_path: Path) -> None:
    table = render(Display(ROWS), "latex", "Steps")
    head = r"\documentclass{article}\usepackage{booktabs}\begin{document}"
    (tmp_path / "table.tex").write_text(f"{head}{table}\\end{{document}}")
    command = ["pdflatex", "-halt-on-error", "table.tex"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
