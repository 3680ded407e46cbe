"""Tables as people read them, on a terminal of 80 columns, in a pipe and in files."""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.command_line import invoke, printed
from support.measured_runs import write_runs
from support.screen import Screen

from nearkv.cli import app, complain
from nearkv.costmodel.model import registry
from nearkv.hardware.errors import InputError
from nearkv.sweeps.commands.files import write_new
from nearkv.sweeps.commands.messages import telling_time
from nearkv.sweeps.tables.table import three_digits

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


def test_systems_without_knobs_and_files_of_parts_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bare = replace(registry.find_system("hbm-8"), knobs={})
    monkeypatch.setitem(registry._SYSTEMS, "hbm-8", bare)
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
        (("estimate", "hilos", "--batch", "4", "--batch", "8"), "--batch is given twice"),
        (("systems", "--format", "json", "show", "hilos"), "put it behind the command"),
        (("columns", "show", "step_m"), "did you mean 'step_ms'"),
        (("columns", "show", "alpha"), "alpha is a knob, and its column what was stated or solved"),
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
    monkeypatch.setattr("nearkv.sweeps.tables.table.MOST_ROWS_SHOWN", 3)
    words = ("compare", *TWO, "--set", "csd.count=4,8", "--format")
    header, *rows = printed(*words, "csv").splitlines()
    assert header.startswith("system,model,")
    assert len(rows) == 4
    assert "more than 3 rows are too many to read" in printed(*words, "markdown", code=2)


def test_a_comparison_of_two_platforms_ends_with_the_faster() -> None:
    words = ("hilos", "--model", "opt-66b", "--platform", "hilos-a100,hilos-h100")
    last = printed("compare", *words).splitlines()[-1]
    assert last.startswith("hilos-h100 decodes fastest (decode_tok_s ")
    assert re.search(r"\), 8\.\d+ % above hilos-a100\.", last)


def test_a_comparison_concludes_on_what_every_system_has(tmp_path: Path) -> None:
    """L3 has no decode rate with a trace: what all have in common is the throughput."""
    words = "compare rank-pim l3 --model gpt-175b --trace dolphin --columns"
    table = printed(*words.split(), "system,throughput_tok_s").splitlines()
    first, second, last = table[-3:]
    theirs, ours = (float(line.split()[-1]) for line in (first, second))
    rate = f"(throughput_tok_s {three_digits(ours)})"
    assert last == f"l3 has the highest throughput {rate}, {ours / theirs:.3g} times rank-pim."
    trace = tmp_path / "trace.csv"
    trace.write_text("input_tokens,output_tokens\n" + "100,40\n" * 8)
    queued = ("compare", "l3", "gpu", "--model", "gpt-175b", "--trace", str(trace))
    simulated = printed(*queued, "--method", "simulate", "--columns", "system,platform")
    last = simulated.splitlines()[-1]
    assert re.match(r"(l3|gpu) has the highest throughput \(throughput_tok_s", last)


def test_a_comparison_of_equals_names_both() -> None:
    words = "compare hilos flexgen-dram --model llama3.1-70b --context 1k,4k --columns"
    text = printed(*words.split(), "system,decode_tok_s")
    rates = [line.split()[-1] for line in text.splitlines()[2:6]]
    assert rates[0] == rates[2]
    one, other = (f"(decode_tok_s {three_digits(float(rate))})" for rate in rates[:2])
    assert (
        f"hilos and flexgen-dram are equal and decode fastest at 1 of 2 points {one}; "
        f"hilos decodes fastest at 1 of 2 points {other}."
    ) in " ".join(text.split())


def test_a_system_is_not_said_to_be_faster_than_itself() -> None:
    words = "compare flexgen-ssd hilos --model deepseek-v3 --batch 16 --context 64k --knob"
    text = printed(*words.split(), "weights=paper,auto", "--columns", "system,weights,step_ms")
    assert ", 1.89 times its first row." in text


DEFAULTS = ("compare", "hilos", "inf2", "--model", "llama3.1-8b", "--batch", "4")


