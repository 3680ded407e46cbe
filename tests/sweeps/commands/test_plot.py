"""`nearkv plot` as a user runs it: a figure from a file or a pipe, one sentence for bad input."""

from __future__ import annotations

import resource
import warnings
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure
from support.command_line import invoke, refusal, succeed

from nearkv.hardware.errors import InputError
from nearkv.sweeps.figures.reading import kept, read_table
from nearkv.sweeps.figures.style import save

TABLE = "system,context_tok,status,step_ms\nslow,1024,ok,2\nfast,1024,infeasible,\n"
PAIR = ("flexgen-dram", "hilos", "--model", "opt-30b")


def test_a_piped_table_becomes_a_figure(tmp_path: Path) -> None:
    file = tmp_path / "bars.svg"
    succeed("plot", "bars", "-", "--value", "step_ms", "-o", str(file), text=TABLE)
    text = file.read_text()
    assert "Step (ms)" in text
    assert "OOM" in text


@pytest.mark.slow
def test_a_table_of_a_command_becomes_a_map_with_its_boundary(tmp_path: Path) -> None:
    study = ["--model", "opt-30b", "--batch", "1,4"]
    table, flips = tmp_path / "table.csv", tmp_path / "flips.csv"
    systems = ["flexgen-dram", "hilos"]
    compare = ["compare", *systems, *study, "--context", "1k:8k:x2", "--format", "csv"]
    table.write_text(succeed(*compare))
    crossover = ["solve", "crossover", "--system", ",".join(systems), *study]
    along = ["--along", "context=1k:8k", "--of", "throughput_tok_s", "--format", "csv"]
    flips.write_text(succeed(*crossover, *along))
    file = tmp_path / "map.pdf"
    succeed("plot", "map", str(table), "--boundaries", str(flips), "-o", str(file))
    assert file.read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["bars", "nope.csv", "-o", "a.pdf"], "nope.csv does not exist"),
        (["bars", "/dev/zero", "-o", "a.pdf"], "/dev/zero is no table"),
        (["bars", "-", "-o", "a.gif"], "ends in one of .pdf, .svg, .png"),
        (["bars", "-", "-o", "no/such/folder/a.pdf"], "cannot be written"),
        (["bars", "-", "--value", "step", "-o", "a.pdf"], "step_ms"),
        (["bars", "-", "--width", "wide", "-o", "a.pdf"], "unknown width"),
        (["tornado", "-", "-o", "a.pdf"], "number"),
        (["breakdown", "-", "-o", "a.pdf"], "--breakdown"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], sentence: str) -> None:
    command = [*arguments]
    if arguments[:2] == ["bars", "-"] and "--value" not in arguments:
        command += ["--value", "step_ms"]
    assert sentence in refusal("plot", *command, text=TABLE)


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        (["--context", "1k,2k"], ["relative to FLEX(DRAM)", "Context (tokens)", "2k"]),
        (["--context", "1k:8k:+1k", "--columns", "step_ms"], ["Step (ms)", "8k"]),
        (["--context", "1k,2k", "--batch", "1,2"], ["Batch (sequences)", "HILOS"]),
        (["--breakdown"], ["Time (s)", "host.dram"]),
    ],
    ids=["bars", "lines", "map", "stack"],
)
@pytest.mark.slow
def test_a_comparison_draws_the_figure_that_suits_it(
    options: list[str], texts: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "figure.svg"
    succeed("compare", *PAIR, *options, "-o", str(file))
    svg = file.read_text()
    assert [text for text in texts if text not in svg] == []


@pytest.mark.slow
def test_a_sweep_draws_a_hardware_number_by_its_address(tmp_path: Path) -> None:
    file = tmp_path / "figure.svg"
    sets = ["--set", "csd.count=1:16:+1"]
    succeed("sweep", "--system", "hilos", "--model", "opt-30b", *sets, "-o", str(file))
    assert "csd.count" in file.read_text()


@pytest.mark.slow
def test_only_the_best_rows_of_a_sweep_are_drawn(tmp_path: Path) -> None:
    file = tmp_path / "figure.svg"
    axes = ["--system", "hilos", "--model", "opt-30b", "--context", "1k,2k", "--batch", "1,2,4"]
    succeed("sweep", *axes, "--best-per", "context_tok", "-o", str(file))
    assert "Context (tokens)" in file.read_text()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--context", "1k,2k", "--batch", "1,2", "--set", "csd.count=4,8"], "keep one value of"),
        (["--columns", "system"], "holds no numbers to draw"),
    ],
)
def test_what_no_figure_shows_is_one_sentence(options: list[str], sentence: str) -> None:
    assert sentence in refusal("compare", *PAIR, *options, "-o", "a.pdf")


def test_workers_are_refused_for_a_figure() -> None:
    axes = ["--system", "hilos", "--model", "opt-30b"]
    assert "not for a.pdf" in refusal("sweep", *axes, "--jobs", "2", "-o", "a.pdf")


