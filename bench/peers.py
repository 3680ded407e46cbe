"""Design points a second of other cost models from the package index, one call a point.

Each is installed into an environment of its own, in the version named here, and asked for one
decode step (or one answer) at a context of its own in each call: what a loop over contexts costs.
"""

import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.measured import environment

CALLS = 20
LOOP = """
import contextlib, io, time
{setup}
def loop(first):
    with contextlib.redirect_stdout(io.StringIO()):
        for context in range(first, first + {calls}):
            {call}
loop(900)
start = time.process_time()
loop(1000)
print((time.process_time() - start) / {calls})
"""
"""Prints the CPU seconds of a call, after as many that load what is loaded once."""


@dataclass(frozen=True)
class Peer:
    """Another cost model.

    Attributes:
        package: on the index, with its version.
        setup, call: Python that asks it, with `context` for the context.
        question: what that is, in words.
    """

    package: str
    setup: str
    call: str
    question: str


PEERS = (
    Peer(
        "genz-llm==0.0.16",
        "from GenZ import decode_moddeling",
        "decode_moddeling(model='llama2_7b', batch_size=16, input_tokens=context, "
        "output_tokens=1, system_name='A100_80GB_GPU', bits='bf16')",
        "one decode step of Llama-2-7B on an A100",
    ),
    Peer(
        "llm-analysis==0.2.2",
        "from llm_analysis.analysis import infer",
        "infer(model_name='facebook_opt-66b', gpu_name='a100-sxm-80gb', batch_size_per_gpu=16, "
        "seq_len=context, num_tokens_to_generate=32, tp_size=4, log_level='ERROR')",
        "inference of OPT-66B on four A100",
    ),
)


def seconds_of(peer: Peer, folder: Path) -> float | None:
    """CPU seconds of a call; None where it cannot be installed or does not answer."""
    script = LOOP.format(setup=peer.setup, call=peer.call, calls=CALLS)
    try:
        python = environment(folder, peer.package) / "python"
        done = subprocess.run([python, "-c", script], check=True, capture_output=True, text=True)
        return float(done.stdout.split()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None


def rows() -> Iterator[str]:
    """A line of a Markdown table for each peer."""
    for peer in PEERS:
        with tempfile.TemporaryDirectory() as folder:
            seconds = seconds_of(peer, Path(folder))
        spent = "not measured" if seconds is None else f"{1e3 * seconds:.3g}"
        rate = "" if seconds is None else f"{1 / seconds:.3g}"
        yield f"| {peer.package} | {peer.question} | {spent} | {rate} |"
