"""Rows in every form of file: the same numbers, names and blanks as a table has."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from support.command_line import succeed
from support.studies import MIXED, quietly

from nearkv.hardware.errors import InputError
from nearkv.hardware.schema import PART_TYPES
from nearkv.hardware.units import unit_of
from nearkv.sweeps.evaluate.columns import table
from nearkv.sweeps.jobs.formats import encoded, encoded_piece, table_of
from nearkv.sweeps.jobs.parts import to_file
from nearkv.sweeps.jobs.plan import Plan, plan
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.tables.formats import render
from nearkv.sweeps.tables.table import Columns, Display, records


@pytest.fixture(scope="module")
def rows() -> Plan:
    """Rows of a study with every kind of column."""
    return plan(MIXED)


@pytest.fixture(scope="module")
def found() -> Columns:
    """The same in memory."""
    return table(MIXED)


def whole(rows: Plan, form: str, most: int = 1 << 16) -> bytes:
    return b"".join(encoded_piece(rows.packed(), form, piece) for piece in rows.pieces(most))


def test_csv_is_what_the_terminal_prints_as_csv(tmp_path: Path) -> None:
    """A price of 1e-09 and a size of 900000000000 have the digits of a file."""
    words = ["compare", "flexgen-dram", "hilos", "--model", "opt-30b,opt-175b", "--batch", "1,64"]
    printed = succeed(*words, "--format", "csv")
    assert not re.search(r"e[+-]0", printed)
    succeed(*words, "-o", str(tmp_path / "out.csv"))
    assert printed == (tmp_path / "out.csv").read_text()


def test_csv_writes_whole_numbers_without_a_point_and_blanks_for_nothing(rows: Plan) -> None:
    lines = list(csv.DictReader(io.StringIO(whole(rows, "csv").decode())))
    assert {line["gpu.bandwidth_gb_s"] for line in lines} == {"1000", "2000"}
    assert {line["status"] for line in lines} == {"ok", "infeasible"}
    assert {line["step_ms"] for line in lines if line["status"] != "ok"} == {""}
    assert {line["hot_share"] for line in lines if line["system"] == "accelerate"} == {""}
    assert {line["context_tok"] for line in lines} == {"8192", "16384", "32768", "65536", "131072"}


def test_set_numbers_stand_in_a_unit_their_column_names() -> None:
    sets = {
        "uplink.bandwidth": "8 GB/s,3.3GB/s",
        "csd.page": "16KiB",
        "csd.commit": "43.7us",
        "csd.count": "4",
    }
    found = table(Study(("hilos",), ("opt-66b",), sets=sets))
    shown = ("uplink.bandwidth_gb_s", "csd.page_kib", "csd.commit_us", "csd.count")
    assert [found[name].tolist() for name in shown] == [[8, 3.3], [16, 16], [43.7, 43.7], [4, 4]]
    capped = table(Study(("inf2",), ("opt-66b",), knobs={"memory": "256GB"}))
    assert capped["memory_gb"].tolist() == [256]
    for key in (key for keys in PART_TYPES.values() for key in keys.values()):
        assert unit_of(key.shown_in)[0] == unit_of(key.unit)[0]


@pytest.mark.slow
def test_numbers_read_back_as_they_were(rows: Plan, found: Columns) -> None:
    cells = list(csv.DictReader(io.StringIO(whole(rows, "csv").decode())))
    lines = [json.loads(line) for line in whole(rows, "jsonl").decode().splitlines()]
    for name in ("hot_share", "step_ms", "energy_j_tok", "short_gb"):
        read = np.array([float(cell[name] or "nan") for cell in cells])
        np.testing.assert_array_equal(read, found[name], err_msg=name)
        listed = np.array([np.nan if line[name] is None else line[name] for line in lines], float)
        np.testing.assert_array_equal(listed, found[name], err_msg=name)


@pytest.mark.slow
def test_json_lines_hold_what_the_terminal_prints_as_json(rows: Plan, found: Columns) -> None:
    lines = [json.loads(line) for line in whole(rows, "jsonl").decode().splitlines()]
    for mine, printed in zip(
        lines, json.loads(render(Display(records(found)), "json")), strict=True
    ):
        assert list(mine) == list(printed)
        assert {name: cell for name, cell in mine.items() if cell not in (None, "")} == {
            name: cell for name, cell in printed.items() if cell not in (None, "")
        }


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.slow
def test_bytes_do_not_depend_on_the_piece(rows: Plan, form: str) -> None:
    assert whole(rows, form, 23) == whole(rows, form)


@pytest.mark.slow
def test_a_dataset_reads_as_one_table(tmp_path: Path, found: Columns) -> None:
    to_file(MIXED, tmp_path / "out.parquet", (), quietly())
    read = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pydict()
    assert list(read) == list(found)
    assert read["system"] == found["system"].tolist()
    assert read["batch"][:3] == [1, 1, 1]
    np.testing.assert_array_equal(np.array(read["step_ms"], float), found["step_ms"])
    origin = json.loads((tmp_path / "out.parquet.provenance.json").read_text())
    assert origin["platforms"].keys() == {"inf2-h100", "aipc-4090"}


@pytest.mark.slow
def test_columns_chosen_are_columns_written_in_that_order(tmp_path: Path) -> None:
    to_file(MIXED, tmp_path / "out.csv", ("step_ms", "model"), quietly())
    assert (tmp_path / "out.csv").read_text().startswith("step_ms,model\n")
    with pytest.raises(InputError, match="did you mean 'step_ms'"):
        to_file(MIXED, tmp_path / "out.csv", ("step_m",), quietly())


def test_names_that_csv_must_quote_are_quoted() -> None:
    found: dict[str, list[Any]] = {"model": ['say "x"', "plain"], "step_ms": [1.5, np.inf]}
    text = encoded(table_of(found), "csv").decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert rows == [{"model": 'say "x"', "step_ms": "1.5"}, {"model": "plain", "step_ms": "inf"}]
    text = encoded(table_of(found), "jsonl").decode()
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines == [{"model": 'say "x"', "step_ms": 1.5}, {"model": "plain", "step_ms": None}]


def test_numbers_beyond_64_bits_are_written_as_they_are() -> None:
    """10^19 is above 2^63: as an integer it would be written as -9223372036854775808."""
    table = table_of({"bytes": [1e19], "batch": [16.0]})
    assert table.to_pylist() == [{"bytes": 1e19, "batch": 16}]
