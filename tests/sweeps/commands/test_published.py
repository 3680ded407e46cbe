"""Knobs as a system's paper sets them, and the sentence that says when they are solved instead."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from support.command_line import refusal, succeed
from support.screen import Screen

import nearkv
from nearkv.cli import app
from nearkv.sweeps.commands.papers import _times_as_long

OF_175B = ("--model", "opt-175b", "--context", "128k", "--set", "csd.count=16")
SOLVED = "knobs solved; --published for the papers' settings"


def shown(line: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Output of a command on a terminal, in one line."""
    screen = Screen(monkeypatch)
    app(shlex.split(line), standalone_mode=False)
    return " ".join(screen.text().split())


def test_175b_at_128k_as_hilos_ran_it() -> None:
    """The rule of sec. 4.2 gives alpha 0.5 with 16 devices, and the GPU then binds.

    Half of 16 sequences of 131,104.5 tokens, 96 layers, 4 h^2 FLOPs a token with h = 12,288: 232 s
    at 0.83 of 312 TFLOP/s. FLEX(SSD) reads 9.90 TB of K and V at 7.0 GB/s in 1,414 s.
    """
    sets = {"csd.count": 16}
    systems = ["flexgen-ssd", "hilos", "flexgen-dram"]
    table = nearkv.compare(systems, "opt-175b", context="128k", sets=sets, published=True)
    flexgen, hilos, _ = table["step_ms"] / 1e3
    tokens = 131_104.5
    rebuild = 96 * 8 * tokens * 4 * 12_288**2 / (0.83 * 312e12)
    read = 96 * 16 * tokens * 4 * 12_288 / 7.0e9
    assert table["alpha"][1] == 0.5
    # beside these, attention and the weights that wait for it
    assert rebuild < hilos < 1.12 * rebuild
    assert read < flexgen < 1.03 * read
    assert 5.3 < flexgen / hilos < 6.1
    assert table["status"].tolist() == ["ok", "ok", "infeasible"]


def test_published_is_the_same_as_stating_each_setting() -> None:
    words = ("compare", "flexgen-ssd", "hilos", *OF_175B, "--format", "csv")
    stated = ("--knob", "weights=paper", "--knob", "alpha=paper-power-of-two")
    assert succeed(*words, "--published") == succeed(*words, *stated)
    # what is stated goes before what is published
    both = succeed(*words, "--published", "--knob", "alpha=0.25")
    assert both == succeed(*words, "--knob", "weights=paper", "--knob", "alpha=0.25")


def test_a_study_file_may_ask_for_the_papers_settings(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    text = 'systems = ["hilos"]\nmodel = ["opt-66b"]\n'
    file.write_text(text + "published = true\n")
    words = ("--system", "hilos", "--model", "opt-66b", "--published")
    assert succeed("sweep", str(file), "--format", "csv") == succeed(
        "sweep", *words, "--format", "csv"
    )
    file.write_text(text + 'published = "yes"\n')
    assert "give true or false" in refusal("sweep", str(file))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("compare flexgen-ssd hilos", "; hilos takes 1.28 times as long with them."),
        ("estimate hilos", "; hilos takes 1.28 times as long with them."),
        ("solve alpha", "."),
        ("solve batch", "."),
    ],
)
def test_a_terminal_says_that_knobs_are_solved(
    line: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"{SOLVED}{told}" in shown(shlex.join([*line.split(), *OF_175B]), monkeypatch)


@pytest.mark.parametrize(
    "line",
    [
        "compare hilos --model opt-66b --published",
        "compare hilos --model opt-66b --knob alpha=0.5 --knob weights=paper",
        "compare hilos --model opt-66b --format csv",
        "compare gpu --model llama3.1-8b",
        "compare hilos --model opt-66b --batch 1:65:+1 --columns batch,step_ms",
    ],
)
def test_nothing_is_said_where_nothing_is_solved_or_read(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SOLVED not in shown(line, monkeypatch)


def test_a_pipe_and_a_file_hold_no_sentence(tmp_path: Path) -> None:
    words = ("compare", "hilos", "--model", "opt-66b")
    assert SOLVED not in succeed(*words)
    assert SOLVED not in succeed(*words, "-o", str(tmp_path / "rows.csv"))
    assert SOLVED not in (tmp_path / "rows.csv").read_text()


def test_the_settings_of_the_papers_are_named() -> None:
    words = ("compare", "flexgen-ssd", "hilos", "--model", "opt-66b", "--published")
    text = succeed(*words)
    assert "--published: flexgen-ssd weights=paper; hilos alpha=paper-power-of-two" in text
    assert "hilos weights=paper" in succeed(*words, "--knob", "alpha=0.5")


def test_requests_by_the_papers_settings_take_times_as_long() -> None:
    solved = [{"system": "hilos", "total_s": total} for total in (2.0, 4.0)]
    papers = [{"system": "hilos", "total_s": total} for total in (3.0, 8.0)]
    assert _times_as_long(solved, papers) == ["; hilos takes 1.5 to 2 times as long with them"]
