"""What a terminal of 80 columns and 24 lines shows of every command of the README."""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import sys
import threading
from pathlib import Path

import pytest
from support.measured_runs import write_runs

from nearkv.cli import app, complain

README = (Path(__file__).parents[3] / "README.md").read_text()
COMMANDS = list(
    dict.fromkeys(
        line.split("  #")[0].strip()
        for line in re.findall(r"(?:^    |`|<!-- |\| )nearkv ([a-z][^`|>\n]*)", README, re.M)
    )
)
NEEDS_FILES = ("plot", "report", "calibrate", "validate")
"""Commands that draw, read a user's own file, or take long: tests of their own are below."""
TABLES = [line for line in COMMANDS if line.split()[0] not in NEEDS_FILES and "-o " not in line]
COLOUR = re.compile(r"\x1b\[\d*m")


class Screen:
    """A pseudo-terminal in place of standard output."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.received = b""
        self.leader, follower = pty.openpty()
        self.file = os.fdopen(follower, "w")
        self.reader = threading.Thread(target=self._read)
        self.reader.start()
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("LINES", "24")
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setattr(sys, "stdout", self.file)

    def _read(self) -> None:
        try:
            while piece := os.read(self.leader, 4096):
                self.received += piece
        except OSError:  # the other end is closed
            pass

    def text(self) -> str:
        """All that was printed, without colours."""
        self.file.close()
        self.reader.join(10)
        os.close(self.leader)
        return COLOUR.sub("", self.received.decode().replace("\r\n", "\n"))


def test_the_readme_has_commands() -> None:
    assert len(TABLES) > 12


@pytest.mark.parametrize("line", TABLES)
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
    assert "bounds_kept" in "".join(lines[-12:])
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


def test_infeasible_is_red_and_the_bottleneck_yellow(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "flexgen-dram hilos --model opt-175b --context 128k --columns system,status,bottleneck"
    screen = Screen(monkeypatch)
    app(["compare", *words.split()], standalone_mode=False)
    screen.text()
    lines = screen.received.decode().splitlines()
    assert [line[:5] for line in lines if "flexgen-dram\x1b" in line] == ["\x1b[31m"]
    assert any("\x1b[33m" in line for line in lines if line.startswith("hilos"))
