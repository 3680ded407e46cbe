"""Checks of measurements by others that no single column states: decode alone, time per token."""

from __future__ import annotations

from nearkv.sweeps.evaluate.evaluate import Columns, table
from nearkv.sweeps.study.study import Study, pairs
from nearkv.sweeps.validation.checks import check


def _row(
    platform: str,
    system: str,
    model: str,
    batch: str,
    context: str,
    output: str,
    sets: str = "",
    knobs: str = "",
) -> Columns:
    """The one row of a study; `sets` and `knobs` as in `name=value;...`."""
    study = Study(
        systems=(system,),
        models=(model,),
        batch=batch,
        context=context,
        output_tokens=output,
        platforms=(platform,),
        sets=pairs(filter(None, sets.split(";")), "set"),
        knobs=pairs(filter(None, knobs.split(";")), "knob"),
    )
    return table(study)


@check
def time_per_token(
    platform: str, system: str, model: str, batch: str, context: str, output: str, sets: str
) -> float:
    """Time between tokens of a request in steady state, the prompts of others included [ms].

    While one request decodes, each of the others is replaced once: its tokens take the total time
    of the batch that runs together.
    """
    row = _row(platform, system, model, batch, context, output, sets)
    rate = float(row["throughput_tok_s"][0])
    together = float(row["batch_run"][0])
    return 1e3 * together / rate


@check
def decode_seconds(
    platform: str,
    system: str,
    model: str,
    batch: str,
    context: str,
    output: str,
    knobs: str,
) -> float:
    """Time of all tokens but the first [s]."""
    row = _row(platform, system, model, batch, context, output, knobs=knobs)
    total = float(row["total_s"][0])
    prefill = float(row["prefill_s"][0])
    return total - prefill
