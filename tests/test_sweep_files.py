"""Files of sweeps: killed and hindered sweeps lose nothing, and the bytes stay the same."""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest
from helpers import (
    SMALL,
    content,
    finish,
    parts,
    piped,
    refused,
    staging,
    start,
    sweep_command,
    until_parts,
)

Bytes = dict[str, bytes]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bytes]:
    """The bytes of a sweep that nothing disturbed, by form."""
    folder = tmp_path_factory.mktemp("whole")
    by_form = {}
    for form in ("csv", "parquet"):
        finish(folder / f"all.{form}")
        by_form[form] = content(folder / f"all.{form}")
    assert by_form["csv"][""].count(b"\n") == 2_000_001
    return by_form


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    """A sweep that was killed."""
    file = tmp_path / "out.csv"
    with start(file) as process:
        assert until_parts(process, file)
        process.kill()
    return file


@pytest.mark.parametrize(("form", "jobs"), [("csv", "1"), ("parquet", "2")])
def test_killed_five_times_and_resumed_gives_the_same_bytes(
    tmp_path: Path, whole: dict[str, Bytes], form: str, jobs: str
) -> None:
    file = tmp_path / f"out.{form}"
    kills = seen = 0
    for _ in range(5):
        before = len(parts(file))
        with start(file, "--resume", "--jobs", jobs) as process:
            if until_parts(process, file, before):
                time.sleep(random.uniform(0.0, 0.2))
            process.kill()
        kills += process.returncode == -signal.SIGKILL
        seen += len(parts(file)) > 0
    assert kills >= 3
    assert seen >= 2
    finish(file, "--resume", "--jobs", jobs)
    assert content(file) == whole[form]
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [f"out.{form}", f"out.{form}.provenance.json"]


def test_a_part_that_is_gone_is_evaluated_again(unfinished: Path, whole: dict[str, Bytes]) -> None:
    parts(unfinished)[0].unlink()
    finish(unfinished, "--resume")
    assert content(unfinished) == whole["csv"]


def test_what_a_killed_sweep_was_writing_is_dropped(
    unfinished: Path, whole: dict[str, Bytes]
) -> None:
    """A temporary name has never reached the disk for certain, whatever lies behind it."""
    elsewhere = unfinished.with_name("mine.txt")
    elsewhere.write_text("mine")
    folder = staging(unfinished) / "parts"
    (folder / "part-000020.csv.new").write_text("half a r")
    (folder / "part-000021.csv.new").symlink_to(elsewhere)
    finish(unfinished, "--resume")
    assert content(unfinished) == whole["csv"]
    assert elsewhere.read_text() == "mine"


def test_a_full_disk_keeps_what_is_finished(tmp_path: Path, whole: dict[str, Bytes]) -> None:
    """No file may exceed 30 MiB: the parts are smaller, what they make together is larger."""
    file = tmp_path / "out.csv"
    line = f"ulimit -f {30 << 10}; exec {shlex.join(sweep_command(file))}"
    printed = refused(piped(["bash", "-c", line]))
    assert "cannot be written (File too large)" in printed
    assert "2,000,000 finished rows are safe" in printed
    assert not file.exists()
    finish(file, "--resume")
    assert content(file) == whole["csv"]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_disk_too_full_for_a_part(tmp_path: Path, jobs: str) -> None:
    file = tmp_path / "out.csv"
    line = f"ulimit -f 100; exec {shlex.join(sweep_command(file, '--jobs', jobs))}"
    printed = refused(piped(["bash", "-c", line]))
    assert "cannot be written (File too large); nothing was changed" in printed
    assert not list(tmp_path.iterdir())


def test_an_output_folder_that_vanishes(tmp_path: Path, whole: dict[str, Bytes]) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    process = start(before / "out.csv")
    assert until_parts(process, before / "out.csv")
    before.rename(after)
    assert "cannot be written (its folder is gone)" in refused(process)
    assert not before.exists()
    finish(after / "out.csv", "--resume")
    assert content(after / "out.csv") == whole["csv"]


