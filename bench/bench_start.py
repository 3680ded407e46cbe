"""How long `nearkv --help` and one estimate take beside importing what they need alone.

CPU seconds of processes whose Python is compiled, as it is once a package is installed: each is run
once before it is measured, then all are run in turn.
"""

import os
import statistics
import sys
import tempfile
from pathlib import Path

from bench.processes import cost_of

ROUNDS = 11
NEARKV = str(Path(sys.executable).with_name("nearkv"))
POINT = ["hilos", "--model", "opt-66b", "--batch", "16", "--context", "64k"]
COMMANDS = {
    "typer": [sys.executable, "-c", "import typer"],
    "help": [NEARKV, "--help"],
    "imports": [sys.executable, "-c", "import typer, numpy, rich.console, rich.table"],
    "estimate": [NEARKV, "estimate", *POINT],
}


def medians(environment: dict[str, str]) -> dict[str, float]:
    """Median CPU time of each command, all of them run in turn [s]."""
    spent: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for turn in range(ROUNDS + 1):
        for name, command in COMMANDS.items():
            cost = cost_of(command, environment)
            if turn:  # the first compiles
                spent[name].append(cost.cpu)
    return {name: statistics.median(seconds) for name, seconds in spent.items()}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        median = medians(environment)
    for name, alone, limit in (("help", "typer", 1.15), ("estimate", "imports", 1.4)):
        print(
            f"nearkv {name}: {1e3 * median[name]:.0f} ms, {alone} alone "
            f"{1e3 * median[alone]:.0f} ms, ratio {median[name] / median[alone]:.2f} "
            f"(at most {limit})"
        )
