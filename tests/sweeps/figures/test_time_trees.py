"""Time trees as people see them, of one point and of a report: parts add up to what holds them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from nearkv.costmodel.model.registry import System
from nearkv.sweeps.explore.explain import one_point
from nearkv.sweeps.explore.explain import time_tree as tree_of_a_point
from nearkv.sweeps.figures.time_trees import time_tree as tree_of_rows
from nearkv.sweeps.study.study import Study, blocks

QUEUES = ("l3", "gpu-only", "hbm-pim", "rank-pim", "cpu-offload")


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
    rows = tree_of_a_point(one_point(study))
    point = {str(row["span"]): (str(row["word"]), float(str(row["seconds"]))) for row in rows}
    assert_adds_up(point, 1e-9)
    nodes = {node.path: (node.kind, node.seconds[0]) for node in tree_of_rows(block)}
    assert_adds_up(nodes, 2e-3)  # a report rounds to four digits
    assert len(nodes) >= 10


def test_parts_of_a_tree_add_up_to_what_holds_them(system: System) -> None:
    model = "llama2-7b" if system.platform == "aipc-4090" else "opt-66b"
    trees(Study((system.name,), (model,), batch="1", context="8k"))


@pytest.mark.parametrize("system", QUEUES)
def test_so_do_the_parts_of_a_queue_and_its_drain(system: str) -> None:
    """The drain's six iterations run for long, all at once computed or not."""
    trees(Study((system,), ("gpt-175b",), traces=("openr1",)))
