"""How fast a sweep is beside what limits it: a C loop of its equations, PyArrow writing alone."""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from bench.bench_grid import AXES, million, seconds
from bench.processes import Cost, cost_of
from nearkv.costmodel.mechanisms.gpu_layer import head_weights
from nearkv.costmodel.model.resources import attention_kernel, gpu, host, link
from nearkv.solvers.knobs import resolve_knobs
from nearkv.sweeps.evaluate.evaluate import cells, keep_freed_memory
from nearkv.sweeps.jobs.formats import WRITERS, encoded_piece, piece_table
from nearkv.sweeps.jobs.parts import PART
from nearkv.sweeps.jobs.plan import plan
from nearkv.sweeps.study.grid import POINTS_AT_ONCE, Box
from nearkv.sweeps.study.study import Block, Study

HUNDRED_MILLION = [
    *(
        "sweep",
        "--system",
        "hilos",
        "--model",
        "opt-66b",
        "--batch",
        "1:100:+1",
        "--context",
        "4k:400k:+4k",
    ),
    *("--set", "csd.count=1:20:+1", "--set", "uplink.bandwidth=10GB/s:59GB/s:+1GB/s"),
    *("--set", "csd.p2p_read=1GB/s:10GB/s:+1GB/s", "--top", "100", "--quiet"),
]


def least(run: Callable[[], object], times: int = 5) -> float:
    """Shortest time of a few [s]."""
    spent = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        spent.append(time.perf_counter() - start)
    return min(spent)


def solved_step(block: Block, box: Box) -> NDArray[np.float64]:
    """Seconds of every point, alpha solved."""
    return np.add(resolve_knobs(block.system, *block.inputs(box)).estimate.step.seconds, 0.0)


def solved_breakdown(block: Block, box: Box) -> object:
    """Seconds every leaf is to blame for, alpha solved."""
    return resolve_knobs(block.system, *block.inputs(box)).estimate.step.breakdown()


def c_numbers(block: Block) -> tuple[Any, ...]:
    """What the C loop's struct holds, in its order."""
    hw, llm, work, _ = block.inputs(block.grid.whole)
    on, csd, dram = gpu(hw), hw.csd, host(hw)
    attention_weights = llm.attention_parameters * llm.attention_width
    gpu_link = link(hw, "gpu_link", "pcie").inward.rate
    rates = (on.run.rate, on.read.rate, dram.read.rate, dram.memory, gpu_link)
    reads = (hw.derate.uplink, csd.p2p_read, csd.write, attention_kernel(csd, llm.group)[0])
    devices = (csd.commit, csd.dma, csd.page, csd.capacity)
    halves = (attention_weights, llm.layer_weight_bytes(1.0) - attention_weights)
    weights = (llm.layers, *halves, head_weights(llm, 1.0), llm.weight_bytes)
    projection_flops = llm.qkv_flops(1.0) + llm.output_flops(1.0)
    flops = (projection_flops, llm.ffn_flops(1.0), 2 * llm.head_parameters)
    shape = (llm.hidden, llm.kv_heads, llm.head_size, llm.group, llm.kv_width)
    work_sizes = (block.system.knobs["interval"].default, work.output)
    return (*rates, *reads, *devices, *weights, *flops, *shape, *work_sizes)


def c_loop(block: Block, folder: Path) -> tuple[float, NDArray[np.float64]] | None:
    """Time of the C loop over all points [s] and their seconds; None without a C compiler."""
    if not shutil.which("cc"):
        return None
    source = Path(__file__).with_name("hilos.c")
    compiled, library = folder / "hilos.o", folder / "hilos.so"
    flags = ["-O3", "-march=native", "-ffast-math", "-fPIC"]
    subprocess.run(["cc", *flags, "-c", "-o", compiled, source], check=True)
    # linked without -ffast-math, with which GCC has a library end subnormal numbers in all of
    # the process that loads it
    subprocess.run(["cc", "-shared", "-o", library, compiled, "-lm"], check=True)
    given = np.array([np.ravel(number)[0] for number in c_numbers(block)])
    values = {axis.name: axis.values for axis in block.grid.axes}
    out = np.empty(block.grid.size)
    arguments: list[Any] = [given.ctypes.data_as(ctypes.c_void_p)]
    for name in ("batch", "context_tok", *AXES):
        arguments += [
            values[name].ctypes.data_as(ctypes.c_void_p),
            ctypes.c_size_t(len(values[name])),
        ]
    sweep = ctypes.CDLL(str(library)).sweep
    return least(lambda: sweep(*arguments, out.ctypes.data_as(ctypes.c_void_p))), out


