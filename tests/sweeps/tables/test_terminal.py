"""Tables on a terminal: nothing is cut, everything fits, what does not fit is named."""

from __future__ import annotations

import pytest

from nearkv.sweeps.tables.table import Display
from nearkv.sweeps.tables.terminal import lay_out


def columns(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Make the terminal this wide."""
    monkeypatch.setenv("COLUMNS", str(count))


def test_what_does_not_fit_is_named_and_what_is_pinned_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    columns(monkeypatch, 80)
    names = [f"column_{i}" for i in range(12)]
    rows = [dict.fromkeys(names, 123456), dict.fromkeys(names, 654321)]
    text = lay_out(Display(rows, names, pinned=("column_11",)))
    header, also = text.splitlines()[0].split(), text.split("also: ")[1]
    assert header[-1] == "column_11"
    assert set(header) | {name for name in names if name in also} == set(names)


def test_the_most_important_columns_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    columns(monkeypatch, 30)
    rows = [{"system": name, "first": 1, "second_long_name": 2, "answer": 3} for name in "ab"]
    header = lay_out(Display(rows, ("system", "answer", "first"))).split("\n")[0]
    assert header.split() == ["system", "first", "answer"]


def test_numbers_stand_on_the_right_and_names_are_never_cut() -> None:
    rows = [{"system": "a-very-long-name", "step_ms": 1.0}, {"system": "b", "step_ms": 22.5}]
    header, rule, first, second = lay_out(Display(rows)).splitlines()
    assert len(header) == len(first) == len(second)
    assert set(rule) == {"-", " "}
    assert first.split() == ["a-very-long-name", "1"]


@pytest.mark.parametrize("width", [20, 40, 80])
def test_no_letter_is_lost_however_narrow_the_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns(monkeypatch, width)
    sentence = "weights that do not fit beside the cache arrive layer by layer"
    rows = [{"system": "s" * 30, "what": sentence}, {"system": "b", "what": "else"}]
    text = lay_out(Display(rows, pinned=("system", "what")))
    assert max(map(len, text.splitlines())) <= width
    assert text.count("s") >= 30 + sentence.count("s")
    assert "…" not in text
    for word in sentence.split():
        assert word in text


def test_sentences_stand_below_in_full_and_cells_hold_their_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    columns(monkeypatch, 40)
    long = "on one platform, with eight GPUs, against another one"
    rows = [
        {"system": "a", "note": f"{long}; short"},
        {"system": "b", "note": "short"},
        {"system": "c", "note": ""},
    ]
    header, _, *lines = lay_out(Display(rows, below=["c wins."])).splitlines()
    assert header.split() == ["system", "note"]
    assert [line.split() for line in lines[:3]] == [["a", "1,2"], ["b", "2"], ["c", "-"]]
    assert " ".join(lines[3:]) == f"1: {long} 2: short c wins."


def test_columns_asked_for_that_are_too_wide_go_on_in_a_second_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    columns(monkeypatch, 30)
    names = ["system", "first_column", "second_column", "third_column"]
    rows = [dict.fromkeys(names, 1) | {"system": name} for name in ("hilos", "inf2")]
    lines = lay_out(Display(rows, pinned=names)).splitlines()
    assert [line.split() for line in lines if line.startswith("system")] == [
        ["system", "first_column"],
        ["system", "second_column"],
        ["system", "third_column"],
    ]
    assert max(map(len, lines)) <= 30


def test_what_all_rows_share_is_said_once() -> None:
    rows = [{"system": name, "model": "opt-66b", "step_ms": 1.5} for name in "ab"]
    first, header, *_ = lay_out(Display(rows)).splitlines()
    assert first == "model opt-66b"
    assert "model" not in header


def test_many_quantities_of_one_row_stand_in_two_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    columns(monkeypatch, 80)
    row: dict[str, object] = {f"quantity_{i}": i for i in range(21)}
    lines = lay_out(Display([row | {"reason": "a sentence of its own"}])).splitlines()
    assert lines[0].split() == ["quantity_0", "0", "quantity_11", "11"]
    assert lines[-1].split(maxsplit=1) == ["reason", "a sentence of its own"]
    assert len(lines) == 12


def test_sixteen_quantities_stand_in_one_column(monkeypatch: pytest.MonkeyPatch) -> None:
    columns(monkeypatch, 80)
    row: dict[str, object] = {f"quantity_{i}": i for i in range(16)}
    assert lay_out(Display([row])).splitlines()[0].split() == ["quantity_0", "0"]
    more = lay_out(Display([row | {"quantity_16": 16}])).splitlines()
    assert more[0].split() == ["quantity_0", "0", "quantity_9", "9"]


def test_no_rows_are_said() -> None:
    assert lay_out(Display([])) == "no rows\n"
    assert lay_out(Display([], title="It has no knobs.")) == "It has no knobs.\n"


def test_numbers_of_notes_rise_in_every_row() -> None:
    notes = {"a": "one; two", "b": "three; one", "c": "three; two"}
    rows = [{"system": name, "note": note} for name, note in notes.items()]
    cells = [line.split() for line in lay_out(Display(rows)).splitlines()[2:5]]
    assert cells == [["a", "1,2"], ["b", "1,3"], ["c", "2,3"]]


@pytest.mark.parametrize(
    "row", [{"step_ms": 1.0}, {"note": "a sentence"}, {"step_ms": 1, "note": "n"}]
)
def test_one_row_has_a_line_a_quantity_and_no_empty_one(row: dict[str, object]) -> None:
    assert lay_out(Display([row])).count("\n") == len(row)
