"""Tables as people read them: what varies is there, everything fits, catalogues answer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.command_line import printed

from nearkv.hardware.errors import InputError
from nearkv.sweeps.tables.latex import Paper, latex
from nearkv.sweeps.tables.pivot import pivoted, value_column
from nearkv.sweeps.tables.terminal import lay_out

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


def test_what_does_not_fit_is_named_and_what_is_pinned_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = [f"column_{i}" for i in range(12)]
    rows = [dict.fromkeys(names, 123456), dict.fromkeys(names, 654321)]
    text = lay_out(rows, names, pinned=("column_11",))
    header, also = text.splitlines()[0].split(), text.split("also: ")[1]
    assert header[-1] == "column_11"
    assert set(header) | {name for name in names if name in also} == set(names)


def test_numbers_stand_on_the_right_and_names_are_never_cut() -> None:
    rows = [{"system": "a-very-long-name", "step_ms": 1.0}, {"system": "b", "step_ms": 22.5}]
    lines = lay_out(rows).splitlines()
    assert lines == [
        "system            step_ms",
        "----------------  -------",
        "a-very-long-name        1",
        "b                    22.5",
    ]


def test_sentences_stand_below_in_full_and_cells_hold_their_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    long = "on one platform, with eight GPUs, against another one"
    rows = [
        {"system": "a", "note": f"{long}; short"},
        {"system": "b", "note": "short"},
        {"system": "c", "note": ""},
    ]
    assert lay_out(rows, below=["c wins."]).splitlines() == [
        "system  note",
        "------  ----",
        "a       1,2",
        "b       2",
        "c       -",
        "1: on one platform, with eight GPUs,",
        "    against another one",
        "2: short",
        "c wins.",
    ]


def test_columns_asked_for_that_are_too_wide_go_on_in_a_second_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    names = ["system", "first_column", "second_column", "third_column"]
    rows = [dict.fromkeys(names, 1) | {"system": name} for name in ("hilos", "inf2")]
    lines = lay_out(rows, pinned=names).splitlines()
    assert [line.split() for line in lines if line.startswith("system")] == [
        ["system", "first_column"],
        ["system", "second_column"],
        ["system", "third_column"],
    ]
    assert max(map(len, lines)) <= 30


def test_many_quantities_of_one_row_stand_in_two_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    row: dict[str, object] = {f"quantity_{i}": i for i in range(21)}
    lines = lay_out([row | {"reason": "a sentence of its own"}]).splitlines()
    assert lines[0].split() == ["quantity_0", "0", "quantity_11", "11"]
    assert lines[-1] == "reason: a sentence of its own"
    assert len(lines) == 12


def test_latex_aligns_numbers_and_prints_units() -> None:
    rows = [{"system": "hilos", "step_ms": 12.5, "note": "a & b"}]
    text = latex(rows, ["system", "step_ms", "note"], Paper("Steps", "tab:steps"))
    assert r"\begin{tabular}{lS[table-format=2.1]l}" in text
    assert r"{system} & {step [\unit{\milli\second}]} & {note} \\" in text
    assert r"hilos & 12.5 & a \& b \\" in text
    assert r"\caption{Steps}" in text
    assert r"\label{tab:steps}" in text
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 1


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


def test_every_header_of_latex_is_escaped() -> None:
    """An underscore outside mathematics ends a run of LaTeX; siunitx aligns no infinity."""
    row = {"system": "a", "tok_s_per_kusd": 1.0, "endurance_requests": float("inf")}
    text = latex([row], list(row), Paper())
    assert r"{throughput per price [\unit{tok/\second/kUSD}]}" in text
    assert r"a & 1 & {$\infty$} \\" in text
    assert not re.search(r"(?<!\\)_", text)


@pytest.mark.slow
def test_more_rows_than_anybody_reads_are_printed_as_csv_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nearkv.sweeps.tables.table.MOST_SHOWN", 3)
    words = ("compare", *TWO, "--set", "csd.count=4,8", "--format")
    header, *rows = printed(*words, "csv").splitlines()
    assert header.startswith("system,model,")
    assert len(rows) == 4
    assert "more than 3 rows are too many to read" in printed(*words, "markdown", code=2)


def test_answers_of_a_solver_are_cells_of_a_pivot() -> None:
    words = "solve alpha --model opt-66b,opt-30b --context 8k,16k --columns value"
    text = printed(*words.split(), "--pivot", "context_tok")
    assert re.search(r"^model +8192 +16384\n.*\nopt-66b +0\.\d+ +0\.\d+\nopt-30b ", text, re.M)


@pytest.mark.slow
def test_a_pivot_refuses_answers_and_two_values() -> None:
    words = ("compare", *TWO, "--set", "csd.count=4,8", "--pivot")
    assert "is an answer; what varies is" in printed(*words, "step_ms", code=2)
    both = ("csd.count", "--columns", "step_ms,energy_j_tok")
    assert "choose between step_ms and energy_j_tok" in printed(*words, *both, code=2)
    assert "csd.count, model opt-66b" in printed(*words, "csd.count")


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


def test_a_pivot_needs_one_number_a_cell() -> None:
    rows = [{"system": "s", "model": "a", "ms": ms} for ms in (1.0, 2.0)]
    with pytest.raises(InputError, match="several rows have model a"):
        pivoted(rows, "model", "ms", [], ["model"])
    with pytest.raises(InputError, match="unknown column 'modle'; did you mean 'model'"):
        pivoted(rows, "modle", "ms", [], ["model"])
    with pytest.raises(InputError, match="name the column of its cells"):
        value_column(rows, "model", [], ["model"])
