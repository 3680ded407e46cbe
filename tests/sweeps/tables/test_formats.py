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


def test_json_has_no_infinity_and_csv_has() -> None:
    assert json.loads(render(Display(ROWS), "json"))[1]["step_ms"] is None
    assert render(Display(ROWS), "csv").splitlines()[2].startswith("inf2,inf,")


def test_markdown_keeps_bars_in_their_cells() -> None:
    header, _, first, _ = render(Display(ROWS), "markdown").splitlines()
    assert header.split() == ["|", "system", "|", "step_ms", "|", "what", "|"]
    assert r"a & b \| c" in first


def test_latex_escapes_and_prints_units() -> None:
    text = render(Display(ROWS), "latex", "Steps of 100 %", "tab:steps")
    assert r"system & step [ms] & what \\" in text
    assert r"hilos & 12.5 & a \& b \textbar{} c \\" in text
    assert r"inf2 & inf & 50 \% of x\_1 \\" in text
    assert r"\caption{Steps of 100 \%}" in text
    assert r"\label{tab:steps}" in text
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 1
    assert not re.search(r"(?<!\\)_", text)


def test_one_row_of_many_quantities_stands_upright_in_latex() -> None:
    row = {f"number_{i}_ms": float(i) for i in range(8)} | {"note": "its sentence"}
    text = render(Display([row]), "latex")
    assert r"number 3 [ms] & 3 \\" in text
    assert r"{\footnotesize note: its sentence\par}" in text


def test_latex_says_what_does_not_fit_a_page() -> None:
    rows = [{f"quantity_{i}": i + j for i in range(12)} for j in range(2)]
    first, *lines = render(Display(rows, tuple(rows[0])), "latex").splitlines()
    assert re.fullmatch(r"% --columns shows quantity_\d+, .*quantity_11 too", first)
    assert len(lines[2].split(" & ")) < 12


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="LaTeX is not installed")
def test_latex_compiles(tmp_path: Path) -> None:
    table = render(Display(ROWS), "latex", "Steps")
    head = r"\documentclass{article}\usepackage{booktabs}\begin{document}"
    (tmp_path / "table.tex").write_text(f"{head}{table}\\end{{document}}")
    command = ["pdflatex", "-halt-on-error", "table.tex"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