def test_an_unfinished_sweep_is_neither_overwritten_nor_mixed_up(
    unfinished: Path, whole: dict[str, Bytes]
) -> None:
    assert "go on with --resume, or delete" in refused(start(unfinished))
    other = ["--output-tokens", "32", "--columns", "batch,step_ms"]
    printed = refused(start(unfinished, "--resume", *other))
    assert "was begun with other --output-tokens and --columns; give" in printed
    study = staging(unfinished) / "study.json"
    before = study.read_text()
    for key, words in (
        ("nearkv", "was begun with nearkv 0.0.1"),
        ("numpy", "was begun with numpy 0.0.1"),
        ("code", "was begun before nearkv's own code was changed"),
        ("study", "was begun for another study"),
    ):
        study.write_text(json.dumps({**json.loads(before), key: "0.0.1"}))
        assert words in refused(start(unfinished, "--resume"))
    for damaged in ("", "[]", "{"):
        study.write_text(damaged)
        assert "study.json, which says of what study" in refused(start(unfinished, "--resume"))
    study.write_text(before)
    finish(unfinished, "--resume")
    assert content(unfinished) == whole["csv"]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_resume_leaves_a_finished_output_as_it_is(tmp_path: Path, form: str) -> None:
    file = tmp_path / f"out.{form}"
    small = ["--batch", "1:4:+1"]
    finish(file, *small)
    before, origin = content(file), tmp_path / f"out.{form}.provenance.json"
    record = origin.read_bytes()
    done = f"{file} is complete already, with 200,000 rows; nothing was left to do\n"
    assert finish(file, *small, "--resume") == done
    printed = refused(start(file, "--resume"))
    assert "was written with another --batch; choose another name" in printed
    assert (content(file), origin.read_bytes()) == (before, record)
    place = file / "part-000000.parquet" if form == "parquet" else file
    with place.open("ab") as more:
        more.write(b"1")
    assert "was finished and has changed since" in refused(start(file, *small, "--resume"))
    origin.unlink()
    printed = refused(start(file, *small, "--resume"))
    assert "nothing beside it says that a sweep wrote it" in printed
    assert [left.name for left in tmp_path.iterdir()] == [file.name]
    finish(file, *small)
    assert content(file) == before


def test_a_crash_after_the_output_took_its_name(unfinished: Path, whole: dict[str, Bytes]) -> None:
    """All parts are there still: they are put together again, to the same bytes."""
    unfinished.write_bytes(whole["csv"][""])
    finish(unfinished, "--resume")
    assert content(unfinished) == whole["csv"]
    assert not staging(unfinished).exists()


def test_a_crash_after_a_dataset_took_its_name(tmp_path: Path) -> None:
    file = tmp_path / "out.parquet"
    finish(file, *SMALL)
    before = content(file)
    staging(file).mkdir(mode=0o700)
    (staging(file) / "study.json").write_text("{}")
    assert "complete already" in finish(file, *SMALL, "--resume")
    assert content(file) == before
    assert not staging(file).exists()


def test_two_sweeps_on_one_output(tmp_path: Path, whole: dict[str, Bytes]) -> None:
    file = tmp_path / "out.csv"
    with start(file) as first:
        assert until_parts(first, file)
        first.send_signal(signal.SIGSTOP)
        assert "another sweep is writing it" in refused(start(file))
        assert "another sweep is writing it" in refused(start(file, "--resume"))
        first.send_signal(signal.SIGCONT)
        _, printed = first.communicate()
    assert first.returncode == 0, printed
    assert content(file) == whole["csv"]


@pytest.mark.parametrize(("form", "jobs"), [("csv", "4"), ("parquet", "4")])
def test_any_number_of_jobs_gives_the_same_bytes(
    tmp_path: Path, whole: dict[str, Bytes], form: str, jobs: str
) -> None:
    finish(tmp_path / f"out.{form}", "--jobs", jobs, "--quiet")
    assert content(tmp_path / f"out.{form}") == whole[form]


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
    assert "links go in a circle" in refused(start(tmp_path / "circle.parquet", *SMALL))
    (tmp_path / "nowhere.csv").symlink_to("no/such/folder.csv")
    printed = refused(start(tmp_path / "nowhere.csv", *SMALL))
    assert "cannot be written (No such file or directory)" in printed


def test_a_dataset_replaces_only_a_dataset(tmp_path: Path) -> None:
    folder = tmp_path / "out.parquet"
    finish(folder, *SMALL)
    finish(folder, *SMALL, "--output-tokens", "16")
    assert [part.name for part in folder.iterdir()] == ["part-000000.parquet"]
    (folder / "notes.txt").write_text("mine")
    printed = refused(start(folder, *SMALL))
    assert "holds 'notes.txt', so it is no dataset to replace" in printed
    (tmp_path / "taken.parquet").write_text("mine")
    assert "is a file already" in refused(start(tmp_path / "taken.parquet", *SMALL))
    (tmp_path / "taken.csv").mkdir()
    assert "is a folder already" in refused(start(tmp_path / "taken.csv", *SMALL))
    assert "unknown form '.xls'" in refused(start(tmp_path / "out.xls", *SMALL))
    assert "is a folder; name a file in it" in refused(start(tmp_path, *SMALL))
    assert "has no suffix that says what to write" in refused(start(tmp_path / ".csv", *SMALL))
    assert "is a device or a pipe" in refused(start(Path("/dev/null"), *SMALL))


