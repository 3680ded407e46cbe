"""Other cost models from the package index beside ours, on measured rows that all can express.

These are the serving runs of Llama-3.1-70B in FP8 on H200; a run of the script installs each tool
in an environment of its own and prints the table of docs/peers.md. A folder keeps the environments,
which take minutes to install, for the next run:

    python -m bench.measured [FOLDER]
"""

import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from nearkv.sweeps.validation.validate import judge_claims

ROW = re.compile(
    r"aic-llama-3\.1-70b-h200_sxm-(?P<engine>\w+)-(?!tp1-b64)tp(?P<tp>\d+)-b(?P<batch>\d+)-fp8"
)
"""64 requests do not fit one GPU at once, which a tool refuses."""
GENZ = """
import contextlib, io
from GenZ import decode_moddeling
h200 = dict(Flops=1979, Memory_size=141, Memory_BW=4800, ICN=450, real_values=True)
with contextlib.redirect_stdout(io.StringIO()):
    answer = decode_moddeling(
        model="meta-llama/Llama-3.1-70B", batch_size={batch}, Bb=1, input_tokens=8192,
        output_tokens=1024, system_name=h200, bits="int8", tensor_parallel={tp},
    )
print("TPOT:", answer["Latency"])
"""
LLM_ANALYSIS = """
from llm_analysis import config
from llm_analysis.analysis import infer
config.model_configs["llama"] = config.ModelConfig(
    "llama", num_layers=80, n_head=64, hidden_dim=8192, vocab_size=128256,
    num_key_value_heads=8, ffn_embed_dim=43008, expansion_ratio=5.25,
)
config.gpu_configs["h200"] = config.GPUConfig(
    "h200", mem_per_GPU_in_GB=141, hbm_bandwidth_in_GB_per_sec=4800,
    intra_node_bandwidth_in_GB_per_sec=450, intra_node_min_message_latency=8e-6,
    peak_fp16_TFLOPS=989, peak_i8_TFLOPS=1979,
)
answer = infer(
    model_name="llama", gpu_name="h200", dtype_name="w8a8e16", kv_cache_dtype_bytes=1,
    batch_size_per_gpu={batch}, tp_size={tp}, seq_len=8192, num_tokens_to_generate=1024,
    log_level="ERROR",
)
print("TPOT:", 1000 * answer["decode_latency"])
"""
AICONFIGURATOR = (
    "cli estimate --model-path meta-llama/Meta-Llama-3.1-70B --system h200_sxm --backend {engine} "
    "--estimate-mode agg --isl 8192 --osl 1024 --batch-size {batch} --tp-size {tp} "
    "--gemm-quant-mode fp8 --kvcache-quant-mode fp8 --database-mode {mode} --no-color"
)
Row = dict[str, str]
Asked = Callable[[Path, Row], list[str]]
"""The command that asks a tool, given the folder of its programs and a row."""


def environment(folder: Path, package: str) -> Path:
    """The programs of an environment that has a package, which is installed where it is not yet."""
    place = folder / package
    programs = place / "bin"
    if not place.exists():
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        install = ["install", "--quiet", "--no-compile", package]
        subprocess.run([programs / "pip", *install], check=True)
    return programs


def script(text: str) -> Asked:
    """Asks a tool that is called from Python."""
    return lambda programs, row: [str(programs / "python"), "-c", text.format(**row)]


def aiconfigurator(mode: str) -> Asked:
    """Its estimate of mixed steps, by its database of kernels or at the speed of light."""

    def asked(programs: Path, row: Row) -> list[str]:
        words = AICONFIGURATOR.format(mode=mode, **row).split()
        return [str(programs / "aiconfigurator"), *words]

    return asked


TOOLS = {
    "aiconfigurator, its kernel database": (
        "aiconfigurator==0.12.0",
        aiconfigurator("SILICON"),
    ),
    "aiconfigurator, speed of light": ("aiconfigurator==0.12.0", aiconfigurator("SOL")),
    "genz-llm": ("genz-llm==0.0.16", script(GENZ)),
    "llm-analysis": ("llm-analysis==0.2.2", script(LLM_ANALYSIS)),
}


def main(folder: Path) -> None:
    """Print a table: milliseconds per token of each row, and the median error of each tool."""
    rows = [row for row in judge_claims("independent") if ROW.fullmatch(row["id"])]
    stated = [float(row["stated"]) for row in rows]
    answers = {"nearkv": [float(row["predicted"]) for row in rows]}
    for tool, (package, asked) in TOOLS.items():
        programs = environment(folder, package)
        answers[tool] = [milliseconds(asked(programs, named(row))) for row in rows]
    print(f"| engine, GPUs, requests | measured | {' | '.join(answers)} |")
    print("|---" * (len(answers) + 2) + "|")
    for row, truth, *values in zip(rows, stated, *answers.values(), strict=True):
        shown = " | ".join(f"{value:.1f}" for value in (truth, *values))
        print(f"| {', '.join(named(row).values())} | {shown} |")
    errors = (median_error(values, stated) for values in answers.values())
    print(f"| median error | | {' | '.join(f'{100 * error:.0f} %' for error in errors)} |")


def median_error(values: list[float], stated: list[float]) -> float:
    """Median of the relative errors of predictions."""
    errors = [abs(value / truth - 1) for value, truth in zip(values, stated, strict=True)]
    return statistics.median(errors)


def named(row: Row) -> Row:
    """Engine, degree and batch of a row."""
    match = ROW.fullmatch(row["id"])
    assert match
    return match.groupdict()


def milliseconds(command: list[str]) -> float:
    """Milliseconds that a tool prints after TPOT."""
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = re.findall(r"TPOT:\s*([\d.]+)", done.stdout)
    return float(found[-1])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(*(sys.argv[1:] or [temporary])).resolve())
