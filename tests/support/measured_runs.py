"""Exact measurements of a machine with known factors, as a user's CSV."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nearkv.costmodel.model.registry import find_system
from nearkv.sweeps.evaluate.columns import table
from nearkv.sweeps.study.study import Study

TRUTH = {"derate.pcie": 0.74, "derate.gather": 0.5, "ssd.read": 4.0}
"""Factors of the machine; ssd.read in GB/s."""


def write_runs(
    path: Path, truth: Mapping[str, float], systems: tuple[str, ...], of: str = "step_ms"
) -> str:
    """Exact measurements of a machine with known factors."""
    sets = {
        name: f"{value}GB/s" if name == "ssd.read" else str(value) for name, value in truth.items()
    }
    lines = [f"system,model,batch,context,output_tokens,knob,{of}"]
    for name in systems:
        # what is demoted hides the CPU's scoring, so the rates of this machine would not show
        demotes = "migration" in find_system(name).knobs
        knobs = {"migration": "0"} if demotes else {}
        study = Study((name,), ("qwen-7b",), "2,8", "2k,4k,8k", "64", sets=sets, knobs=knobs)
        rows = table(study)
        stated = "migration=0" if demotes else ""
        columns = [rows[name] for name in ("batch", "context_tok", of)]
        for batch, context, value in zip(*columns, strict=True):
            lines.append(f"{name},qwen-7b,{batch:g},{context:g},64,{stated},{value:.9g}")
    path.write_text("\n".join(lines) + "\n")
    return str(path)