def test_columns_are_those_that_are_named_and_the_axes_that_vary() -> None:
    """HILOS buffers 16 rows, INF2 2: nobody asked for an axis of that."""
    words = (*DEFAULTS, "--context", "16k,32k", "--columns")
    named = printed(*words, "system,context_tok,decode_tok_s")
    assert named.split()[:3] == ["system", "context_tok", "decode_tok_s"]
    fewer = printed(*words, "decode_tok_s")
    assert fewer.split()[:3] == ["system", "context_tok", "decode_tok_s"]
    exact = printed(*words, "decode_tok_s", "--format", "csv")
    assert exact.splitlines()[0] == "decode_tok_s", "a script reads the columns that it names"


def test_machines_that_columns_leave_out_are_told_once() -> None:
    """HILOS runs on its own test bed, INF2 on one with other drives."""
    words = (*DEFAULTS, "--context", "16k,32k", "--columns")
    told = " ".join(printed(*words, "system,context_tok,decode_tok_s").split())
    assert told.count("hilos: on hilos-a100; 1 a100-40gb, 1 xeon-6342-1s, 8 smartssd, ") == 1
    assert re.search(r"inf2: on inf2-a100; .*; 75,400 USD; \d+ (to \d+ )?W\.", told)
    assert "USD" not in printed(*words, "system,context_tok,platform")
    alike = printed(*words, "system,context_tok,step_ms", "--platform", "inf2-a100")
    assert "USD" not in alike


@pytest.mark.parametrize(
    "form",
    [("--pivot", "context_tok", "--columns", "step_ms"), ("--chart", "--columns", "step_ms")],
)
def test_what_makes_rows_unequal_stands_below(form: tuple[str, ...]) -> None:
    """On one platform both own the same parts, of which other ones attend."""
    words = (*DEFAULTS, "--platform", "common", "--context", "16k,32k")
    told = " ".join(printed(*words, *form).split())
    assert re.search(r"hilos: attention on csd( and gpu)?; 93,400 USD; \d+ to \d+ W\.", told)
    assert "inf2: attention on host and gpu; K and V fit host memory: the CPU attends" in told


@pytest.mark.parametrize("form", ["table", "markdown", "latex"])
@pytest.mark.parametrize("pivot", [(), ("--pivot", "context_tok")])
def test_out_of_memory_is_not_a_dash(form: str, pivot: tuple[str, ...]) -> None:
    """384k tokens at once fit neither; CSV leaves the cell blank, as numbers need it."""
    words = (*DEFAULTS[:3], "--model", "llama3.1-70b", "--context", "64k,384k", *pivot)
    words = (*words, "--knob", "chunk=0")
    words = (*words, "--columns", "system,context_tok,decode_tok_s", "--format")
    text = printed(*words, form)
    assert text.count("OOM") == (4 if form == "table" else 2)
    assert "OOM: hilos lacks memory in gpu." in text or form != "table"
    if form == "table":
        assert "OOM" not in printed(*words, "csv")


def test_a_memory_that_is_shown_is_not_told_again() -> None:
    words = (*DEFAULTS[:3], "--model", "llama3.1-70b", "--context", "384k", "--knob", "chunk=0")
    text = printed(*words, "--columns", "system,short_of")
    assert "gpu" in text
    assert "OOM:" not in text


def test_a_system_that_is_not_modelled_says_why() -> None:
    words = ("compare", "hilos", "gpu", "--model", "deepseek-v3.2", "--columns")
    (row, *_) = json.loads(printed(*words[:-1], "--format", "json"))
    assert row["status"] == "not-modelled"
    text = " ".join(printed(*words, "system,step_ms").split())
    assert "hilos n/m" in text
    assert f"n/m: hilos: {row['reason']}." in text
    assert row["reason"] in " ".join(printed(*words[:-1]).split())


@pytest.mark.parametrize(
    "words",
    [
        "compare hilos --columns decode_tok_s",
        "estimate hilos --explain",
        "sensitivity hilos",
        "compare hilos flexgen-ssd --chart",
    ],
)
def test_sizes_that_stand_in_no_column_are_told_where_they_are_the_defaults(words: str) -> None:
    asked = (*words.split(), "--model", "opt-66b")
    assert "At batch 16, context_tok 32,768, output_tokens 64, as by default." in printed(*asked)
    stated = printed(*asked, "--batch", "8", "--context", "16k")
    assert "At output_tokens 64, as by default." in stated


