"""Exact measurements of a machine with known factors, as a user's CSV."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nearkv.sweeps.evaluation.evaluate import table
from nearkv.sweeps.space.study import Study

TRUTH = {"derate.pcie": 0.74, "derate.gather": 0.5, "ssd.read": 4.0}
"""Factors of the machine; ssd.read in GB/s."""


def write_runs(
    path: Path, truth: Mapping[str, float], systems: tuple[str, ...], of: str = "step_ms"
) -> str:
    """Exact measurements of a machine with known factors."""
    sets = {
        name: f"{value}GB/s" if name == "ssd.read" else str(value) for name, value in truth.items()
    }
    rows = table(Study(systems, ("qwen-7b",), "2,8", "2k,4k,8k", "64", sets=sets))
    lines = [f"system,model,batch,context,output,{of}"]
    columns = [rows[name] for name in ("system", "batch", "context_tok", of)]
    for system, batch, context, value in zip(*columns, strict=True):
        lines.append(f"{system},qwen-7b,{batch:g},{context:g},64,{value:.9g}")
    path.write_text("\n".join(lines) + "\n")
    return str(path)
