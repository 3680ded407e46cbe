"""What `compare` and `sweep` refuse to show together, and what they write all the same."""

from __future__ import annotations

from pathlib import Path

from support.command_line import refusal, succeed


def test_a_chart_shows_no_breakdown() -> None:
    sentence = refusal("compare", "hilos", "--model", "opt-66b", "--chart", "--breakdown")
    assert "leave out --breakdown" in sentence


def test_a_chart_with_a_pivot_has_a_line_a_system_and_the_answer() -> None:
    words = ("compare", "flexgen-ssd", "hilos", "--model", "opt-66b", "--context", "1k,2k")
    printed = succeed(*words, "--chart", "--pivot", "context_tok").splitlines()
    assert printed[1].split() == ["1024", "2048"]
    assert [line.split()[0] for line in printed[2:4]] == ["flexgen-ssd", "hilos"]
    assert "decodes fastest" in printed[4]


def test_a_file_of_rows_has_no_pivot(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    words = ("sweep", "--system", "hilos", "--model", "opt-66b", "--context", "1k,2k")
    assert "--pivot" in refusal(*words, "--pivot", "context_tok", "-o", str(file))
    assert not file.exists()


def test_a_file_beside_a_pivot_can_be_drawn(tmp_path: Path) -> None:
    """README's first command and `-o` left one column, of which no figure could be made."""
    file = tmp_path / "table.csv"
    words = ("compare", "flexgen-ssd", "hilos", "--model", "opt-66b", "--context", "16k,64k")
    succeed(*words, "--columns", "decode_tok_s", "--pivot", "context_tok", "-o", str(file))
    succeed("plot", "bars", str(file), "--value", "decode_tok_s", "-o", str(tmp_path / "bars.svg"))


def test_a_long_comparison_is_written_and_succeeds(tmp_path: Path) -> None:
    """Rows beyond what a screen shows once ended in exit code 2, the file being written."""
    file = tmp_path / "k.csv"
    words = ["compare", "hilos", "flexgen-ssd", "--model", "opt-30b", "--batch", "1:5001:+1"]
    succeed(*words, "--columns", "batch,step_ms", "-o", str(file))
    assert len(file.read_text().splitlines()) == 1 + 2 * 5001
