"""The table of contents of the command line: the commands, in the order of their use."""

from __future__ import annotations

from nearkv.sweeps.commands.failures import Registry, Version

app = Registry(
    "Predict how long-context LLM inference behaves on heterogeneous memory, and pick what is best."
)
solve = Registry(
    "Find the best value of a knob, with a proof, beside what the paper's rule picks."
)

app.announce("estimate", "asking", "Predict one system on one workload.")
app.announce(
    "compare",
    "asking",
    "Put systems side by side; ratios are over the first, on its first platform and knob value.",
)
app.announce(
    "sweep",
    "sweeping",
    "Evaluate a grid of design points into a file, or keep only the best.",
)

app.add(solve, "solve")
solve.announce(
    "alpha", "solving", "Find the best X-cache share: exact, with a lower bound."
)
solve.announce(
    "beta",
    "solving",
    "Find the best split of the KV cache between host DRAM and SmartSSD, with a lower bound.",
)
solve.announce("spill", "solving", "Find the best spill interval c by trying every one.")
solve.announce(
    "mapping",
    "solving",
    "Find the heads of each sub-layer to put on HBM, for one decode step.",
)
solve.announce(
    "mapping-trace",
    "solving",
    "Map anew in every step while requests finish at random (H2M2 sec. 5.3).",
)
solve.announce(
    "subbatch",
    "splitting",
    "Split one iteration of L3 into sub-batches and chunks: proven best.",
)
solve.announce(
    "placement",
    "designing",
    "Place weights, KV cache and activations on GPU, CPU and disk.",
)
solve.announce(
    "batch",
    "designing",
    "Find the largest batch that is served at once, and the batch of best throughput.",
)
solve.announce(
    "hardware",
    "designing",
    "Find the least hardware that meets an SLO, or what stands in the way.",
)
solve.announce(
    "crossover", "designing", "Find where one system overtakes another along an axis."
)

app.announce(
    "pareto",
    "exploring",
    "Keep the designs of a sweep that no other beats in every column.",
)
app.announce(
    "sensitivity",
    "exploring",
    "Say which hardware numbers a prediction depends on, and how far its assumptions reach.",
)
app.announce(
    "plot",
    "plotting",
    "Draw a table that another command wrote: bars, lines, maps and more.",
)
app.announce(
    "figure",
    "figuring",
    "Draw a figure of a paper: our predictions, and beside them what the paper states.",
)
app.announce(
    "report",
    "reporting",
    "Write one page with the answer, figures, the table, time trees and every source.",
)

app.announce(
    "validate", "reviewing", "Compare every published claim with what the model predicts."
)
app.announce(
    "calibrate",
    "reviewing",
    "Fit assumed numbers of a platform inside their ranges; say what the rows do not determine.",
)
app.announce(
    "coverage",
    "covering",
    "Say how many measured runs lie in the bands that are predicted without them.",
)

app.announce(
    "systems",
    "browsing",
    "List the systems; `systems show NAME` prints one with its knobs.",
)
app.announce("models", "owning", "List the models; `models show NAME` prints every number.")
app.announce(
    "hardware",
    "browsing",
    "List platforms and parts; `hardware show NAME` prints every number.",
)
app.announce(
    "columns",
    "browsing",
    "List the columns of results; `columns show NAME` prints what one means.",
)


@app.callback()
def nearkv(version: Version = False) -> None:
    """Predict how long-context LLM inference behaves on heterogeneous memory.

    Example: nearkv compare flexgen-ssd hilos --model opt-66b --context 64k
    """


if __name__ == "__main__":
    app()