@pytest.mark.parametrize(
    ("words", "sizes"),
    [
        ("batch --columns value", "context_tok 32,768, output_tokens 64"),
        ("crossover --along context=1k:1M --columns to", "batch 16, output_tokens 64"),
    ],
)
def test_a_size_that_is_searched_is_no_default(words: str, sizes: str) -> None:
    text = printed("solve", *words.split(), "--model", "opt-66b")
    assert f"At {sizes}, as by default." in text


def test_what_rows_are_ranked_by_is_told() -> None:
    grid = ("sweep", "--system", "hilos", "--model", "opt-66b", "--batch", "1,4,16")
    words = (*grid, "--quiet", "--top", "2")
    ranked = json.loads(printed(*words, "--format", "json"))
    high, low = (three_digits(row["throughput_tok_s"]) for row in ranked)
    text = printed(*words, "--columns", "batch", "--format", "table")
    assert f"The highest throughput_tok_s: {low} to {high}." in text
    wide = (*words, "--set", "csd.count=4,8", "--set", "csd.p2p_read=3GB/s", "--format", "table")
    assert " throughput_tok_s" in printed(*wide)


def test_a_note_that_all_rows_share_is_told_once() -> None:
    """At exactly 128k the answer's tokens exceed a window of 131,072."""
    words = ("compare", "flexgen-ssd", "hilos", "--model", "llama3.1-70b", "--context", "128k")
    text = printed(*words)
    assert text.count("exceed the model's context window") == 1
    assert "all rows: prompt and output exceed" in text


@pytest.mark.parametrize(
    ("models", "warned"), [("llama2-7b,llama3.1-8b", ["llama2-7b"]), ("opt-66b", [])]
)
def test_a_context_beyond_a_window_is_warned_of_once(models: str, warned: list[str]) -> None:
    """Llama 2 was made for 4,096 tokens; of OPT papers take the shapes alone."""
    words = ("--platform", "h200-node", "--context", "2k,8k,16k", "--columns", "decode_tok_s")
    done = invoke("compare", "gpu", "--model", models, *words, "--format", "csv")
    lines = done.stderr.splitlines()
    assert [line.split()[2] for line in lines] == warned
    assert all("4,096 tokens, and context_tok is up to 16,384" in line for line in lines)
    assert "warning" not in done.stdout


def test_a_prompt_that_fills_a_window_is_warned_of_its_answer() -> None:
    words = ("--platform", "h200-node", "--context", "4k", "--columns", "decode_tok_s")
    done = invoke("compare", "gpu", "--model", "llama2-7b", *words)
    assert "4,096 tokens, and context_tok with output_tokens exceeds it" in done.stderr


def test_a_blank_price_of_tokens_says_what_is_missing() -> None:
    """The price is known, its terms are not: no platform of the papers states any."""
    text = printed("estimate", "hilos", "--model", "opt-66b", "--columns", "usd_mtok,cost_usd")
    assert "hilos runs at 1 design point without usd_mtok" in " ".join(text.split())
    assert "states no terms of ownership" in " ".join(text.split())
    assert "without cost_usd" not in text


CONTEXTS = ("flexgen-ssd", "hilos", "--model", "opt-66b", "--context", "8k,16k")
CAPTION = ("--caption", "Steps", "--label", "tab:steps")


@pytest.mark.parametrize(
    "words",
    [
        ("compare", *CONTEXTS),
        ("estimate", "hilos", "--model", "opt-66b"),
        ("sweep", "--system", "hilos", "--model", "opt-66b", "--context", "8k,16k"),
        ("sweep", "--system", "hilos", "--model", "opt-66b", "--batch", "1,2", "--top", "1"),
        ("solve", "alpha", "--model", "opt-66b"),
        ("systems",),
        ("models", "show", "opt-66b"),
        ("compare", *CONTEXTS, "--pivot", "context_tok"),
    ],
)
@pytest.mark.slow
def test_the_ending_says_the_format(words: tuple[str, ...], tmp_path: Path) -> None:
    """Beside each stand the sources of its numbers, as beside CSV."""
    endings = [("md", "| "), ("tex", r"\begin{table}"), ("json", "[")]
    # one writer serves all commands: the first is written in each form
    for ending, beginning in endings if words == ("compare", *CONTEXTS) else endings[2:]:
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
    printed("compare", *CONTEXTS, "-o", str(file))
    text = file.read_text()
    assert "model opt-66b, platform hilos-a100" in text
    assert r"\\ all rows: prompt and output exceed" in text
    assert text.startswith("% --columns shows alpha, ")
    header = next(line for line in text.splitlines() if line.startswith(" System "))
    assert len(header.split(" & ")) < 9
    tree = ("estimate", "hilos", "--model", "opt-66b", "--explain", "--columns", "span,equation")
    printed(*tree, "-o", str(file))
    assert r"h s\^{}2" in file.read_text()
    printed("estimate", "hilos", "--model", "opt-66b", "-o", str(file))
    assert re.search(r"Bottleneck +& gpu\.tensor +\\\\", file.read_text())