def test_a_chart_takes_the_place_of_the_table() -> None:
    printed = succeed("compare", *PAIR, "--context", "1k,2k", "--columns", "step_ms", "--chart")
    title, *lines = printed.splitlines()
    rows = lines[:4]
    assert title == "Step (ms)"
    assert [row.split()[:2] for row in rows] == [
        ["flexgen-dram", "1024"],
        ["flexgen-dram", "2048"],
        ["hilos", "1024"],
        ["hilos", "2048"],
    ]
    assert all("█" in row for row in rows)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "does not exist; write it with"),
        ("", "is not a table that nearkv wrote"),
        ("batch,step_ms\n", "has no rows; there is nothing to draw"),
    ],
)
def test_a_file_without_a_table_is_refused(
    tmp_path: Path, content: str | None, sentence: str
) -> None:
    table = tmp_path / "table.csv"
    if content is not None:
        table.write_text(content)
    assert sentence in refusal("plot", "lines", str(table), "-o", str(tmp_path / "lines.svg"))


@pytest.mark.parametrize("name", ["rows.parquet", "rows.ndjson"])
def test_what_a_sweep_writes_is_drawn(tmp_path: Path, name: str) -> None:
    """Also the folder of parts that it writes as .parquet."""
    table, picture = str(tmp_path / name), tmp_path / "lines.svg"
    words = ("--system", "hilos", "--model", "opt-66b", "--context", "4k:64k:x2", "--quiet")
    succeed("sweep", *words, "-o", table)
    assert len(read_table(table)) == 5
    succeed("plot", "lines", table, "--value", "step_ms", "-o", str(picture))
    assert picture.stat().st_size > 0


def test_an_empty_folder_is_no_table(tmp_path: Path) -> None:
    (folder := tmp_path / "table.parquet").mkdir()
    said = refusal("plot", "lines", str(folder), "-o", str(tmp_path / "lines.svg"))
    assert "is a folder without parts of a sweep" in said
    (folder / "part-000000.parquet").mkdir()
    said = refusal("plot", "lines", str(folder), "-o", str(tmp_path / "lines.svg"))
    assert "is not an ordinary file" in said


def test_a_folder_is_no_table(tmp_path: Path) -> None:
    folder = tmp_path / "table.csv"
    folder.mkdir()
    said = refusal("plot", "lines", str(folder), "-o", str(tmp_path / "lines.svg"))
    assert "is not an ordinary file" in said


@pytest.mark.parametrize("form", ["pdf", "svg", "png"])
def test_a_full_disk_is_one_sentence(tmp_path: Path, form: str) -> None:
    """matplotlib's own writer of PDFs fails once more while it tidies up."""
    figure = Figure()
    figure.text(0.5, 0.5, "full")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(InputError, match="cannot be written"):
            save(figure, tmp_path / f"a.{form}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


def test_a_figure_keeps_the_rows_that_are_named() -> None:
    table = pd.DataFrame({"system": ["a", "b", "a"], "context_tok": [1024, 1024, 65536]})
    assert kept(table, ["context_tok=64k"])["context_tok"].tolist() == [65536]
    assert kept(table, ["system=a", "context_tok=1k"]).to_numpy().tolist() == [["a", 1024]]
    assert len(kept(table, ["system=a,b"])) == 3
    with pytest.raises(InputError, match="no row has that; there are 1024, 65536"):
        kept(table, ["context_tok=2k"])
    with pytest.raises(InputError, match="did you mean 'system'"):
        kept(table, ["sytem=a"])


def test_a_long_table_is_read_without_a_word(tmp_path: Path) -> None:
    """Blank reasons, then text: read piece by piece, pandas calls the column mixed."""
    rows = 300_000
    file = tmp_path / "long.csv"
    pd.DataFrame({"reason": [None] * rows + ["why"], "value": range(rows + 1)}).to_csv(file)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(read_table(str(file))) == rows + 1


def test_rows_without_a_number_or_a_reason_are_counted(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("system,model,step_ms\na,m,1\nb,m,inf\nc,m,nan\n")
    done = invoke("plot", "bars", str(table), "--value", "step_ms", "-o", str(tmp_path / "b.svg"))
    assert done.exit_code == 0
    assert "step_ms holds no finite number in 2 of 3 rows, which stay blank" in done.stderr


def test_a_number_that_no_axis_shows_is_refused(tmp_path: Path) -> None:
    """Squares of it are infinite, which Matplotlib computes."""
    table, figure = tmp_path / "table.csv", tmp_path / "b.svg"
    table.write_text("system,cost_usd,throughput_tok_s\na,1,1e308\nb,2,-1e308\n")
    sentence = refusal("plot", "pareto", str(table), "-o", str(figure))
    assert "throughput_tok_s holds a number beyond 1e+100" in sentence
    assert not figure.exists()
