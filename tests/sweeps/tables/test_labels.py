"""Labels: units in brackets, sizes in binary thousands."""

from __future__ import annotations

import pytest

from nearkv.sweeps.tables.labels import label_of, short_number, stem_and_unit


@pytest.mark.parametrize(
    ("column", "label"),
    [
        ("step_ms", "Step (ms)"),
        ("throughput_tok_s", "Throughput (tok/s)"),
        ("csd.count", "csd.count"),
        ("uplink.bandwidth_gb_s", "uplink.bandwidth (GB/s)"),
    ],
)
def test_a_label_has_its_unit(column: str, label: str) -> None:
    assert label_of(column) == label


def test_a_name_without_a_unit_stays_as_it_is() -> None:
    assert stem_and_unit("opt-66b") == ("opt-66b", "")


def test_contexts_are_counted_in_binary_thousands() -> None:
    assert [short_number(value) for value in (65536.0, 1.5, float("nan"))] == ["64k", "1.5", "-"]