def test_what_a_file_for_readers_cannot_hold_is_refused(tmp_path: Path) -> None:
    sweep = ("sweep", "--system", "hilos", "--model", "opt-66b", "--context")
    file = str(tmp_path / "table.md")
    many = printed(*sweep, "1:20000:+1", "-o", file, code=2)
    assert "too many to read; write .csv, .jsonl or .parquet" in many
    assert "not for" in printed(*sweep, "8k", "-o", file, "--jobs", "2", code=2)
    assert "-o FILE.tex" in printed("compare", *CONTEXTS, "-o", file, *CAPTION, code=2)
    assert "leave out one" in printed("compare", *CONTEXTS, "-o", file, "--chart", code=2)
    assert not list(tmp_path.iterdir())


README = (Path(__file__).parents[3] / "README.md").read_text()
COMMANDS = list(
    dict.fromkeys(
        line.split("  #")[0].strip()
        for line in re.findall(r"(?:^    |`|<!-- |\| )nearkv ([a-z][^`|>\n]*)", README, re.M)
    )
)
NEEDS_FILES = ("plot", "report", "calibrate", "validate")
"""Commands that draw, read a user's own file, or take long: tests of their own are below."""
TABLES = [
    line
    for line in COMMANDS
    # every split of eight GPUs at four rates takes long, and prints the columns of a comparison;
    # tests/docs/test_readme.py asks the question of design
    if line.split()[0] not in (*NEEDS_FILES, "design")
    and "-o " not in line
    and "--rate 1:8" not in line
]


def test_the_readme_has_commands() -> None:
    assert len(TABLES) > 12