def test_what_is_put_into_a_dataset_under_way_stays(
    tmp_path: Path, whole: dict[str, Bytes]
) -> None:
    file = tmp_path / "out.parquet"
    finish(file, *SMALL)
    process = start(file)
    assert until_parts(process, file)
    (file / "notes.txt").write_text("mine")
    printed = refused(process)
    assert "holds 'notes.txt', so it is no dataset to replace; move it away" in printed
    assert "2,000,000 finished rows are safe" in printed
    assert (file / "notes.txt").read_text() == "mine"
    (file / "notes.txt").unlink()
    finish(file, "--resume")
    assert content(file) == whole["parquet"]


def test_a_prepared_folder_leads_nowhere(tmp_path: Path) -> None:
    """Whoever may write into the same folder cannot have files written or deleted elsewhere."""
    file, elsewhere = tmp_path / "out.parquet", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "part-000000.parquet").write_text("mine")
    staging(file).symlink_to(elsewhere)
    assert "is no folder, in the place where out.parquet would grow" in refused(start(file, *SMALL))
    staging(file).unlink()
    staging(file).mkdir(mode=0o700)
    (staging(file) / "parts").symlink_to(elsewhere)
    assert "parts: is no folder; remove it" in refused(start(file, *SMALL))
    (staging(file) / "parts").unlink()
    (staging(file) / "parts").mkdir()
    link = staging(file) / "parts" / "part-000000.parquet"
    link.symlink_to(elsewhere / "part-000000.parquet")
    assert f"{link}: was put there by another program" in refused(start(file, *SMALL, "--resume"))
    staging(file).chmod(0o777)
    assert "others may write into it" in refused(start(file, *SMALL))
    assert (elsewhere / "part-000000.parquet").read_text() == "mine"
    assert not file.exists()


def test_a_place_that_cannot_work_is_refused_at_once(tmp_path: Path) -> None:
    best = ["--top", "1", "--by", "step_ms"]
    long = tmp_path / f"{'b' * 236}.csv"
    assert "too long; choose a shorter one" in refused(start(long, *SMALL))
    (tmp_path / "a.csv.provenance.json").mkdir()
    printed = refused(start(tmp_path / "a.csv", *SMALL))
    assert "in the place of the provenance beside a.csv" in printed
    (tmp_path / "set.parquet").mkdir()
    assert "is a folder already" in refused(start(tmp_path / "set.parquet", *SMALL, *best))
    (tmp_path / ".b.csv.partial").mkdir()
    assert "a sweep is writing it" in refused(start(tmp_path / "b.csv", *SMALL, *best))
    (tmp_path / ".c.csv.partial").write_text("mine")
    printed = refused(start(tmp_path / "c.csv", *SMALL))
    assert "is no folder, in the place where c.csv would grow" in printed
    if os.geteuid():  # whoever may write anything is not refused
        (tmp_path / "d.csv").write_text("mine")
        (tmp_path / "d.csv").chmod(0o444)
        assert "may not be written" in refused(start(tmp_path / "d.csv", *SMALL))


def test_a_table_and_its_record_are_replaced_together(tmp_path: Path) -> None:
    file = tmp_path / "best.csv"
    best = ["--batch", "1", "--top", "1", "--by", "step_ms", "--quiet"]
    finish(file, *best)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    line = f"ulimit -f 8; exec {shlex.join(sweep_command(file, *best, '--output', '8'))}"
    printed = refused(piped(["bash", "-c", line]))
    assert "best.csv.provenance.json: cannot be written (File too large)" in printed
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_nobody_has_to_read_what_is_printed(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    line = f"{shlex.join(sweep_command(file, *SMALL))} 2>/dev/full"
    assert subprocess.run(["bash", "-c", line], check=False).returncode == 0
    assert file.exists()


def test_very_many_rows_need_a_yes(tmp_path: Path) -> None:
    many = ["--batch", "1:1000:+1", "--context", "1k:1001k:+1k"]
    printed = refused(start(tmp_path / "out.csv", *many))
    assert "1,001,000,000 rows are very many; --yes writes them" in printed
    assert not list(tmp_path.iterdir())


def test_a_part_too_many_is_no_part(tmp_path: Path, whole: dict[str, Bytes]) -> None:
    file = tmp_path / "out.parquet"
    process = start(file)
    assert until_parts(process, file)
    stranger = staging(file) / "parts" / "part-000900.parquet"
    stranger.write_bytes(b"mine")
    printed = refused(process)
    assert f"{stranger}: was put there by another program; remove it" in printed
    stranger.unlink()
    finish(file, "--resume")
    assert content(file) == whole["parquet"]