def core() -> None:
    """Points a second in one process, and how far that is from C."""
    block = million("auto")
    rate = {}
    for what, run, goal in (
        ("seconds only", solved_step, 5),
        ("with the breakdown", solved_breakdown, 1),
    ):
        rate[what] = block.grid.size / least(lambda run=run: seconds(run, block))  # type: ignore[misc]
        print(f"hilos, alpha solved, {what}: {rate[what] / 1e6:.2f} M points/s (at least {goal})")
    with tempfile.TemporaryDirectory() as folder:
        found = c_loop(block, Path(folder))
    if found is None:
        print("no C compiler: no ratio to C")
        return
    spent, in_c = found
    ours = np.concatenate(
        [solved_step(block, box).ravel() for box in block.grid.boxes(POINTS_AT_ONCE)]
    )
    away, ratio = np.max(np.abs(in_c / ours - 1)), block.grid.size / spent / rate["seconds only"]
    print(
        f"C loop of the same equations: {block.grid.size / spent / 1e6:.1f} M points/s, "
        f"{away:.0e} apart at most"
    )
    print(f"our ratio to C: 1/{ratio:.1f} (at least 1/4)")


def cpu(block: Block, column: str) -> float:
    """Time of all cores for one column of all points of a block [s]."""
    start = sum(os.times()[:4])
    for box in block.grid.boxes(POINTS_AT_ONCE):
        cells(block, box, (column,))
    return sum(os.times()[:4]) - start


def files(folder: Path) -> None:
    """Rows a second into files, evaluated and written, beside PyArrow writing the same table."""
    rows = plan(Study(("hilos",), ("opt-66b",), batch="1:20:+1", context="4k:200k:+4k", sets=AXES))
    packed = rows.packed()
    whole = piece_table(packed, next(rows.pieces(rows.size))).combine_chunks()
    theirs = {
        "parquet": lambda file: pyarrow.parquet.write_table(whole, file),
        "csv": lambda file: pyarrow.csv.write_csv(whole, file),
    }
    for form, goal in (("parquet", 2.0), ("csv", 0.3)):

        def ours(form: str = form) -> None:
            with (folder / form).open("wb") as file:
                for piece in rows.pieces(PART[form]):
                    file.write(encoded_piece(packed, form, piece))

        tables = [piece_table(packed, piece) for piece in rows.pieces(PART[form])]

        def writing(form: str = form, tables: list[pyarrow.Table] = tables) -> None:
            for piece in tables:
                WRITERS[form](piece, BytesIO(), False)

        alone = rows.size / least(writing, 3) / 1e6
        mine = rows.size / least(ours, 3) / 1e6
        arrow = rows.size / least(lambda form=form: theirs[form](folder / form), 3) / 1e6  # type: ignore[misc]
        print(
            f"{form}, {len(rows.kinds)} columns: {mine:.2f} M rows/s evaluated and written "
            f"(at least {goal}), "
            f"written alone {alone:.2f}, PyArrow writes the same table at {arrow:.2f}; "
            f"writing alone over PyArrow's {alone / arrow:.2f} (at least 0.9), "
            f"evaluation included {mine / arrow:.2f}"
        )


def hundred_million(jobs: int) -> Cost:
    """What 10^8 points down to the best 100 cost."""
    nearkv = Path(sys.executable).with_name("nearkv")
    return cost_of([nearkv, *HUNDRED_MILLION, "--jobs", str(jobs)])


def evaluation_alone() -> float:
    """Time of all cores for one column of 10^8 points [s]."""
    sets = {**AXES, "csd.p2p_read": "1GB/s:10GB/s:+1GB/s"}
    study = Study(("hilos",), ("opt-66b",), batch="1:100:+1", context="4k:400k:+4k", sets=sets)
    (block,) = plan(study).blocks
    return cpu(block, "throughput_tok_s")


def main() -> None:
    keep_freed_memory()
    core()
    with tempfile.TemporaryDirectory() as folder:
        files(Path(folder))
    one = hundred_million(1)
    two = hundred_million(2)
    alone = evaluation_alone()
    print(
        f"100 M points, --top 100, two jobs: all cores worked {two.cpu / alone:.2f} times as long "
        f"as for the evaluation alone (at most 1.5), {two.memory / 1e6:.0f} MB (at most 400)"
    )
    print(
        f"100 M points, --top 100: {one.wall:.1f} s, {one.memory / 1e6:.0f} MB (at most 1,000); "
        f"two jobs: {two.wall:.1f} s, {one.wall / two.wall:.2f} times one (at least 1.6); "
        f"all cores worked {two.cpu:.1f} s, with one job {one.cpu:.1f} s"
    )
