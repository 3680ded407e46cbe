"""Trends that HillInfer states over contexts, batches and baselines (HillInfer sec. 5.3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearkv.sweeps.evaluate.evaluate import table
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.validation.checks import check

Values = NDArray[np.float64]
MODELS = ("qwen-7b", "longchat-7b", "llama-13b")


@check
def batches_that_run(model: str, least: str, most: str) -> Values:
    """The batches that HillInfer serves together, 1,920 + 128 tokens (fig. 15) [1]."""
    batches = f"{least}:{most}:+1"
    rows = table(Study(("hillinfer",), (model,), batches, "1920", "128"))
    batch = rows["batch"].astype(float)
    together = rows["batch_run"].astype(float) >= batch
    runs: Values = batch[(rows["status"] == "ok") & together]
    return runs
