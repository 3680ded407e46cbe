"""Other cost models from the package index beside ours, on measured rows that all can express.

These are the serving runs of Llama-3.1-70B in FP8 on H200 with 16 requests; a run of the script
installs each tool in an environment of its own and prints the table of docs/peers.md. A folder
keeps the environments, which take minutes to install, for the next run:

    python -m bench.measured [FOLDER]
"""

import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from nearkv.sweeps.validation.validate import validate

ROW = re.compile(r"aic-llama-3\.1-70b-h200_sxm-(?P<engine>\w+)-tp(?P<tp>\d+)-b16-fp8")
GENZ = """
import contextlib, io
from GenZ import decode_moddeling
h200 = dict(Flops=1979, Memory_size=141, Memory_BW=4800, ICN=450, real_values=True)
with contextlib.redirect_stdout(io.StringIO()):
    answer = decode_moddeling(
        model="meta-llama/Llama-3.1-70B", batch_size=16, Bb=1, input_tokens=8192,
        output_tokens=1024, system_name=h200, bits="int8", tensor_parallel={tp},
    )
print("TPOT:", answer["Latency"])
"""
AICONFIGURATOR = (
    "cli estimate --model-path meta-llama/Meta-Llama-3.1-70B --system h200_sxm --backend {engine} "
    "--estimate-mode agg --isl 8192 --osl 1024 --batch-size 16 --tp-size {tp} "
    "--gemm-quant-mode fp8 --kvcache-quant-mode fp8 --database-mode {mode} --no-color"
)
Row = dict[str, str]


def environment(folder: Path, package: str) -> Path:
    """The programs of an environment that has a package, which is installed where it is not yet."""
    place = folder / package
    programs = place / "bin"
    if not place.exists():
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        install = ["install", "--quiet", "--no-compile", package]
        subprocess.run([programs / "pip", *install], check=True)
    return programs


def genz(programs: Path, row: Row) -> list[str]:
    """GenZ's step at the mean context."""
    return [str(programs / "python"), "-c", GENZ.format(**row)]


def aiconfigurator(mode: str) -> Callable[[Path, Row], list[str]]:
    """Its estimate of mixed steps, by its database of kernels or at the speed of light."""

    def asked(programs: Path, row: Row) -> list[str]:
        words = AICONFIGURATOR.format(mode=mode, **row).split()
        return [str(programs / "aiconfigurator"), *words]

    return asked


TOOLS = {
    "genz-llm 0.0.16": ("genz-llm==0.0.16", genz),
    "aiconfigurator 0.12.0, its kernel database": (
        "aiconfigurator==0.12.0",
        aiconfigurator("SILICON"),
    ),
    "aiconfigurator 0.12.0, speed of light": ("aiconfigurator==0.12.0", aiconfigurator("SOL")),
}


def main(folder: Path) -> None:
    """Print a table: milliseconds per token of each row, and the median error of each tool."""
    rows = [row for row in validate("independent") if ROW.fullmatch(row["id"])]
    stated = [float(row["stated"]) for row in rows]
    answers = {"nearkv": [float(row["predicted"]) for row in rows]}
    for tool, (package, asked) in TOOLS.items():
        programs = environment(folder, package)
        answers[tool] = [milliseconds(asked(programs, named(row))) for row in rows]
    heads = " | ".join(f"{named(row)['engine']} tp {named(row)['tp']}" for row in rows)
    print(f"| ms per token | {heads} | median error |")
    print("|---" * (len(rows) + 2) + "|")
    print(f"| measured | {' | '.join(f'{value:.1f}' for value in stated)} | |")
    for tool, values in answers.items():
        errors = [abs(value / truth - 1) for value, truth in zip(values, stated, strict=True)]
        shown = " | ".join(f"{value:.1f}" for value in values)
        print(f"| {tool} | {shown} | {100 * statistics.median(errors):.0f} % |")


def named(row: Row) -> Row:
    """Engine and degree of a row."""
    match = ROW.fullmatch(row["id"])
    assert match
    return match.groupdict()


def milliseconds(command: list[str]) -> float:
    """What a tool prints after TPOT [ms]."""
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = re.findall(r"TPOT:\s*([\d.]+)", done.stdout)
    return float(found[-1])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(*(sys.argv[1:] or [temporary])).resolve())