@pytest.mark.parametrize("line", COMMANDS)
def test_each_command_of_the_readme_is_one(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command and option exists; nothing is run."""
    monkeypatch.setattr("nearkv.cli.Command.invoke", lambda *_: None)
    printed(*shlex.split(line))


SEARCHES = ("solve batch", "solve crossover", "solve tiers", "reuse --trace")
"""Commands that take more than half a second, shown by `make deep`: others print such tables."""


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, marks=pytest.mark.deep if line.startswith(SEARCHES) else ())
        for line in TABLES
    ],
)
@pytest.mark.slow
def test_a_terminal_shows_each_command_of_the_readme(
    line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No line is cut; a conclusion ends what is longer than the screen."""
    monkeypatch.chdir(tmp_path)
    screen = Screen(monkeypatch)
    words = [word for word in shlex.split(line) if word not in ("--format", "markdown")]
    app(words, standalone_mode=False)
    lines = screen.text().splitlines()
    assert lines
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    assert len(lines) < 24 or lines[-1].endswith((".", ")"))


@pytest.mark.parametrize(
    "line",
    [
        "estimate hilos --model opt-66b",
        "systems show hilos",
        "solve beta --model qwen-7b",
        "solve placement --model opt-30b --gpu-batch 8 --num-batches 2",
        "solve alpha --model opt-66b --context 32k",
        "solve batch --model opt-66b --slo step_ms=50000",
    ],
)
@pytest.mark.slow
def test_answers_about_one_system_fit_a_screen(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(monkeypatch)
    app(shlex.split(line), standalone_mode=False)
    assert 0 < len(screen.text().splitlines()) < 24


def test_a_sweep_is_a_table_to_a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(monkeypatch)
    app(shlex.split("sweep --system hilos --model opt-66b --context 8k,16k"), standalone_mode=False)
    lines = screen.text().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "2 design points, 2 of them with an answer."


@pytest.mark.slow
def test_commands_that_write_files_keep_to_the_screen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those of the README, in its order: what one draws, another has written."""
    monkeypatch.chdir(tmp_path)
    writing = [line for line in COMMANDS if line.startswith(("sweep", "plot", "report"))]
    assert len(writing) == 3
    for line in writing:
        screen = Screen(monkeypatch)
        app(shlex.split(line), standalone_mode=False)
        lines = screen.text().splitlines()
        assert all(len(text) <= 80 for text in lines)
        assert len(lines) < 24


@pytest.mark.slow
def test_counts_of_claims_stand_below_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts by paper stand below the claims, the verdict last."""
    screen = Screen(monkeypatch)
    app(["validate", "hillinfer"], standalone_mode=False)
    lines = screen.text().splitlines()
    assert max(map(len, lines)) <= 80
    assert "yes_no" in "".join(lines[-12:])
    assert re.fullmatch(r"\d+ claims: .*\.", lines[-1])


@pytest.mark.slow
def test_a_fit_fits_the_screen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """README's command; its runs are those of a host whose DRAM scores at 0.3 of its rate."""
    monkeypatch.chdir(tmp_path)
    write_runs(tmp_path / "my.csv", {"derate.cpu_scoring": 0.3}, ("hillinfer",))
    (line,) = [line for line in COMMANDS if line.startswith("calibrate")]
    screen = Screen(monkeypatch)
    words = ["--platform", "aipc-4090", "--factor", "derate.cpu_scoring"]
    app([*shlex.split(line), *words], standalone_mode=False)
    shown = screen.text()
    assert max(map(len, shown.splitlines())) <= 80
    assert "cpu_scoring" in shown


def test_a_long_sentence_wraps_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    sentence = "--model 'opt-67b': unknown; valid are: " + ", ".join(["opt-66b"] * 30)
    monkeypatch.setenv("COLUMNS", "80")
    for is_terminal in (True, False):
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda answer=is_terminal: answer)
        monkeypatch.setattr(sys, "stderr", stream)
        complain(sentence)
        lines = stream.getvalue().splitlines()
        assert " ".join(line.rstrip() for line in lines) == f"nearkv: {sentence}"
        assert (max(map(len, lines)) <= 80) == is_terminal


@pytest.mark.parametrize("end", ["csv", "md", "svg"])
def test_the_name_of_a_file_stays_on_one_line(tmp_path: Path, end: str) -> None:
    """A line break in it once let a name write lines of its own below what was written."""
    file = tmp_path / f"a\nnearkv: b\x1b[2J.{end}"
    done = invoke("compare", *TWO, "-o", str(file))
    assert file.exists()
    (line,) = done.stderr.splitlines()
    assert line.startswith("wrote ")
    assert "a nearkv: b [2J" in line


def test_infeasible_is_red_and_the_bottleneck_yellow(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "flexgen-dram hilos --model opt-175b --context 128k --columns system,status,bottleneck"
    screen = Screen(monkeypatch)
    app(["compare", *words.split()], standalone_mode=False)
    screen.text()
    lines = screen.received.decode().splitlines()
    assert [line[:5] for line in lines if "flexgen-dram\x1b" in line] == ["\x1b[31m"]
    assert any("\x1b[33m" in line for line in lines if line.startswith("hilos"))


def test_a_device_is_no_file_that_exists() -> None:
    with pytest.raises(InputError, match="is a device or a pipe"):
        write_new(Path("/dev/full"), "{}")


def test_a_file_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "proof.json"
    write_new(file, "first")
    with pytest.raises(InputError, match="File exists"):
        write_new(file, "second")
    assert file.read_text() == "first"


def test_a_command_that_takes_long_says_so_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    told, lines = threading.Event(), list[str]()

    def tell(line: str) -> None:
        lines.append(line)
        told.set()

    monkeypatch.setattr("nearkv.sweeps.commands.messages.tell", tell)
    monkeypatch.setattr("nearkv.sweeps.commands.messages.QUIET_SECONDS", 1e-3)
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr("sys.stderr", terminal)
    with telling_time(["solve", "alpha", "--model"]):
        assert told.wait(10)
    assert lines[0] == "solve alpha: 0 s so far"
    count = len(lines)
    with telling_time(["design", "gpu"]):
        pass
    assert len(lines) == count
