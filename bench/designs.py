"""Growth of the search of `nearkv design` with the machines that may be built."""

import re
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import nearkv
from nearkv.hardware import catalog

SYSTEMS = "flexgen-dram,flexgen-ssd,full-cache"
STEPS = (4, 14, 42)
"""Sizes of DRAM, and numbers of drives, that the server takes."""
SERVER = Path(catalog.__file__).parent / "servers" / "pcie-4gpu-server.toml"


def server(steps: int) -> str:
    """The rack server of 4 cards with other DRAM and bays, which lanes and supply all carry."""
    sizes = ", ".join(f'"{96 + 12 * place}GiB"' for place in range(steps))
    text = re.sub(r"sizes = \[.*?\]", f"sizes = [{sizes}]", SERVER.read_text())
    text = re.sub(r"most = \d+", f"most = {steps}", text)
    for key in ("lanes", "supply"):
        text = re.sub(rf"\n{key} = {{ value = \d+", f"\n{key} = {{ value = 1000000000", text)
    return text


def rows() -> Iterator[str]:
    """A row of the table for each number of steps, in Markdown."""
    for steps in STEPS:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no server has so many lanes
            file = Path(folder) / "server.toml"
            file.write_text(server(steps))
            begin = time.process_time()
            table = nearkv.design(
                SYSTEMS,
                "opt-66b",
                context="64k",
                servers=str(file),
                budget="60kUSD",
                maximize="throughput_tok_s",
            )
            seconds = time.process_time() - begin
        machines = table.attrs["conclusion"][0].partition(" ")[0]
        evaluated = f"{table.attrs['evaluations']:,}"
        yield f"| {steps:,} x {steps:,} | {machines} | {evaluated} | {seconds:.1f} |"
