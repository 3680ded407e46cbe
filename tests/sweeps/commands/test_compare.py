"""What `compare` and `sweep` refuse to show together."""

from __future__ import annotations

from pathlib import Path

from support.command_line import refusal


def test_a_chart_shows_no_breakdown() -> None:
    sentence = refusal("compare", "hilos", "--model", "opt-66b", "--chart", "--breakdown")
    assert "leave out --breakdown" in sentence


def test_a_chart_has_no_pivot() -> None:
    words = ("compare", "hilos", "--model", "opt-66b", "--context", "1k,2k", "--chart")
    assert "leave out --pivot" in refusal(*words, "--pivot", "context_tok")


def test_a_file_of_rows_has_no_pivot(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    words = ("sweep", "--system", "hilos", "--model", "opt-66b", "--context", "1k,2k")
    assert "--pivot" in refusal(*words, "--pivot", "context_tok", "-o", str(file))
    assert not file.exists()
