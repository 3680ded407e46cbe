"""A user's own claims, and a user's own measured runs: one row each, from a CSV."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from nearkv.costmodel.model.metrics import COLUMNS
from nearkv.costmodel.model.registry import find_system
from nearkv.hardware.catalog import load_llm
from nearkv.hardware.errors import InputError, a_few, check_known, unknown
from nearkv.hardware.files import read_rows
from nearkv.hardware.units import parse
from nearkv.sweeps.study.sizes import size, size_or_none
from nearkv.sweeps.validation.claims import CLAIM_FIELDS, Claim
from nearkv.sweeps.validation.prediction import column_unit, unit_size

NEEDED_OF_CLAIMS = ("id", "low", "unit", "metric", "system")
ALLOWED = {
    "bound": ("exact", "approx", "at_most", "at_least", "range"),
    "kind": ("measured", "simulated", "analytic", "parameter"),
    "take": ("", "max", "min", "mean", "ends", "every"),
}
DEFAULTS = {"kind": "measured", "bound": "exact"}
NEEDED_OF_RUNS = ("system", "model", "batch", "context", "output_tokens")
OPTIONAL_OF_RUNS = ("knob", "set")
MOST_RUNS = 1000


def read_claims(path: Path) -> list[Claim]:
    """Read claims from a CSV with the columns of `Claim`; all but the needed may be left out.

    Args:
        path: the file; `high` is `low` where it is blank.

    Raises:
        InputError: no such file, a column that is missing or unknown, or a cell that is no value.
    """
    header, lines = read_rows(path, "list of claims", NEEDED_OF_CLAIMS)
    check_known("column", header, CLAIM_FIELDS, str(path))
    claims = [_claim(cells, where) for where, cells in lines]
    ids = [claim.id for claim in claims]
    for name in ids:
        if ids.count(name) > 1:
            raise InputError(
                f"{path}: the id {name!r} is there twice; give each claim its own"
            )
    return claims


def _claim(cells: dict[str, str], where: str) -> Claim:
    texts = dict.fromkeys(CLAIM_FIELDS, "") | cells
    for name, default in DEFAULTS.items():
        texts[name] = texts[name] or default
    texts["high"] = texts["high"] or texts["low"]
    for name in NEEDED_OF_CLAIMS:
        if not texts[name]:
            raise InputError(f"{where}: {name} is blank; fill it in")
    for name, known in ALLOWED.items():
        check_known(name, [texts[name]], known, where)
    low, high = (_number(texts[name], f"{where}, {name}") for name in ("low", "high"))
    if low > high:
        raise InputError(
            f"{where}: low, {texts['low']}, is above high, {texts['high']}; exchange them"
        )
    claim = Claim(**texts)
    try:
        unit_size(claim)
    except InputError as problem:
        raise InputError(f"{where}, unit: {problem}") from None
    return claim


def read_runs(path: Path) -> list[Claim]:
    """Read measured runs from a CSV, each as a claim of its value.

    A table has one measured column, or is one of llama-bench or of SGLang's bench_one_batch, with
    the columns system and model added.

    Returns:
        Claims of kind measured, whose id is the line and whose address the file and the line.

    Raises:
        InputError: no such file, a column that is missing or unknown, or a cell that is no value.
    """
    header, lines = read_rows(path, "table of runs", ())
    if len(lines) > MOST_RUNS:
        raise InputError(
            f"{path} has {len(lines):,} rows; give a sample of at most {MOST_RUNS:,}"
        )
    for needed, of_line in BENCHMARKS.items():
        if {*needed} <= {*header}:
            _check_has(path, header, ADDED)
            return [run for where, cells in lines for run in of_line(cells, where)]
    _check_has(path, header, NEEDED_OF_RUNS)
    metric = _measured_column(header, path)
    return [_run(cells, metric, cells.pop(metric), where) for where, cells in lines]


def _check_has(path: Path, header: Sequence[str], needed: Sequence[str]) -> None:
    """Refuse a table of runs without some columns, and say which tables are read.

    Raises:
        InputError: it lacks one.
    """
    missing = [name for name in needed if name not in header]
    if missing:
        columns = ", ".join(NEEDED_OF_RUNS)
        lacks = " and no ".join(map(repr, missing))
        raise InputError(
            f"{path} has no column {lacks}; it needs {columns} and one measured column, or those "
            "of llama-bench or SGLang's bench_one_batch with system and model added"
        )


def _of_llama_bench(cells: dict[str, str], where: str) -> list[Claim]:
    """A prompt (pp) of `n_prompt` tokens, or an answer (tg) of `n_gen`, behind `n_depth` tokens."""
    depth = cells.get("n_depth") or "0"
    prompt, answer = cells["n_prompt"], cells["n_gen"]
    if (prompt == "0") == (answer == "0"):
        raise InputError(
            f"{where}: n_prompt {prompt} and n_gen {answer} are no test of prompts or of answers "
            "alone; leave the line out"
        )
    own = {name: cells.get(name, "") for name in (*ADDED, *OPTIONAL_OF_RUNS)}
    own["batch"] = "1"
    if answer == "0":
        if depth != "0":
            own["knob"] = ";".join(filter(None, (own["knob"], f"prefix={depth}")))
        own |= {"context": prompt, "output_tokens": "1"}
        return [_run(own, "prefill_tok_s", cells["avg_ts"], where)]
    own |= {"context": depth, "output_tokens": answer}
    return [_run(own, "decode_tok_s", cells["avg_ts"], where)]


def _of_sglang(cells: dict[str, str], where: str) -> list[Claim]:
    """A batch of prompts, and the median of its decode steps."""
    own = {name: cells.get(name, "") for name in (*ADDED, *OPTIONAL_OF_RUNS)}
    own |= {"batch": cells["batch_size"], "context": cells["input_len"]}
    own["output_tokens"] = cells["output_len"]
    return [
        _run(dict(own), metric, cells[column], f"{where} {column}")
        for metric, column in SGLANG.items()
    ]


ADDED = ("system", "model")
"""Columns that a benchmark does not write, and a user adds."""
SGLANG = {
    "prefill_tok_s": "prefill_throughput",
    "decode_tok_s": "median_decode_throughput",
}
"""Column of a table -> that of bench_one_batch."""
BENCHMARKS = {
    ("n_prompt", "n_gen", "avg_ts"): _of_llama_bench,
    ("batch_size", "input_len", "output_len", *SGLANG.values()): _of_sglang,
}
"""Columns by which a benchmark's table is known -> its reader of a line."""


