"""Where a sweep may write: behind links, in place of its own kind, never anywhere else."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from support.helpers import (
    COMMAND,
    SMALL,
    content,
    finish,
    refused,
    refused_sweep,
    sweep_words,
    with_small_files,
)
from support.warm_command import run

pytestmark = pytest.mark.processes


def test_an_output_goes_behind_links(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for form in ("csv", "parquet"):
        link, target = tmp_path / f"link.{form}", folder / f"{form}_file"
        link.symlink_to(target)
        for _ in range(2):
            finish(link, *SMALL)
            assert link.is_symlink()
            assert content(target) == content(link)
    (tmp_path / "circle.parquet").symlink_to("circle.parquet")
    assert "links go in a circle" in refused_sweep(tmp_path / "circle.parquet", *SMALL)
    (tmp_path / "nowhere.csv").symlink_to("no/such/folder.csv")
    printed = refused_sweep(tmp_path / "nowhere.csv", *SMALL)
    assert "cannot be written (No such file or directory)" in printed


def test_a_dataset_replaces_only_a_dataset(tmp_path: Path) -> None:
    folder = tmp_path / "out.parquet"
    finish(folder, *SMALL)
    finish(folder, *SMALL, "--output-tokens", "16")
    assert [part.name for part in folder.iterdir()] == ["part-000000.parquet"]
    (folder / "notes.txt").write_text("mine")
    printed = refused_sweep(folder, *SMALL)
    assert "holds 'notes.txt', so it is no dataset to replace" in printed
    (tmp_path / "taken.parquet").write_text("mine")
    assert "is a file already" in refused_sweep(tmp_path / "taken.parquet", *SMALL)
    (tmp_path / "taken.csv").mkdir()
    assert "is a folder already" in refused_sweep(tmp_path / "taken.csv", *SMALL)
    assert "unknown form '.xls'" in refused_sweep(tmp_path / "out.xls", *SMALL)
    assert "is a folder; name a file in it" in refused_sweep(tmp_path, *SMALL)
    assert "has no suffix that says what to write" in refused_sweep(tmp_path / ".csv", *SMALL)
    assert "is a device or a pipe" in refused_sweep(Path("/dev/null"), *SMALL)


def test_a_place_that_cannot_work_is_refused_at_once(tmp_path: Path) -> None:
    best = ["--top", "1", "--by", "step_ms"]
    long = tmp_path / f"{'b' * 236}.csv"
    assert "too long; choose a shorter one" in refused_sweep(long, *SMALL)
    (tmp_path / "a.csv.provenance.json").mkdir()
    printed = refused_sweep(tmp_path / "a.csv", *SMALL)
    assert "in the place of the provenance beside a.csv" in printed
    (tmp_path / "e.csv.provenance.json").write_text('{"mine": 1}')
    printed = refused_sweep(tmp_path / "e.csv", *SMALL)
    assert "is no provenance that nearkv wrote" in printed
    assert (tmp_path / "e.csv.provenance.json").read_text() == '{"mine": 1}'
    (tmp_path / "set.parquet").mkdir()
    assert "is a folder already" in refused_sweep(tmp_path / "set.parquet", *SMALL, *best)
    (tmp_path / ".b.csv.partial").mkdir()
    assert "a sweep is writing it" in refused_sweep(tmp_path / "b.csv", *SMALL, *best)
    (tmp_path / ".c.csv.partial").write_text("mine")
    printed = refused_sweep(tmp_path / "c.csv", *SMALL)
    assert "is no folder, in the place where c.csv would grow" in printed
    if os.geteuid():  # whoever may write anything is not refused
        (tmp_path / "d.csv").write_text("mine")
        (tmp_path / "d.csv").chmod(0o444)
        assert "may not be written" in refused_sweep(tmp_path / "d.csv", *SMALL)


def test_a_table_and_its_record_are_replaced_together(tmp_path: Path) -> None:
    file = tmp_path / "best.csv"
    best = ["--batch", "1", "--top", "1", "--by", "step_ms", "--quiet"]
    finish(file, *best)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    printed = refused(with_small_files(8, file, *best, "--output-tokens", "8"))
    assert "best.csv.provenance.json: cannot be written (File too large)" in printed
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_nobody_has_to_read_what_is_printed(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    line = f"{shlex.join([str(COMMAND), *sweep_words(file, *SMALL)])} 2>/dev/full"
    assert subprocess.run(["bash", "-c", line], check=False).returncode == 0
    assert file.exists()


def test_very_many_rows_need_a_yes(tmp_path: Path) -> None:
    many = ["--batch", "1:20000:+1", "--context", "1k:1001k:+1k"]
    printed = refused_sweep(tmp_path / "out.csv", *many)
    assert "1,001,000,000 rows are very many; --yes writes them" in printed
    assert not list(tmp_path.iterdir())


def test_a_comparison_too_long_to_read_is_still_written(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    axes = ["--model", "opt-66b", "--batch", "1:101:+1", "--context", "1k:100k:+1k"]
    done = run("compare", "accelerate", *axes, "-o", str(file))
    assert done.returncode == 0, done.stderr
    assert not done.stdout
    assert file.read_text().count("\n") == 10_101
