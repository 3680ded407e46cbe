"""The table of contents of the command line: a line per command, in the order of their use."""

from __future__ import annotations

from nearkv.sweeps.commands import (
    browsing,
    covering,
    designing,
    exploring,
    reviewing,
    solving,
    splitting,
)
from nearkv.sweeps.commands.asking import compare, estimate
from nearkv.sweeps.commands.failures import Registry, Version
from nearkv.sweeps.commands.figuring import figure
from nearkv.sweeps.commands.plotting import plot
from nearkv.sweeps.commands.reporting import report
from nearkv.sweeps.commands.sweeping import sweep

app = Registry(
    "Predict how long-context LLM inference behaves on heterogeneous memory, and pick what is best."
)
solve = solving.solve

app.add(estimate)
app.add(compare)
app.add(sweep)

app.add(solve, "solve")
solve.add(solving.alpha)
solve.add(solving.beta)
solve.add(solving.spill)
solve.add(solving.mapping)
solve.add(solving.mapping_trace, "mapping-trace")
solve.add(splitting.subbatch)
solve.add(designing.placement)
solve.add(designing.batch)
solve.add(designing.hardware)
solve.add(designing.crossover)

app.add(exploring.pareto)
app.add(exploring.sensitivity)
app.add(plot, "plot")
app.add(figure)
app.add(report)

app.add(reviewing.validate)
app.add(reviewing.calibrate)
app.add(covering.coverage)

app.add(browsing.systems, "systems")
app.add(browsing.models, "models")
app.add(browsing.hardware, "hardware")
app.add(browsing.columns, "columns")


@app.callback()
def nearkv(version: Version = False) -> None:
    """Predict how long-context LLM inference behaves on heterogeneous memory.

    Example: nearkv compare flexgen-ssd hilos --model opt-66b --context 64k
    """


if __name__ == "__main__":
    app()
