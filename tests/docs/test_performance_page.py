"""docs/performance.md holds a row for every command that `make performance` measures."""

from __future__ import annotations

from pathlib import Path

from bench.peers import PEERS
from bench.performance import HEADINGS, rows

PAGE = (Path(__file__).parents[2] / "docs" / "performance.md").read_text()


def test_every_measured_command_has_its_row() -> None:
    for section, (title, _, heading) in HEADINGS.items():
        _, _, text = PAGE.partition(f"## {title}\n")
        table, _, _ = text.partition("\n## ")
        cells = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")]
        labels = [row.label for row in rows() if row.section == section]
        assert [first.removeprefix("| ") for first, *_ in cells] == [heading, *labels]


def test_every_other_cost_model_has_its_row() -> None:
    for peer in PEERS:
        assert f"| {peer.package} | {peer.question} | " in PAGE
