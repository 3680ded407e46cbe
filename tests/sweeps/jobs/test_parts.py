"""Parts of a sweep: killed and hindered sweeps lose nothing, and the bytes stay the same."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.helpers import (
    ROWS,
    SMALL,
    content,
    finish,
    refused,
    refused_sweep,
    safe_pieces,
    staging,
    start,
    until_safe,
    with_small_files,
)
from support.studies import quietly
from support.warm_command import forks

from nearkv.hardware.errors import InputError
from nearkv.sweeps.jobs.outputs import partial_path
from nearkv.sweeps.jobs.parts import check_disk, hold, kept_answers, locked, to_file
from nearkv.sweeps.jobs.plan import Piece, Plan
from nearkv.sweeps.jobs.progress import SweepRun
from nearkv.sweeps.jobs.workers import Workers
from nearkv.sweeps.study.study import Study

pytestmark = pytest.mark.processes

Bytes = dict[str, bytes]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bytes]:
    """The bytes of a sweep that nothing disturbed, by form."""
    folder = tmp_path_factory.mktemp("whole")
    by_form = {}
    for form in ("csv", "parquet", "jsonl"):
        finish(folder / f"all.{form}")
        by_form[form] = content(folder / f"all.{form}")
    assert by_form["csv"][""].count(b"\n") == ROWS + 1
    return by_form


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    """A sweep that was killed."""
    file = tmp_path / "out.csv"
    with start(file) as process:
        assert until_safe(process, file)
        process.kill()
    return file


@pytest.mark.parametrize(
    "form", ["parquet", *(pytest.param(form, marks=pytest.mark.deep) for form in ("csv", "jsonl"))]
)
def test_killed_three_times_and_resumed_gives_the_same_bytes(
    tmp_path: Path, whole: dict[str, Bytes], form: str
) -> None:
    """Once with two jobs; ten times, and in full parts, does `make resume`."""
    file = tmp_path / f"out.{form}"
    kills = seen = 0
    for jobs in "121":
        before = safe_pieces(file)
        with start(file, "--resume", "--jobs", jobs) as process:
            if until_safe(process, file, before):
                time.sleep(random.uniform(0.0, 0.1))
            process.kill()
        kills += process.returncode == -signal.SIGKILL
        seen += safe_pieces(file) > 0
    assert kills >= 2
    assert seen >= 2
    finish(file, "--resume")
    assert content(file) == whole[form]
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [f"out.{form}", f"out.{form}.provenance.json"]


def test_a_part_that_is_gone_is_evaluated_again(tmp_path: Path, whole: dict[str, Bytes]) -> None:
    file = tmp_path / "out.parquet"
    process = start(file)
    assert until_safe(process, file)
    parts = staging(file) / "parts"
    gone = parts / "part-000000.parquet"
    gone.unlink()
    assert f"{gone}: was removed by another program" in refused(process)
    finish(file, "--resume")
    assert content(file) == whole["parquet"]


def test_what_a_killed_sweep_was_writing_is_dropped(
    unfinished: Path, whole: dict[str, Bytes]
) -> None:
    """A temporary name is of a part that was not complete."""
    folder = staging(unfinished) / "parts"
    (folder / "part-000006.14.tmp").write_text("half a r")
    finish(unfinished, "--resume")
    assert content(unfinished) == whole["csv"]


def test_a_full_disk_keeps_what_is_finished(tmp_path: Path, whole: dict[str, Bytes]) -> None:
    file = tmp_path / "out.csv"
    printed = refused(with_small_files(400, file))
    assert "cannot be written (File too large)" in printed
    assert safe_pieces(file) > 2
    assert f"{ROWS:,} finished rows are safe" in printed
    assert not file.exists()
    finish(file, "--resume")
    assert content(file) == whole["csv"]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_disk_too_full_for_a_part(tmp_path: Path, jobs: str) -> None:
    file = tmp_path / "out.csv"
    printed = refused(with_small_files(20, file, "--jobs", jobs))
    assert "cannot be written (File too large); nothing was changed" in printed
    assert not list(tmp_path.iterdir())


def test_an_output_folder_that_vanishes(tmp_path: Path, whole: dict[str, Bytes]) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    process = start(before / "out.csv")
    assert until_safe(process, before / "out.csv")
    before.rename(after)
    assert "its folder is gone" in refused(process)
    assert not before.exists()
    finish(after / "out.csv", "--resume")
    assert content(after / "out.csv") == whole["csv"]


def test_an_unfinished_sweep_is_neither_overwritten_nor_mixed_up(
    unfinished: Path, whole: dict[str, Bytes]
) -> None:
    assert "go on with --resume, or delete" in refused_sweep(unfinished)
    other = ["--output-tokens", "32", "--columns", "batch,step_ms"]
    printed = refused_sweep(unfinished, "--resume", *other)
    assert "of another study, or by other code, was begun there by `nearkv sweep" in printed
    study = staging(unfinished) / "manifest.json"
    before = study.read_text()
    for damaged in ("", "[]", "{"):
        study.write_text(damaged)
        assert "manifest.json cannot be read" in refused_sweep(unfinished, "--resume")
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
    done = f"{file} is complete already, with 10,000 rows; nothing was left to do\n"
    assert finish(file, *small, "--resume") == done
    printed = refused_sweep(file, "--resume")
    assert "answers another study, or was written by other code; choose another" in printed
    assert (content(file), origin.read_bytes()) == (before, record)
    place = file / "part-000000.parquet" if form == "parquet" else file
    with place.open("ab") as more:
        more.write(b"1")
    assert "was finished and has changed since" in refused_sweep(file, *small, "--resume")
    origin.unlink()
    printed = refused_sweep(file, *small, "--resume")
    assert "nothing beside it says that a sweep wrote it" in printed
    assert [left.name for left in tmp_path.iterdir()] == [file.name]
    finish(file, *small)
    assert content(file) == before


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_crash_after_the_output_took_its_name(tmp_path: Path, form: str) -> None:
    file = tmp_path / f"out.{form}"
    finish(file, *SMALL)
    before = content(file)
    staging(file).mkdir(mode=0o700)
    (staging(file) / "manifest.json").write_text("{}")
    assert "complete already" in finish(file, *SMALL, "--resume")
    assert content(file) == before
    assert not staging(file).exists()


def test_two_sweeps_on_one_output(tmp_path: Path, whole: dict[str, Bytes]) -> None:
    file = tmp_path / "out.csv"
    with start(file) as first:
        assert until_safe(first, file)
        first.send_signal(signal.SIGSTOP)
        assert "another sweep is writing it" in refused_sweep(file)
        assert "another sweep is writing it" in refused_sweep(file, "--resume")
        first.send_signal(signal.SIGCONT)
        _, printed = first.communicate()
    assert first.returncode == 0, printed
    assert content(file) == whole["csv"]


def test_any_number_of_jobs_gives_the_same_bytes(tmp_path: Path, whole: dict[str, Bytes]) -> None:
    finish(tmp_path / "out.csv", "--jobs", "2", "--quiet")
    assert content(tmp_path / "out.csv") == whole["csv"]


def test_what_is_put_into_a_dataset_under_way_stays(
    tmp_path: Path, whole: dict[str, Bytes]
) -> None:
    file = tmp_path / "out.parquet"
    finish(file, *SMALL)
    process = start(file)
    assert until_safe(process, file)
    (file / "notes.txt").write_text("mine")
    printed = refused(process)
    assert "holds 'notes.txt', so it is no dataset to replace; move it away" in printed
    assert f"{ROWS:,} finished rows are safe" in printed
    assert (file / "notes.txt").read_text() == "mine"
    (file / "notes.txt").unlink()
    finish(file, "--resume")
    assert content(file) == whole["parquet"]


def test_a_part_too_many_is_no_part(tmp_path: Path, whole: dict[str, Bytes]) -> None:
    file = tmp_path / "out.parquet"
    process = start(file)
    assert until_safe(process, file)
    stranger = staging(file) / "parts" / "part-000900.parquet"
    stranger.write_bytes(b"mine")
    printed = refused(process)
    assert f"{stranger}: was put there by another program; remove it" in printed
    stranger.unlink()
    finish(file, "--resume")
    assert content(file) == whole["parquet"]


def test_a_huge_sweep_is_refused_before_work_that_grows_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> Iterator[Piece]:
        raise AssertionError("a piece is looked at")
        yield

    monkeypatch.setattr(Plan, "pieces", never)
    axis = "1:32000:+1"
    study = Study(("hilos",), ("opt-66b",), batch=axis, context=axis, output_tokens="1,2")
    run = SweepRun(Workers(), True, False, lambda _: None, lambda _: False)
    with pytest.raises(InputError, match="2,048,000,000 rows are very many; --yes writes them"):
        to_file(study, tmp_path / "out.csv", (), run)
    assert not list(tmp_path.iterdir())


def test_two_processes_are_never_inside_at_once(tmp_path: Path) -> None:
    """At a barrier before each of 100 tries; a stale file of a lock lies there in every second."""
    context = forks()
    barrier = context.Barrier(2)
    with ProcessPoolExecutor(2, context, initializer=set_barrier, initargs=(barrier,)) as processes:
        entered = list(processes.map(enter_often, [tmp_path / "out.csv"] * 2))
    assert sum(entered) >= 100  # in each try one at least, as the other is refused or comes later
    assert min(entered) > 0
    assert not list(tmp_path.iterdir())


BARRIERS: list[Barrier] = []


def set_barrier(barrier: Barrier) -> None:
    BARRIERS.append(barrier)


def enter_often(place: Path) -> int:
    """Try to write an output again and again, as another process does at the same moments."""
    (barrier,) = BARRIERS
    folder, inside = partial_path(place), place.with_name("inside")
    entered = 0
    for turn in range(100):
        if turn % 2 and barrier.wait() == 0:
            folder.mkdir(exist_ok=True)
            (folder / "lock").touch()
        barrier.wait()
        with suppress(InputError), locked(place, dataset=False):
            inside.open("x").close()  # FileExistsError where both are inside
            inside.unlink()
            entered += 1
    return entered


def test_where_no_lock_is_kept_a_file_is_put_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearkv.sweeps.jobs.parts.fcntl", None)
    place = tmp_path / "out.csv"
    lock = partial_path(place) / "lock"
    with locked(place, dataset=False):
        assert lock.read_text() == str(os.getpid())
        with (
            pytest.raises(InputError, match="or delete the file if there is none"),
            locked(place, dataset=False),
        ):
            pass
        assert lock.exists()
    assert not list(tmp_path.iterdir())


def test_a_disk_far_too_small_needs_a_yes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000.0))
    cautious = replace(quietly(), confirm=lambda _: False)
    check_disk(tmp_path / "out.csv", 2000.0, cautious)  # a sample may say twice too much
    with pytest.raises(
        InputError, match=r"about 2.0 kB are to be written, 1.0 kB are free; choose another place"
    ):
        check_disk(tmp_path / "out.csv", 2001.0, cautious)
    check_disk(tmp_path / "out.csv", 2001.0, quietly())


def test_a_text_needs_space_for_its_parts_and_their_join(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = SimpleNamespace(free=1 << 17)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    study = Study(("accelerate",), ("llama3.1-8b",), "1:8:+1", "1k:100k:+1k")  # 190 kB
    said: list[str] = []

    def refuse(question: str) -> bool:
        said.append(question)
        return False

    run = replace(quietly(), quiet=False, say=said.append, confirm=refuse)
    with pytest.raises(InputError, match=r"are to be written, 131.1 kB are free"):
        to_file(study, tmp_path / "out.csv", (), run)
    to_file(study, tmp_path / "out.parquet", (), run)


def test_ctrl_c_while_the_lock_is_taken_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(lock: Path) -> Callable[[], None]:
        monkeypatch.setattr("nearkv.sweeps.jobs.parts.hold", hold)
        hold(lock)()
        raise KeyboardInterrupt

    monkeypatch.setattr("nearkv.sweeps.jobs.parts.hold", interrupted)
    place = tmp_path / "out.csv"
    with pytest.raises(KeyboardInterrupt), locked(place, dataset=False):
        pass
    assert not list(tmp_path.iterdir())


def test_answers_of_a_long_question_are_kept_until_all_are_there(tmp_path: Path) -> None:
    file, computed = tmp_path / "map.csv", []

    def answer(name: str) -> dict[str, str]:
        computed.append(name)
        if name == "c" and len(computed) < 4:
            raise KeyboardInterrupt
        return {"name": name}

    def answers(question: str, resume: bool) -> list[str]:
        with kept_answers(file, question, resume) as kept:
            return [kept(name, partial(answer, name))["name"] for name in "abc"]

    with pytest.raises(KeyboardInterrupt, match="2 answers are safe, go on with: nearkv"):
        answers("question", resume=False)
    with pytest.raises(InputError, match="go on with --resume"):
        answers("question", resume=False)
    with pytest.raises(InputError, match="of another study"):
        answers("another", resume=True)
    assert answers("question", resume=True) == ["a", "b", "c"]
    assert computed == ["a", "b", "c", "c"]
    assert not [*tmp_path.iterdir()]


def test_answers_are_not_kept_beside_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown form"):
        kept_answers(tmp_path / "a.xyz", [], False).__enter__()
