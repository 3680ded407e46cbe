"""Options that `compare` and `sweep` refuse together, and files that they write all the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
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


@pytest.mark.parametrize("option", ["--columns", "--pivot"])
@pytest.mark.parametrize(
    "command", [("estimate", "hilos"), ("compare", "hilos"), ("sweep", "--system", "hilos")]
)
def test_a_column_of_no_answer_is_refused_before_the_work(
    command: tuple[str, ...], option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearkv.sweeps.evaluate.columns.resolve_knobs", None)
    sentence = refusal(*command, "--model", "opt-66b", option, "kv_share")
    assert f"{option}: unknown column 'kv_share'" in sentence


def test_columns_of_a_machine_a_knob_and_a_ratio_are_known() -> None:
    """A knob that a number of the machine stands for, such a number, a resource, a ratio."""
    names = "devices,csd.count,time_s:gpu_link.in,step_ms_ratio"
    words = ("compare", "hilos", "--model", "opt-66b", "--set", "csd.count=4,8")
    shown = ("--ratio", "step_ms", "--columns", names, "--format", "csv")
    assert succeed(*words, *shown).startswith(names)


def test_a_ratio_is_among_the_columns_that_are_named() -> None:
    words = ("compare", "hilos", "flexgen-ssd", "--model", "opt-66b", "--format", "csv")
    text = succeed(*words, "--ratio", "tok_s_per_kusd", "--columns", "system,step_ms")
    header, first, _ = text.splitlines()
    assert header == "system,step_ms,tok_s_per_kusd_ratio"
    assert first.endswith(",1")


def test_a_dash_of_a_system_that_runs_is_explained() -> None:
    """L3's prompts ride in its steps where half of them fill the memory: it has no decode rate."""
    words = ("compare", "gpu", "l3", "--platform", "common", "--model", "llama3.1-8b")
    text = succeed(*words, "--context", "1k,1M", "--columns", "decode_tok_s")
    assert "-: l3 runs at 1 design point without decode_tok_s; `nearkv columns" in text
    assert "without" not in succeed(*words, "--context", "1k", "--columns", "decode_tok_s,tp")


def test_answers_of_more_than_a_minute_are_told() -> None:
    """FLEX(SSD) reads all K and V of 16 sequences of 32k from four drives in every step."""
    words = ("--model", "opt-66b", "--context", "1k,32k", "--columns", "step_ms,cost_usd")
    text = succeed("compare", "flexgen-ssd", *words)
    assert re.search(r"slow: ttft_s \d+ in 1 of 2 rows, more than a minute\.", text)
    assert re.search(r"slow: tpot_ms [\d,]+ in 1 of 2 rows", text)
    assert "slow:" not in succeed("compare", "gpu", "--platform", "common", *words)


def test_what_can_be_installed_is_compared() -> None:
    words = ("--platform", "common", "--model", "llama3.1-8b", "--columns", "origin")
    text = succeed("compare", "--installable", *words, "--format", "csv")
    named = {line.split(",")[0] for line in text.splitlines()[1:]}
    assert named == {"engine"}
    rest = succeed("compare", "hilos", "gpu", "rank-pim", *words, "--format", "csv")
    assert rest.split() == ["origin", "paper", "engine", "baseline"]
    assert "--installable leaves no system" in refusal("compare", "l3", "--installable", *words)
    assert "name systems" in refusal("compare", *words)


PAIR = ("compare", "gpu", "cpu-offload", "--platform", "dgx-a100-pim", "--model", "opt-66b")
BANDED = (*PAIR, "--context", "2k", "--band", "90", "--samples", "16")
COVERED = r"Of sources left out, .*\d+ % \(most time: GPU\) of rows lie inside their 90 % band\."


def test_columns_that_are_named_come_with_their_bands() -> None:
    """A file has what was named alone; coverage is that of rows without their own source."""
    chosen = ("--columns", "system,decode_tok_s")
    shown = succeed(*BANDED, *chosen)
    assert shown.split()[:4] == ["system", "decode_tok_s", "decode_tok_s_p05", "decode_tok_s_p95"]
    assert re.search(COVERED, " ".join(shown.split()))
    plain = succeed(*BANDED, *chosen, "--format", "csv")
    assert plain.splitlines()[0] == "system,decode_tok_s"
    assert "left out" not in succeed(*PAIR, "--context", "2k", *chosen)


def test_bands_of_users_are_those_of_whole_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load has no rate of decoding, whose ratio was four columns of dashes."""
    monkeypatch.setenv("COLUMNS", "200")
    words = [word if word != "cpu-offload" else "rank-pim" for word in BANDED]
    header = succeed(*words, "--users", "2").splitlines()[1].split()
    assert {"ttft_s_p05", "ttft_s_p95", "total_speedup_p05", "total_faster_share"} <= {*header}
    assert not {"speedup_p05", "faster_share"} & {*header}


@pytest.mark.parametrize(
    ("name", "when"),
    [
        ("ttft_p90_s", "with --method simulate alone"),
        ("fits_share", "with --band"),
        ("gpu.count", "a column where --set states it"),
    ],
)
def test_a_column_that_other_answers_have_says_when(name: str, when: str) -> None:
    words = ("compare", "gpu", "--model", "llama3.1-8b", "--rate", "1", "--columns", name)
    sentence = refusal(*words)
    assert f"--columns {name}: no row here has it" in sentence
    assert when in sentence
