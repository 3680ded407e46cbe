"""Tables as people read them: what varies is there, everything fits, catalogues answer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.command_line import printed

TWO = ("flexgen-ssd", "hilos", "--model", "opt-66b", "--context", "8k")


@pytest.mark.parametrize("form", ["table", "markdown", "latex", "csv"])
def test_a_swept_number_is_a_column_in_every_format(form: str) -> None:
    text = printed("compare", *TWO, "--set", "precision.kv=16bit,8bit", "--format", form)
    assert "precision.kv" in text.replace("\\_", "_")


def test_a_column_asked_for_by_name_is_shown_even_where_it_is_blank() -> None:
    text = printed("compare", *TWO, "--columns", "system,short_of")
    assert "short_of" in text


@pytest.mark.parametrize(
    "words",
    [
        ("compare", *TWO, "--set", "csd.count=4,8,16"),
        ("estimate", "hilos", "--model", "opt-66b"),
        ("systems",),
        ("systems", "show", "hilos"),
        ("models",),
        ("hardware",),
        ("hardware", "show", "a100-40gb"),
        ("columns",),
        ("solve", "alpha", "--model", "opt-66b,opt-30b"),
        ("pareto", "--system", "hilos", "--model", "opt-66b", "--set", "csd.count=1,2"),
    ],
    ids=" ".join,
)
def test_at_80_columns_no_line_is_longer(words: tuple[str, ...]) -> None:
    assert max(len(line) for line in printed(*words).splitlines()) <= 80


def test_systems_without_knobs_and_files_of_parts_are_shown() -> None:
    assert "It has no knobs" in printed("systems", "show", "hbm-8")
    part = Path(__file__).parents[3] / "hardware" / "parts" / "a100-40gb.toml"
    assert "flops" in printed("hardware", "show", str(part))


def test_whole_numbers_are_printed_in_full() -> None:
    """Qwen2.5's vocabulary has 152,064 words; four digits would say 152,100."""
    rows = json.loads(printed("models", "show", "qwen2.5-32b", "--format", "json"))
    vocab = next(row["value"] for row in rows if row["key"] == "vocab")
    assert f" {vocab} " in printed("models", "show", "qwen2.5-32b")


def test_a_column_is_defined() -> None:
    (row,) = json.loads(printed("columns", "show", "step_ms", "--format", "json"))
    assert row["unit"] == "ms"
    assert "token" in row["what"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("sweep", "hilos"), "is a system, no study; write --system hilos"),
        (("sweep", "inf2-fig100"), "did you mean 'inf2-fig10'"),
        (("estimate", "hilos", "--model", "opt-66b", "--seed", "3"), "give --trace, or leave"),
        (("estimate", "hilos", "--batch", "4", "--batch", "8"), "--batch: is given twice"),
        (("systems", "--format", "json", "show", "hilos"), "put it behind the command"),
        (("columns", "show", "step_m"), "did you mean 'step_ms'"),
        (("compare", *TWO, "--ratio", "note"), "unknown column of numbers 'note'"),
        (("estimate", "hi\x1b[31mlos", "--model", "opt-66b"), "unknown system"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_nothing_is_silently_ignored(words: tuple[str, ...], sentence: str) -> None:
    text = printed(*words, code=2)
    assert sentence in text
    assert "\x1b" not in text


def test_studies_are_found_by_name() -> None:
    assert printed("sweep", "hillinfer-fig13", "--columns", "system,step_ms").count("\n") > 2


def test_a_breakdown_and_its_notes_are_shown() -> None:
    """What an option asks for stands in the table, and so do the numbers of the sentences below."""
    text = printed("compare", *TWO, "--breakdown")
    for name in ("time_s:host.file", "time_s:gpu.tensor", "note", "step_ms", "speedup"):
        assert f" {name}" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.slow
def test_more_rows_than_a_reader_sees_are_printed_as_csv_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nearkv.sweeps.tables.table.MOST_SHOWN", 3)
    words = ("compare", *TWO, "--set", "csd.count=4,8", "--format")
    header, *rows = printed(*words, "csv").splitlines()
    assert header.startswith("system,model,")
    assert len(rows) == 4
    assert "more than 3 rows are too many to read" in printed(*words, "markdown", code=2)


def test_a_comparison_of_two_platforms_ends_with_the_faster() -> None:
    words = ("hilos", "--model", "opt-66b", "--platform", "hilos-a100,hilos-h100")
    last = printed("compare", *words).splitlines()[-1]
    assert last.startswith("hilos-h100 decodes fastest, 1.")


def test_a_comparison_concludes_on_what_every_system_has(tmp_path: Path) -> None:
    """L3 has no decode rate with a trace: what all have in common is the throughput."""
    words = "compare rank-pim l3 --model gpt-175b --trace dolphin --columns"
    table = printed(*words.split(), "system,throughput_tok_s").splitlines()
    first, second, last = table[-3:]
    ratio = float(second.split()[-1]) / float(first.split()[-1])
    assert last == f"l3 has the highest throughput, {ratio:.3g} times rank-pim."
    trace = tmp_path / "trace.csv"
    trace.write_text("input_tokens,output_tokens\n" + "100,40\n" * 8)
    queued = ("compare", "l3", "gpu-only", "--model", "gpt-175b", "--trace", str(trace))
    simulated = printed(*queued, "--method", "simulate", "--columns", "system").splitlines()
    assert re.match(r"(l3|gpu-only) has the highest throughput[.,]", simulated[-1])


def test_a_comparison_of_equals_names_both() -> None:
    words = "compare hilos flexgen-dram --model llama3.1-70b --context 1k,4k --columns"
    text = printed(*words.split(), "system,decode_tok_s")
    rates = [line.split()[-1] for line in text.splitlines()[2:6]]
    assert rates[0] == rates[2]
    assert " ".join(text.split()).endswith(
        "hilos and flexgen-dram are equal and decode fastest at 1 of 2 points; "
        "hilos decodes fastest at 1 of 2 points."
    )


def test_a_system_is_not_said_to_be_faster_than_itself() -> None:
    words = "compare flexgen-ssd hilos --model deepseek-v3 --batch 16 --context 64k --knob"
    text = printed(*words.split(), "weights=paper,auto", "--columns", "step_ms").strip()
    assert text.endswith("flexgen-ssd decodes fastest, 1.88 times its first row.")
