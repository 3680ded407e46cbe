"""Write docs/performance.md: what commands cost, and how that grows; `make performance`.

Every row is a process of its own: CPU seconds of it and of those it starts, and the most memory
that was resident at a time. A row is the median of three, or one run where it takes long.
"""

import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import designs, peers
from bench.processes import Cost, cost_of

NEARKV = str(Path(sys.executable).with_name("nearkv"))
PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
LONG = 5.0
"""Seconds from which one run is enough [s]."""
HILOS = "--system hilos --model opt-66b"
POINTS = {
    "10^5": "--batch 1:20:+1 --context 4k:200k:+4k --set csd.count=1:100:+1",
    "10^6": "--batch 1:200:+1 --context 4k:200k:+4k --set csd.count=1:100:+1",
    "10^7": "--batch 1:200:+1 --context 4k:2000k:+4k --set csd.count=1:100:+1",
}
"""Grids of three axes, by their design points."""
MILLION = {
    2: "--batch 1:1000:+1 --context 1k:1000k:+1k",
    3: "--batch 1:100:+1 --context 10k:1000k:+10k --set csd.count=1:100:+1",
    4: "--batch 1:100:+1 --context 10k:1000k:+10k --set csd.count=1:10:+1 "
    "--set uplink.bandwidth=10GB/s:19GB/s:+1GB/s",
    6: "--batch 1:10:+1 --context 10k:100k:+10k --set csd.count=1:10:+1 "
    "--set uplink.bandwidth=10GB/s:19GB/s:+1GB/s --set csd.p2p_read=1GB/s:10GB/s:+1GB/s "
    "--set host.memory=512GB:521GB:+1GB",
}
"""Grids of a million design points, by their axes."""
MODELS = ("opt-66b", "opt-30b", "opt-13b", "opt-175b", "llama2-7b", "llama2-13b", "opt-6.7b")


@dataclass(frozen=True)
class Row:
    """A command that is measured.

    Attributes:
        section: the table it stands in.
        label: what its first cell says.
        words: the command, without `nearkv`.
        points: design points, 0 where it is not a grid.
    """

    section: str
    label: str
    words: str
    points: float = 0.0


def rows() -> Iterator[Row]:
    """Every row of the page."""
    commands = (
        "--help",
        "estimate hilos --model opt-66b --context 64k",
        "compare flexgen-ssd flexgen-dram hilos inf2 --model opt-66b --context 64k",
        "solve alpha --model opt-66b --context 64k",
        "solve mapping --model gpt3-175b --batch 32 --context 1024",
        "solve placement --model opt-30b",
        "solve hardware --system hilos --model opt-66b --vary csd.count --slo throughput_tok_s=0.5",
        "pareto --system hilos --model opt-66b --batch 1:64:+1 --set csd.count=1:16:+1",
        "sensitivity hilos --model opt-66b --context 64k",
        "validate",
    )
    for words in commands:
        yield Row("command", f"`nearkv {words}`", words)
    for size, axes in POINTS.items():
        points = float(size.replace("10^", "1e"))
        words = f"sweep {HILOS} {axes} --top 100 --quiet"
        yield Row("points", f"{size}, `--top 100`", words, points)
    for form in ("csv", "parquet"):
        words = f"sweep {HILOS} {POINTS['10^6']} -o rows.{form} --quiet"
        yield Row("points", f"10^6, into {form}", words, 1e6)
    for count, grid in MILLION.items():
        yield Row("axes", f"{count}", f"sweep {HILOS} {grid} --top 100 --quiet", 1e6)
    for count in (1, 3, 7):
        models = ",".join(MODELS[:count])
        words = f"sweep --system hilos --model {models} {POINTS['10^6']} --top 100 --quiet"
        yield Row("models", f"{count}", words, count * 1e6)
    for jobs in (1, 2):
        words = f"sweep {HILOS} {POINTS['10^6']} -o rows.parquet --quiet --jobs {jobs}"
        yield Row("processes", f"{jobs}", words, 1e6)


def measured(words: Sequence[str], folder: str, compiled: str) -> Cost:
    """Cost of a command.

    Args:
        words: the command, without `nearkv`.
        folder: where it runs.
        compiled: where Python keeps what it compiled, as it does of an installed package.
    """
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    # `validate` says with 1 that a verdict is worse than the recorded one
    return cost_of([NEARKV, *words], environment, folder, codes=(0, 1))


def line_of(row: Row, compiled: str) -> str:
    """A row of a table, in Markdown; the first of its runs may compile."""
    runs: list[Cost] = []
    while len(runs) < 3 and (not runs or runs[0].wall < LONG):
        with tempfile.TemporaryDirectory() as folder:
            runs.append(measured(row.words.split(), folder, compiled))
    wall = statistics.median(run.wall for run in runs)
    cpu = statistics.median(run.cpu for run in runs)
    memory = statistics.median(run.memory for run in runs)
    cells = [row.label, f"{wall:.2f}", f"{cpu:.2f}", f"{memory / 1e6:.0f}"]
    if row.points:
        cells += [f"{1e9 * cpu / row.points:,.3g}", f"{memory / row.points:,.3g}"]
    return f"| {' | '.join(cells)} |"


HEADINGS = {
    "command": ("By command", "One answer, the start of Python included.", "command"),
    "points": (
        "Points",
        "HILOS, the X-cache share solved at every point.",
        "design points",
    ),
    "axes": ("Axes", "A million points of HILOS, `--top 100`.", "axes"),
    "models": ("Models", "A million points for each model, `--top 100`.", "models"),
    "processes": ("Processes", "A million rows into Parquet, `--jobs`.", "processes"),
}
"""By section: its title, a sentence, and the first heading of its table."""
INTRODUCTION = """\
# Time and memory

For those who plan a sweep, or change what is slow.
Seconds and bytes of whole commands, written by `make performance`; a row is the median
of three, or one run from 5 s on. CPU is user and system time
of all processes, memory the most that was resident.
"""
DESIGNS = """\
## Machines of `nearkv design`

How its search grows with the space (`bench/designs.py`): OPT-66B at 64k, three systems on a server
of four cards for 60,000 USD, whose DRAM and drive bays come in ever more sizes. All are tried;
those over the budget are not evaluated.

| DRAM x drives | machines | evaluated | CPU s |
|---|---|---|---|
"""
PEERS = """\
## Other cost models

What a loop over contexts costs in cost models of the package index, one call a point
(`bench/peers.py`). They answer other questions with other detail; the unit is what is compared.

| package | a point | CPU ms a point | points per CPU second |
|---|---|---|---|
"""


def page(compiled: str) -> str:
    """The page, all rows measured."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "unknown processor",
    )
    blocks = [INTRODUCTION, f"Measured on {os.cpu_count()} cores of {model}.\n"]
    every = list(rows())
    for section, (title, sentence, heading) in HEADINGS.items():
        own = [row for row in every if row.section == section]
        headings = [heading, "s", "CPU s", "MB"]
        if own[0].points:
            headings += ["CPU ns a point", "bytes a point"]
        table = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
        for row in own:
            table.append(line_of(row, compiled))
            print(table[-1], flush=True)
        blocks.append(f"## {title}\n\n{sentence}\n\n" + "\n".join(table) + "\n")
    blocks.append(DESIGNS + "\n".join(designs.rows()) + "\n")
    blocks.append(PEERS + "\n".join(peers.rows()) + "\n")
    return "\n".join(blocks)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as cache:
        PAGE.write_text(page(cache))
