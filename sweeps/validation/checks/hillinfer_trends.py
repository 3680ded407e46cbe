"""Trends that HillInfer states over contexts, batches and baselines (HillInfer sec. 5.3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearkv.sweeps.evaluate.compare import compare
from nearkv.sweeps.evaluate.evaluate import table
from nearkv.sweeps.study.sizes import size
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.validation.checks import check

Values = NDArray[np.float64]
MODELS = ("qwen-7b", "longchat-7b", "llama-13b")


@check
def reduction(*speedups: str) -> Values:
    """1 - 1 / S (sec. 5.3) [%]."""
    return _saved([float(speedup) for speedup in speedups])


@check
def speedup_range(baselines: str, contexts: str) -> Values:
    """End-to-end speed-up over some baselines, all models that fit, batch 8 (sec. 5.3) [1]."""
    return _over_all(baselines, contexts)


@check
def latency_cut(baselines: str, contexts: str) -> Values:
    """End-to-end latency that HillInfer saves, all models that fit, batch 8 (sec. 5.3) [%]."""
    return _saved(_over_all(baselines, contexts))


def _over_all(baselines: str, contexts: str) -> Values:
    """Speed-up over each of several baselines, at every model and context [1]."""
    each = [_speedups(baseline, MODELS, contexts) for baseline in baselines.split("+")]
    return np.concatenate(each)


def _saved(speedups: list[float] | Values) -> Values:
    return 100 * (1 - 1 / np.asarray(speedups))


@check
def context_trend(baseline: str, contexts: str) -> float:
    """Exponent of the end-to-end speed-up in the context, Qwen-7B, batch 8 (sec. 5.3) [1]."""
    speedups = _speedups(baseline, ("qwen-7b",), contexts)
    tokens = [size(context, "context") for context in contexts.split("+")]
    line = np.polyfit(np.log(tokens), np.log(speedups), 1)
    return float(line[0])


def _speedups(baseline: str, models: tuple[str, ...], contexts: str) -> Values:
    """End-to-end speed-up of HillInfer at every model and context, 128 tokens out [1]."""
    systems = (baseline, "hillinfer")
    context_list = contexts.replace("+", ",")
    rows = compare(Study(systems, models, "8", context_list, "128"))
    ours = rows["system"] == "hillinfer"
    speedups: Values = rows["total_speedup"][ours].astype(float)
    return speedups


@check
def batches_that_run(model: str, least: str, most: str) -> Values:
    """The batches that HillInfer serves together, 1,920 + 128 tokens (fig. 15) [1]."""
    batches = f"{least}:{most}:+1"
    rows = table(Study(("hillinfer",), (model,), batches, "1920", "128"))
    batch = rows["batch"].astype(float)
    together = rows["batch_run"].astype(float) >= batch
    runs: Values = batch[(rows["status"] == "ok") & together]
    return runs


@check
def linearity(*systems: str) -> Values:
    """R^2 of end-to-end latency over batch 1 to 10, OPT-6.7B, 1,920 + 128 tokens (fig. 14) [1]."""
    rows = table(Study(systems, ("opt-6.7b",), "1:10:+1", "1920", "128"))
    seconds_of_all = rows["total_s"].astype(float)
    latency = seconds_of_all.reshape(len(systems), 10)
    batches = np.arange(1.0, 11.0)
    squares = []
    for seconds in latency:
        correlation = np.corrcoef(batches, seconds)
        squares.append(correlation[0, 1] ** 2)
    return np.array(squares)
