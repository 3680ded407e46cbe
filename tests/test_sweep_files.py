"""Sweeps as a user runs them, killed, stopped and hindered: nothing is lost, and the bytes stay the same."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from nearkv.hardware.errors import InputError
from nearkv.sweeps.jobs.manifest import manifest_of
from nearkv.sweeps.jobs.store import store

COMMAND = Path(sys.executable).with_name("nearkv")
AXES = [
    "--system",
    "hilos",
    "--model",
    "opt-66b",
    "--batch",
    "1:40:+1",
    "--context",
    "4k:200k:+4k",
    "--set",
    "csd.count=1:20:+1",
    "--set",
    "uplink.bandwidth=10GB/s:59GB/s:+1GB/s",
    "--columns",
    "batch,context_tok,csd.count,alpha,step_ms",
]
"""2 million rows, a second or two of work."""


def start(file: Path, *more: str, cwd: Path | None = None) -> subprocess.Popen[str]:
    command = [str(COMMAND), "sweep", *AXES, "-o", str(file), *more]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd
    )


def finish(file: Path, *more: str) -> None:
    with start(file, *more) as process:
        _, requested = process.communicate()
    assert process.returncode == 0, requested


def refused(process: subprocess.Popen[str], code: int = 2) -> str:
    """What a process that must fail says: one sentence after the estimate, and no traceback."""
    with process:
        _, requested = process.communicate()
    assert process.returncode == code, requested
    sentences = [line for line in requested.splitlines() if "design points to write" not in line]
    assert len(sentences) == 1, requested
    assert sentences[0].startswith("nearkv: ")
    return sentences[0]


def state(file: Path) -> Path:
    return file.with_name(f".{file.name}.partial")


def saved(file: Path) -> int:
    """Rows that the manifest calls safe."""
    try:
        return int(json.loads((state(file) / "manifest.json").read_text())["rows"])
    except FileNotFoundError:
        return 0


def until_saved(process: subprocess.Popen[str], file: Path, more_than: int = 0) -> bool:
    """Wait until more rows are safe; False where the process ended first."""
    while process.poll() is None:
        if saved(file) > more_than:
            return True
        time.sleep(0.005)
    return False


def content(file: Path) -> dict[str, bytes]:
    """Every byte of an output, of a file or of a dataset."""
    files = sorted(file.iterdir()) if file.is_dir() else [file]
    return {part.name if file.is_dir() else "": part.read_bytes() for part in files}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """The bytes of a sweep that nothing disturbed, by form."""
    folder = tmp_path_factory.mktemp("whole")
    for form in ("csv", "parquet"):
        finish(folder / f"all.{form}")
    found = {form: content(folder / f"all.{form}") for form in ("csv", "parquet")}
    assert found["csv"][""].count(b"\n") == 2_000_001
    shutil.rmtree(folder)
    return found


@pytest.mark.parametrize(("form", "jobs"), [("csv", "1"), ("parquet", "2")])
def test_killed_five_times_and_resumed_gives_the_same_bytes(
    tmp_path: Path, whole: dict[str, dict[str, bytes]], form: str, jobs: str
) -> None:
    file, kills, seen, before = tmp_path / f"out.{form}", 0, 0, 0
    for _ in range(5):
        with start(file, "--resume", "--jobs", jobs) as process:
            if until_saved(process, file, before):
                time.sleep(random.uniform(0.0, 0.2))
            process.kill()
        kills += process.returncode == -signal.SIGKILL
        before = saved(file)
        seen += before > 0
    assert kills >= 3
    assert seen >= 2
    finish(file, "--resume", "--jobs", jobs)
    assert content(file) == whole[form]
    assert sorted(left.name for left in tmp_path.iterdir()) == [
        f"out.{form}",
        f"out.{form}.provenance.json",
    ]


def test_a_full_disk_keeps_what_is_finished(
    tmp_path: Path, whole: dict[str, dict[str, bytes]]
) -> None:
    file = tmp_path / "out.csv"
    line = (
        f"ulimit -f {30 << 10}; exec {shlex.join([str(COMMAND), 'sweep', *AXES, '-o', str(file)])}"
    )
    process = subprocess.Popen(
        ["bash", "-c", line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    requested = refused(process)
    assert "cannot be written (File too large)" in requested
    assert saved(file) > 100_000
    assert f"{saved(file):,} finished rows are safe" in requested
    assert not file.exists()
    finish(file, "--resume")
    assert content(file) == whole["csv"]


def test_an_output_folder_that_vanishes(tmp_path: Path, whole: dict[str, dict[str, bytes]]) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    process = start(here / "out.csv")
    assert until_saved(process, here / "out.csv")
    here.rename(there)
    assert "cannot be written (its folder is gone)" in refused(process)
    assert not here.exists()
    finish(there / "out.csv", "--resume")
    assert content(there / "out.csv") == whole["csv"]


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    """A sweep that was killed."""
    file = tmp_path / "out.csv"
    with start(file) as process:
        assert until_saved(process, file)
        process.kill()
    return file


def test_a_damaged_manifest_is_not_trusted(unfinished: Path) -> None:
    manifest, rows = state(unfinished) / "manifest.json", state(unfinished) / "rows"
    before, size = manifest.read_text(), rows.stat().st_size
    lies = [
        {name: json.loads(before)[name] + by}
        for name in ("pieces", "rows", "size", "crc")
        for by in (1, -1)
    ]
    false = [
        json.dumps({**json.loads(before), **lie})
        for lie in [*lies, {"pieces": 10**9}, {"pieces": -1}]
    ]
    for damage in ("", "{", '{"pieces": 3}', "[]", *false):
        manifest.write_text(damage)
        assert "manifest of its unfinished sweep is damaged" in refused(
            start(unfinished, "--resume")
        )
        assert manifest.read_text() == damage
    assert "manifest of its unfinished sweep is damaged" in refused(start(unfinished))
    manifest.unlink()
    assert "manifest of its unfinished sweep is damaged" in refused(start(unfinished))
    assert rows.stat().st_size == size
    manifest.write_text(before)
    assert "an unfinished sweep" in refused(start(unfinished))


def test_an_unfinished_sweep_is_neither_overwritten_nor_mixed_up(
    unfinished: Path, whole: dict[str, dict[str, bytes]]
) -> None:
    assert "go on with --resume, or delete" in refused(start(unfinished))
    other = ["--output", "32", "--columns", "batch,step_ms"]
    assert "was begun with other --output and --columns; give" in refused(
        start(unfinished, "--resume", *other)
    )
    manifest = state(unfinished) / "manifest.json"
    before = json.loads(manifest.read_text())
    found = manifest_of(before)
    older = replace(found, identity={**found.identity, "nearkv": "0.0.1"})
    manifest.write_text(json.dumps(older.as_json()))
    assert "was begun with nearkv 0.0.1; give" in refused(start(unfinished, "--resume"))
    manifest.write_text(json.dumps(before))
    finish(unfinished, "--resume")
    assert content(unfinished) == whole["csv"]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_rows_that_changed_are_not_gone_on_with(tmp_path: Path, form: str) -> None:
    file = tmp_path / f"out.{form}"
    with start(file) as process:
        assert until_saved(process, file)
        process.kill()
    rows = state(file) / "rows"
    place = rows / "part-000000.parquet" if form == "parquet" else rows
    before = place.read_bytes()
    for damaged in (before[:1000], before[:500] + bytes([before[500] ^ 1]) + before[501:]):
        place.write_bytes(damaged)
        assert "finished rows are not as they were written" in refused(start(file, "--resume"))
        assert place.read_bytes() == damaged
    place.unlink()
    assert re.search("not as they were|but they are gone", refused(start(file, "--resume")))
    assert saved(file) > 0


def test_rows_that_vanish_are_not_called_safe(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    process = start(file)
    assert until_saved(process, file)
    for left in list(state(file).iterdir()):
        left.unlink()
    requested = refused(process)
    assert "was removed by another program" in requested
    assert f"delete {state(file)} to start anew" in requested
    assert not file.exists()


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_resume_leaves_a_finished_output_as_it_is(tmp_path: Path, form: str) -> None:
    file, small = tmp_path / f"out.{form}", ["--batch", "1:4:+1"]
    finish(file, *small)
    before, origin = content(file), tmp_path / f"out.{form}.provenance.json"
    record = origin.read_bytes()
    with start(file, *small, "--resume") as process:
        _, requested = process.communicate()
    assert process.returncode == 0
    assert requested == f"{file} is complete already, with 200,000 rows; nothing was left to do\n"
    assert "was written with another --batch; choose another name" in refused(
        start(file, "--resume")
    )
    assert (content(file), origin.read_bytes()) == (before, record)
    place = file / "part-000000.parquet" if form == "parquet" else file
    with place.open("ab") as more:
        more.write(b"1")
    assert "was finished and has changed since" in refused(start(file, *small, "--resume"))
    origin.unlink()
    assert "nothing beside it says that a sweep wrote it" in refused(
        start(file, *small, "--resume")
    )
    assert sorted(left.name for left in tmp_path.iterdir()) == [file.name]
    finish(file, *small)
    assert content(file) == before


def test_a_crash_between_the_last_two_steps_is_a_finished_output(tmp_path: Path) -> None:
    file, small = tmp_path / "out.csv", ["--batch", "1:4:+1"]
    finish(file, *small)
    state(file).mkdir()
    record = json.loads((tmp_path / "out.csv.provenance.json").read_text())["output"]
    (state(file) / "manifest.json").write_text(json.dumps(record))
    before = content(file)
    finish(file, *small, "--resume")
    assert content(file) == before
    assert not state(file).exists()


def test_two_sweeps_on_one_output(tmp_path: Path, whole: dict[str, dict[str, bytes]]) -> None:
    file = tmp_path / "out.csv"
    with start(file) as first:
        assert until_saved(first, file)
        first.send_signal(signal.SIGSTOP)
        assert "another sweep is writing it" in refused(start(file))
        assert "another sweep is writing it" in refused(start(file, "--resume"))
        first.send_signal(signal.SIGCONT)
        _, requested = first.communicate()
    assert first.returncode == 0, requested
    assert content(file) == whole["csv"]


@pytest.mark.parametrize(("form", "jobs"), [("csv", "2"), ("csv", "4"), ("parquet", "4")])
def test_any_number_of_jobs_gives_the_same_bytes(
    tmp_path: Path, whole: dict[str, dict[str, bytes]], form: str, jobs: str
) -> None:
    finish(tmp_path / f"out.{form}", "--jobs", jobs, "--quiet")
    assert content(tmp_path / f"out.{form}") == whole[form]


def test_an_output_goes_behind_links(tmp_path: Path) -> None:
    small = ["--batch", "1", "--context", "4k"]
    (tmp_path / "there").mkdir()
    for form in ("csv", "parquet"):
        link, target = tmp_path / f"link.{form}", tmp_path / "there" / f"{form}_data"
        link.symlink_to(target)
        for _ in range(2):
            finish(link, *small)
            assert link.is_symlink()
            assert content(target) == content(link)
    (tmp_path / "circle.parquet").symlink_to("circle.parquet")
    assert "links go in a circle" in refused(start(tmp_path / "circle.parquet", *small))
    (tmp_path / "nowhere.csv").symlink_to("no/such/folder.csv")
    assert "cannot be written (No such file or directory)" in refused(
        start(tmp_path / "nowhere.csv", *small)
    )


def test_a_dataset_replaces_only_a_dataset(tmp_path: Path) -> None:
    small = ["--batch", "1", "--context", "4k", "--output", "8"]
    folder = tmp_path / "out.parquet"
    finish(folder, *small)
    finish(folder, *small, "--output", "16")
    assert [part.name for part in folder.iterdir()] == ["part-000000.parquet"]
    (folder / "notes.txt").write_text("mine")
    assert "holds 'notes.txt', so it is no dataset to replace" in refused(start(folder, *small))
    (tmp_path / "taken.parquet").write_text("mine")
    assert "is a file already" in refused(start(tmp_path / "taken.parquet", *small))
    (tmp_path / "taken.csv").mkdir()
    assert "is a folder already" in refused(start(tmp_path / "taken.csv", *small))
    assert "unknown form '.xls'" in refused(start(tmp_path / "out.xls", *small))
    assert "is a folder; name a file in it" in refused(start(tmp_path, *small))
    assert "has no end that says what to write" in refused(start(tmp_path / ".csv", *small))
    assert "is a device or a pipe" in refused(start(Path("/dev/null"), *small))


def test_rows_changed_under_way_are_noticed(tmp_path: Path) -> None:
    def cut(rows: Path) -> None:
        os.truncate(rows, 0)

    def spoil(rows: Path) -> None:
        with rows.open("r+b") as file:
            file.write(b"????")

    for harm, words in (
        (cut, "was cut by another program"),
        (spoil, "were changed by another program"),
    ):
        file = tmp_path / f"{harm.__name__}.csv"
        process = start(file)
        assert until_saved(process, file)
        harm(state(file) / "rows")
        requested = refused(process)
        assert words in requested
        assert f"delete {state(file)} to start anew" in requested
        assert not file.exists()


def test_rows_added_under_way_are_dropped(
    tmp_path: Path, whole: dict[str, dict[str, bytes]]
) -> None:
    file = tmp_path / "out.csv"
    process = start(file)
    assert until_saved(process, file)
    with (state(file) / "rows").open("ab") as rows:
        rows.write(b"not ours")
    requested = refused(process)
    assert "was added to by another program" in requested
    assert "finished rows are safe" in requested
    finish(file, "--resume")
    assert content(file) == whole["csv"]


def test_what_is_added_behind_the_last_rows_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"

    def disturbed() -> None:
        with store(file, "csv", {"study": "this"}) as out:
            out.add(1, b"1\n")
            with (state(file) / "rows").open("ab") as rows:
                rows.write(b"not ours")
            out.finish(1, {})

    with pytest.raises(InputError, match="its rows were changed by another program"):
        disturbed()
    assert not file.exists()


def test_a_stranger_among_the_parts_is_no_part(
    tmp_path: Path, whole: dict[str, dict[str, bytes]]
) -> None:
    file = tmp_path / "out.parquet"
    process = start(file)
    assert until_saved(process, file)
    stranger = state(file) / "rows" / "part-000900.parquet"
    stranger.write_bytes(b"hi")
    assert f"{stranger}: was put there by another program; move it away" in refused(process)
    stranger.unlink()
    finish(file, "--resume")
    assert content(file) == whole["parquet"]
    (file / "part-000900.parquet").write_bytes(b"hi")
    assert "was finished and has changed since" in refused(start(file, "--resume"))


def test_what_is_put_into_a_dataset_under_way_stays(
    tmp_path: Path, whole: dict[str, dict[str, bytes]]
) -> None:
    file = tmp_path / "out.parquet"
    finish(file, "--batch", "1")
    process = start(file)
    assert until_saved(process, file)
    (file / "notes.txt").write_text("mine")
    requested = refused(process)
    assert "holds 'notes.txt', so it is no dataset to replace; move it away" in requested
    assert "2,000,000 finished rows are safe" in requested
    assert (file / "notes.txt").read_text() == "mine"
    (file / "notes.txt").unlink()
    finish(file, "--resume")
    assert content(file) == whole["parquet"]


def test_a_place_that_cannot_work_is_refused_at_once(tmp_path: Path) -> None:
    small, best = ["--batch", "1", "--context", "4k"], ["--top", "1", "--by", "step_ms"]
    assert "too long; choose a shorter one" in refused(start(tmp_path / f"{'b' * 236}.csv", *small))
    (tmp_path / "a.csv.provenance.json").mkdir()
    assert "in the place of the record beside a.csv" in refused(start(tmp_path / "a.csv", *small))
    (tmp_path / "set.parquet").mkdir()
    assert "is a folder already" in refused(start(tmp_path / "set.parquet", *small, *best))
    (tmp_path / ".b.csv.partial").mkdir()
    assert "a sweep writes it, or was stopped" in refused(start(tmp_path / "b.csv", *small, *best))
    (tmp_path / ".c.csv.partial").write_text("mine")
    assert "a file is in the place where c.csv would grow" in refused(
        start(tmp_path / "c.csv", *small)
    )
    if os.geteuid():  # whoever may write anything is not refused
        (tmp_path / "d.csv").write_text("mine")
        (tmp_path / "d.csv").chmod(0o444)
        assert "may not be written" in refused(start(tmp_path / "d.csv", *small))


def test_a_table_and_its_record_are_replaced_together(tmp_path: Path) -> None:
    file, best = tmp_path / "best.csv", ["--batch", "1", "--top", "1", "--by", "step_ms", "--quiet"]
    finish(file, *best)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    line = f"ulimit -f 8; exec {shlex.join([str(COMMAND), 'sweep', *AXES, *best, '--output', '8', '-o', str(file)])}"
    requested = refused(
        subprocess.Popen(
            ["bash", "-c", line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    )
    assert "best.csv.provenance.json: cannot be written (File too large)" in requested
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_nobody_has_to_listen(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    line = (
        f"{shlex.join([str(COMMAND), 'sweep', *AXES, '--batch', '1', '-o', str(file)])} 2>/dev/full"
    )
    assert subprocess.run(["bash", "-c", line], check=False).returncode == 0
    assert file.exists()


def test_very_many_rows_need_a_yes(tmp_path: Path) -> None:
    many = ["--batch", "1:1000:+1", "--context", "1k:1001k:+1k"]
    process = subprocess.Popen(
        [COMMAND, "sweep", *AXES, *many, "-o", str(tmp_path / "out.csv")],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert "1,001,000,000 rows are very many; --yes writes them" in refused(process)
    assert not list(tmp_path.iterdir())
