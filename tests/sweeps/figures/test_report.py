"""The report is one page: complete, self-contained, bounded, safe inside HTML."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pandas as pd
import pytest

from nearkv.costmodel.model.registry import System
from nearkv.hardware.errors import InputError, NearkvWarning
from nearkv.sweeps.explore.explain import time_tree as tree_of_a_point
from nearkv.sweeps.figures import report as reporting
from nearkv.sweeps.figures.report import answer, report_page, time_tree
from nearkv.sweeps.study.study import Study, blocks

STUDY = Study(("flexgen-ssd", "flexgen-dram", "hilos"), ("opt-66b",), "16", "16k,64k")


@pytest.fixture(scope="module")
def page() -> str:
    return report_page(STUDY, "nearkv report '<study>'")


def data_of(page: str) -> dict[str, Any]:
    """The JSON inside a page."""
    match = re.search(r'id="report">(.*?)</script>', page, re.DOTALL)
    assert match
    data: dict[str, Any] = json.loads(match[1])
    return data


@pytest.mark.slow
def test_a_page_needs_nothing_from_anywhere(page: str) -> None:
    """No address is loaded: namespaces of SVG and links of its own ids apart."""
    loaded = re.findall(r'(?:src|href)="(?!#|data:,)([^"]*)"', page)
    assert loaded == []
    assert "@import" not in page
    assert "fetch(" not in page


@pytest.mark.slow
def test_a_page_of_a_knob_that_one_system_lacks() -> None:
    """It has bars of each value, in which that system stands too."""
    study = STUDY.but(systems=("flexgen-dram", "hilos"), context="8k:32k:x2")
    study = study.but(knobs={"devices": "4,8"})
    drawn = report_page(study, "nearkv report")
    for caption in ("Throughput, devices 4", "Throughput, devices 8"):
        assert caption in drawn


def test_the_answer_is_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = reporting.evaluated(STUDY).answer
    monkeypatch.setattr(reporting, "MOST_REPORT_ROWS", 2)
    assert reporting.evaluated(STUDY).answer == whole


def test_more_rows_than_a_table_holds_are_refused_before_they_are_evaluated() -> None:
    """A million million design points once ended in an array that no memory holds."""
    study = STUDY.but(systems="hilos", batch="1:3000:+1", context="1:3000:+1")
    with pytest.raises(InputError, match="9,000,000 design points are too many for one table"):
        reporting.evaluated(study)


@pytest.mark.slow
def test_every_row_has_a_time_tree_that_lasts_as_long(page: str) -> None:
    data = data_of(page)
    total = data["columns"].index("total_s")
    assert len(data["rows"]) == 6
    for row, (tree, within) in zip(data["rows"], data["places"], strict=True):
        assert data["trees"][tree]["seconds"][0][within] == pytest.approx(row[total], rel=1e-3)


@pytest.mark.slow
def test_parts_of_a_serial_span_sum_to_it(page: str) -> None:
    for tree in data_of(page)["trees"]:
        paths = [span[0] for span in tree["spans"]]
        children = [paths.index("prefill"), paths.index("decode")]
        for within, whole in enumerate(tree["seconds"][0]):
            parts = sum(tree["seconds"][child][within] for child in children)
            assert parts == pytest.approx(whole, rel=1e-3)


@pytest.mark.slow
def test_marks_say_their_value(page: str) -> None:
    data = data_of(page)
    speed = data["columns"].index("throughput_tok_s")
    rows = {(row[0], row[data["columns"].index("context_tok")]): row[speed] for row in data["rows"]}
    ratio = rows["hilos", 65536] / rows["flexgen-ssd", 65536]
    assert f"<title>HILOS: {ratio:.4g}</title>" in page


@pytest.mark.slow
def test_ids_are_unique(page: str) -> None:
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


@pytest.mark.slow
def test_the_command_cannot_break_out_of_the_page(page: str) -> None:
    assert "&lt;study&gt;" in page
    assert "<study>" not in page


@pytest.mark.slow
def test_the_answer_names_the_fastest_and_by_how_much(page: str) -> None:
    match = re.search(r'id="answer">(.*?)</p>', page)
    assert match
    data = data_of(page)
    speed = data["columns"].index("decode_tok_s")
    first = [row[speed] for row in data["rows"] if row[0] == "flexgen-ssd"]
    best = [row[speed] for row in data["rows"] if row[0] == "hilos"]
    ratios = sorted(b / f for b, f in zip(best, first, strict=True))
    assert "hilos decodes fastest at 2 of 2 points" in match[1]
    assert f"{ratios[0]:.3g} to {ratios[1]:.3g} times flexgen-ssd" in match[1]


@pytest.mark.slow
def test_of_too_many_rows_the_fastest_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "MOST_REPORT_ROWS", 3)
    with pytest.warns(NearkvWarning, match="what is compared with it is blank there"):
        page = report_page(STUDY, "nearkv")
    data = data_of(page)
    assert len(data["rows"]) == 3
    assert "3 more are not on this page" in page
    whole = data_of(report_of_all(monkeypatch))
    speed = data["columns"].index("throughput_tok_s")
    fastest = sorted(row[speed] for row in whole["rows"])[-3:]
    assert sorted(row[speed] for row in data["rows"]) == fastest


def report_of_all(monkeypatch: pytest.MonkeyPatch) -> str:
    """The page with all rows."""
    monkeypatch.setattr(reporting, "MOST_REPORT_ROWS", 2000)
    return report_page(STUDY, "nearkv")


@pytest.mark.slow
def test_two_thousand_rows_stay_under_three_megabytes() -> None:
    batches = ",".join(str(batch) for batch in range(1, 126))
    wide = STUDY.but(systems=("flexgen-dram", "hilos"), batch=batches, context="1k:128k:x2")
    page = report_page(wide, "nearkv")
    assert len(data_of(page)["rows"]) == 2000
    assert len(page.encode()) < 3_000_000


@pytest.mark.slow
def test_two_axes_have_bars_for_each_value_of_one() -> None:
    two = Study(("flexgen-ssd", "hilos"), ("opt-30b", "opt-66b"), context="8k,16k,32k")
    drawn = "".join(reporting.figures(reporting.evaluated(two)))
    for model in two.models:
        assert f"<figcaption>Throughput, model {model}</figcaption>" in drawn


@pytest.mark.slow
def test_where_nothing_fits_the_page_says_why() -> None:
    page = report_page(
        STUDY.but(systems=("flexgen-dram",), models=("opt-175b",), context="128k"), "nearkv"
    )
    assert "Nothing fits" in page


@pytest.mark.slow
def test_what_differs_beside_the_system_is_a_note() -> None:
    page = report_page(STUDY.but(systems=("hilos", "l3"), context="16k"), "nearkv")
    assert "on dgx-a100-pim against hilos-a100" in page


def test_one_system_alone_is_compared_with_nothing() -> None:
    table = pd.DataFrame(
        {"system": "drives", "status": ["ok", "ok"], "throughput_tok_s": [2.0, 8.0]}
    )
    assert answer(table, []) == "drives generates 2 to 8 tokens per second."


QUEUES = ("l3", "gpu", "hbm-pim", "rank-pim", "cpu-offload")
SMALLER = {"aipc-4090": "llama2-7b", "workstation-5090": "opt-30b"}
"""Machines whose memories do not hold OPT-66B, and a model that they hold."""


def assert_adds_up(rows: Mapping[str, tuple[str, float]], rel: float) -> None:
    """Serial parts add up to their span; of those at once none takes longer than it.

    Args:
        rows: path -> word and seconds.
        rel: how exactly they are printed.
    """
    for path, (word, seconds) in rows.items():
        inside = "" if path in ("", "total") else f"{path}/"
        parts = [
            own[1]
            for name, own in rows.items()
            if name not in ("", "total") and name.startswith(inside)
            if "/" not in name.removeprefix(inside)
        ]
        if word == "serial":
            assert sum(parts) == pytest.approx(seconds, rel=rel), path
        else:
            assert word in ("overlap", "stream", "leaf"), path
            assert all(part <= seconds * (1 + rel) for part in parts), path


def trees(study: Study) -> None:
    (block,) = blocks(study)
    rows = tree_of_a_point(block.resolved(block.grid.whole).estimate)
    point = {str(row["span"]): (str(row["word"]), float(str(row["seconds"]))) for row in rows}
    assert_adds_up(point, 1e-9)
    tree = time_tree(block)
    spans = zip(tree["spans"], tree["seconds"], strict=True)
    nodes = {path: (word, seconds[0]) for (path, word, *_), seconds in spans}
    assert_adds_up(nodes, 2e-3)  # a report rounds to four digits
    assert len(nodes) >= 10


def test_parts_of_a_tree_add_up_to_what_holds_them(system: System) -> None:
    model = SMALLER.get(system.platform, "opt-66b")
    trees(Study((system.name,), (model,), batch="1", context="8k"))


@pytest.mark.parametrize("system", QUEUES)
def test_so_do_the_parts_of_a_queue_and_its_drain(system: str) -> None:
    """The drain's six iterations run for long, all at once computed or not."""
    trees(Study((system,), ("gpt-175b",), traces=("openr1",)))
