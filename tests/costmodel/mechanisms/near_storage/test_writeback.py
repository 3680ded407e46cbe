"""Rows in pages and buffers, by hand."""

from __future__ import annotations

import pytest
from support.tiny import TINY, amounts

from nearkv.costmodel.algebra.span import Port
from nearkv.costmodel.mechanisms.near_storage.writeback import (
    mean_buffered_pages,
    pages_per_row,
    rows_per_page,
    stage_pages,
)
from nearkv.costmodel.model.resources import csd
from nearkv.hardware.catalog import load_platform


@pytest.mark.parametrize(
    ("interval", "rows", "pages"),
    [
        # 3 steps with one page, 3 with two, 3 with three, one with four
        (10.0, 3.0, 22 / 10),
        (6.0, 3.0, 9 / 6),
        (16.0, 1.0, 136 / 16),
        (2.0, 8.0, 1.0),
    ],
)
def test_a_buffer_fills_page_by_page(interval: float, rows: float, pages: float) -> None:
    assert mean_buffered_pages(interval, rows) == pytest.approx(pages)


def test_a_row_of_two_pages_is_sent_in_two_transfers_and_two_waits() -> None:
    """Rows of 6 bytes on pages of 4, 1 to 3 of them: 2 on average of 5 sequences' two heads. With
    each goes a score of 2 bytes of each of three queries."""
    hw = load_platform("hilos-a100").machine().with_values({"csd.page": 4.0})
    staged = stage_pages(TINY, 5.0, 3.0, csd(hw, 3.0), Port("uplink.out", "move", 1.0))
    assert amounts(staged) == pytest.approx(
        {"host.driver wait": 2 * 10 * 2 * 2, "uplink.out move": 10 * 2 * (6 + 3 * 2)}
    )


def test_a_page_holds_whole_rows_and_one_at_least() -> None:
    """Rows of 3 elements of 2 bytes."""
    assert [float(rows_per_page(TINY, page)) for page in (20.0, 6.0, 4.0)] == [3, 1, 1]
    assert [float(pages_per_row(TINY, page)) for page in (20.0, 6.0, 4.0)] == [1, 1, 2]
