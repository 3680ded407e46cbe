"""docs/performance.md holds nothing but what `make performance` measures, in its order."""

from __future__ import annotations

from pathlib import Path

from bench.peers import PEERS
from bench.performance import HEADINGS, rows

PAGE = (Path(__file__).parents[2] / "docs" / "performance.md").read_text()


def test_every_row_was_measured_and_is_one_that_is_measured() -> None:
    for section, (title, _, heading) in HEADINGS.items():
        _, _, text = PAGE.partition(f"## {title}\n")
        table, _, _ = text.partition("\n## ")
        cells = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")]
        labels = [heading, *(row.label for row in rows() if row.section == section)]
        shown = [first.removeprefix("| ") for first, *_ in cells]
        assert shown == [label for label in labels if label in shown]
        assert "-" not in [cell for row in cells for cell in row]
    assert "`nearkv solve alpha --model opt-66b --context 64k`" in PAGE


def test_every_other_cost_model_has_its_row() -> None:
    for peer in PEERS:
        assert f"| {peer.package} | {peer.question} | " in PAGE