def _measured_column(header: Sequence[str], path: Path) -> str:
    measured = [name for name in header if name in COLUMNS]
    known = (*NEEDED_OF_RUNS, *OPTIONAL_OF_RUNS)
    for name in header:
        if name not in (*known, *measured):
            raise unknown("column", name, [*known, *COLUMNS], str(path))
    if len(measured) != 1:
        have = f"it has {', '.join(measured)}" if measured else f"such as {a_few(COLUMNS)}"
        raise InputError(f"{path} needs exactly one measured column; {have}")
    return measured[0]


def _run(cells: dict[str, str], metric: str, value: str, where: str) -> Claim:
    try:
        find_system(cells["system"])
        load_llm(cells["model"])
    except InputError as problem:
        raise InputError(f"{where}: {problem}") from None
    for name in ("batch", "output_tokens"):
        size(cells[name], f"{where}, {name}")
    size_or_none(cells["context"], f"{where}, context")
    _number(value, f"{where}, {metric}", above=0.0)
    parse(
        value, "1", f"{where}, {metric}"
    )  # 1e-310 is a number, and none that can be fitted
    texts = dict.fromkeys(CLAIM_FIELDS, "") | DEFAULTS | cells
    _, _, line = where.rpartition(", ")
    unit = column_unit(metric) or ""
    stated = {"low": value, "high": value, "unit": unit, "metric": metric}
    return Claim(**texts | stated | {"id": line, "where": where})


def _number(text: str, where: str, above: float = -math.inf) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InputError(
            f"{where}: {text!r} is not a number; write it without a unit"
        ) from None
    if not above < value < math.inf:
        limit = "" if above == -math.inf else f" above {above:g}"
        raise InputError(f"{where}: {text!r} must be a finite number{limit}")
    return value
