"""The figures by name: `nearkv.plot.bars` and its siblings."""

from __future__ import annotations

from nearkv.sweeps.figures.bars import bars
from nearkv.sweeps.figures.lines import lines
from nearkv.sweeps.figures.papers import PaperFigure, draw, paper_figure
from nearkv.sweeps.figures.policy_map import policy_map
from nearkv.sweeps.figures.reliability import reliability
from nearkv.sweeps.figures.scatter import pareto, parity
from nearkv.sweeps.figures.stacked import breakdown, tornado
from nearkv.sweeps.figures.style import save

__all__ = [
    "PaperFigure",
    "bars",
    "breakdown",
    "draw",
    "lines",
    "paper_figure",
    "pareto",
    "parity",
    "policy_map",
    "reliability",
    "save",
    "tornado",
]
