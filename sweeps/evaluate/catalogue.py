"""Rows that the catalogues list and show: systems, models, platforms, parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from nearkv.costmodel.model import registry
from nearkv.costmodel.model.metrics import COLUMNS, Evaluated
from nearkv.costmodel.model.models import llm_from_part
from nearkv.costmodel.model.registry import Knob, System, systems
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import Platform, load_llm, load_part, load_platform, names
from nearkv.hardware.errors import InputError, a_few, check_known, unknown
from nearkv.hardware.files import is_known, read_toml
from nearkv.hardware.machine import Machine, recording
from nearkv.solvers.knobs import LackingError, resolve_knobs
from nearkv.sweeps.evaluate.provenance import numbers, platform_numbers
from nearkv.sweeps.study.sizes import number
from nearkv.sweeps.tables.table import Row, Rows


def system_rows(platform: str = "") -> Rows:
    """One row per system; of a platform, whether it runs there, and what it lacks.

    Raises:
        InputError: no such platform.
    """
    rows: Rows = []
    asked = load_platform(platform) if platform else None
    for system in registry.systems().values():
        rows.append(
            {
                "system": system.name,
                "origin": system.origin,
                "paper": system.plugin.file if system.plugin else system.cite,
                "platform": system.platform,
                "technology": system.technology,
                "knobs": ", ".join(system.knobs),
                "what": system.summary,
            }
        )
        if asked:
            lacks = _lacks(system, asked)
            rows[-1] |= {"runs": "no" if lacks else "yes", "lacks": lacks}
    return rows


def _lacks(system: System, platform: Platform) -> str:
    """Roles and numbers that a system reads, for either model, and a platform does not have."""
    try:
        list(_tried(system, platform.machine()))
    except LackingError as refusal:
        return refusal.lacks
    return ""


def _tried(system: System, machine: Machine) -> Iterator[Evaluated]:
    """Answers of a system for either model that it takes.

    Raises:
        LackingError: the machine lacks roles or numbers that the system reads.
    """
    for model in READ_MODELS:
        try:
            llm = llm_from_part(load_llm(model), machine["precision"])
            solved = resolve_knobs(system, machine, llm, READ_WORK, dict(system.defaults))
        except LackingError:
            raise
        except InputError:  # the system does not take this model
            continue
        yield Evaluated(solved.estimate, machine, system.owns)


def summary_of(name: str) -> str:
    """First line of what a system does, and where it is when it has no knobs.

    Raises:
        InputError: no such system.
    """
    system = registry.find_system(name)
    knobs = "" if system.knobs else " It has no knobs."
    return f"{system.summary}{knobs}"


def reversals_of(name: str) -> Iterator[str]:
    """Sentences on where more work takes less time on a system, or more hardware more."""
    for reversal in registry.find_system(name).reversals:
        is_all = reversal.measures == registry.MONOTONE_COLUMNS
        measures = "all times" if is_all else ", ".join(reversal.measures)
        axes = "" if registry.ANY in reversal.axes else f" in {', '.join(reversal.axes)}"
        yield f"Not monotone, {measures}{axes}: {reversal.why}."


def knob_rows(name: str) -> Rows:
    """One row per knob of a system.

    Raises:
        InputError: no such system.
    """
    rows: Rows = []
    for knob, spec in registry.find_system(name).knobs.items():
        row = {"knob": knob, "values": _values(spec), "default": _default(spec)}
        row |= {"published": spec.published, "rules": ", ".join(spec.rules)}
        rows.append({**row, "what": spec.what})
    return rows


def _values(knob: Knob) -> str:
    """Values that a knob may take."""
    if knob.choices:
        return ", ".join(knob.choices)
    if knob.sets:
        return f"--set {knob.sets}"
    return f"{knob.low:,.15g} .. {knob.high:,.15g}"


def _default(knob: Knob) -> str | float:
    """The default value of a knob."""
    if knob.sets:
        return "the platform's"
    if knob.choices and not isinstance(knob.default, str):
        return knob.choices[int(knob.default)]
    if knob.solver:
        return f"auto, by {knob.solver}"
    return knob.default


def hardware_rows() -> Rows:
    """One row a platform, then one a part."""
    platforms = [{**row, "kind": "platform"} for row in platform_rows()]
    parts = [{**row, "roles": ""} for row in part_rows()]
    order = ("name", "kind", "what", "roles")
    return [{key: row[key] for key in order} for row in (*platforms, *parts)]


def platform_rows() -> Rows:
    """One row a platform: its name, what it is and the roles of its parts."""
    rows: Rows = []
    for name in names("platform"):
        platform = load_platform(name)
        rows.append(
            {"name": name, "what": platform.title, "roles": ", ".join(platform.roles)}
        )
    return rows


def part_rows() -> Rows:
    """One row a part: its name, its kind and what it is."""
    parts = {name: load_part(name) for name in names("part")}
    return [
        {"name": name, "kind": part.type, "what": part.title}
        for name, part in parts.items()
    ]


IDENTITY_COLUMNS = {
    "system": "name of the system",
    "model": "name of the model",
    "platform": "name of the test bed",
    "trace": "requests in place of lengths",
    "status": "ok, infeasible or not-modelled",
    "reason": "why there is no answer",
    "short_of": "the memory that misses most bytes",
    "note": "what differs from the question",
    "method": "fluid or simulate; where requests arrive, or a trace is asked for",
    "step_bottleneck": "the resource that most of a decode step is attributed to; on request",
    "bottleneck": "the resource that most of a whole request is attributed to, of equals the "
    "first in its time tree; on request",
    "origin": "paper, engine (can be installed), baseline of a paper, or own; in comparisons",
    "machine": "parts that the system owns, which are priced and powered; in comparisons",
    "attention_on": "roles whose parts compute the attention of a step; in comparisons",
    "bits": "of weights, K and V, activations, where they differ; in comparisons",
}
"""Columns of text, and what they hold: they have no order."""
HIGHER_IS_BETTER = {
    "batch": "sequences served together, as asked",
    "per_round": "sequences of a batch that run together at most, in equal rounds",
    "rate_req_s": "requests that arrive per second, at random, in place of a batch [1/s]",
    "users": "users, each of whom asks again when answered, in place of a batch",
    "context_tok": "prompt tokens of each sequence [tok]",
    "output_tokens": "tokens that each sequence generates [tok]",
    "speedup": "decode_tok_s over that of the first system; in comparisons [1]",
    "total_speedup": "throughput_tok_s over that of the first system; in comparisons [1]",
    "faster_share": "share of draws in which a row decodes fastest of all rows; with --band [1]",
    "total_faster_share": "share in which its throughput is the highest of all; with --band [1]",
    "fits_share": "share of the draws in which a design fits; with --band [1]",
    "goodput_req_s": "requests per second whose answers keep the limits of --slo [1/s]",
    "users_served": "requests present at a time whose answers keep the limits of --slo",
    "expert_hit_share": "share of the experts' bytes of a step that GPU memory and DRAM held [1]",
    "kv_gpu_gb": "K and V on the GPU when the requests end [GB]",
}
"""Columns that no metric computes, of which a higher value is better, and what they hold."""
LOWER_IS_BETTER = {
    "short_gb": "bytes that this memory, short_of, misses [GB]",
    "bottleneck_share": "share of a request's time that is the bottleneck's; on request [1]",
    "time_s:RESOURCE": "wall-clock seconds attributed to a resource; with --breakdown [s]",
    "footprint_gb:weights": "weights of the model, wherever they lie; with --columns [GB]",
    "footprint_gb:kv": "K and V of the batch after its last token; with --columns [GB]",
    "x_over_kv": "bytes of X over those of K and V, of one token; of systems with an X-cache [1]",
    **{
        f"{name}_p{share}_{unit}": f"{what} that {share} % of the requests keep{when} [{unit}]"
        for name, unit, what, when in (
            ("ttft", "s", "time to first token", "; with --method simulate alone"),
            ("tpot", "ms", "time per output token", ", where they arrive"),
        )
        for share in (50, 90, 99)
    },
    "crossover_tok": "tokens together from which on streaming experts is faster than the cores [1]",
    "preempted": "requests that lost their place in memory; of simulations",
    "memory_energy_j_tok": "energy of the memories alone per generated token [J]",
    "hbm_used_gb": "what the mapping keeps in HBM [GB]",
    "lpddr_used_gb": "what the mapping keeps in LPDDR [GB]",
    "hbm_attention_gb": "K and V of the heads mapped on HBM [GB]",
    "hbm_qkv_gb": "weights of the QKV projection mapped on HBM [GB]",
    "hbm_fc_gb": "weights of the other layers mapped on HBM [GB]",
    "fragmentation_mb": "unused parts of the last pages of sequences, in both memories [MB]",
    "page_table_mb": "flat page table of one chip over both memories [MB]",
    "kv_host_gb": "K and V in host memory when the requests end [GB]",
    "kv_drive_gb": "K and V on the drive when the requests end [GB]",
    "rank_pu_area_pct": "area of a rank's processing units over that of the buffer chip [%]",
    "pu_power_pct": "power of all processing units over that of the DIMM [%]",
}
"""Columns that no metric computes, of which a lower value is better, and what they hold."""


def column_rows() -> Rows:
    """One row per column of results: its name, unit, definition, and which value is better."""
    metrics = COLUMNS.values()
    highest = {metric.name: metric.what for metric in metrics if metric.higher_is_better}
    lowest = {metric.name: metric.what for metric in metrics if not metric.higher_is_better}
    definitions = {
        "": IDENTITY_COLUMNS,
        "higher": highest | HIGHER_IS_BETTER,
        "lower": lowest | LOWER_IS_BETTER,
    }
    rows: Rows = []
    for better, texts in definitions.items():
        for name, text in texts.items():
            what, _, unit = text.partition(" [")
            row = {"column": name, "unit": unit.rstrip("]"), "better": better, "what": what}
            rows.append(row)
    return rows


def column_row(name: str) -> Row:
    """One column of results.

    Raises:
        InputError: no such column, or that of a knob.
    """
    rows = {row["column"]: row for row in column_rows()}
    owner = next((system.name for system in systems().values() if name in system.knobs), "")
    if owner and name not in rows:
        show = f"`nearkv systems show {owner}` says what it is"
        raise InputError(
            f"{name} is a knob, and its column what was stated or solved; {show}"
        )
    check_known("column", [name], rows)
    return rows[name]


def hardware_numbers(name: str, sets: Mapping[str, str]) -> Rows:
    """Every number of a platform, with some overridden, or of a part.

    Raises:
        InputError: no such name, or an override that does not fit.
    """
    parts, platforms = names("part"), names("platform")
    is_part = is_known("part", name)
    if is_part and sets:
        listed = a_few(platforms, like=name)
        raise InputError(
            f"{name} is a part; --set replaces numbers of a platform, one of {listed}"
        )
    is_file = name.endswith(".toml")
    if is_part or (is_file and "kind" in read_toml(Path(name), "platform or part")):
        return numbers(name, load_part(name))
    if not (is_file or is_known("platform", name)):
        raise unknown("platform or part", name, [*platforms, *parts])
    platform = load_platform(name)
    for address, text in sets.items():
        platform = platform.override(
            address, number(platform.key(address))(text, f"--set {address}")
        )
    return platform_numbers(platform)


READ_MODELS = ("opt-66b", "llama2-70b")
"""Models by which readers are found: one whose heads have their own K and V, one that shares."""
READ_WORK = Workload(batch=16.0, prompt=4096.0, output=64.0)


def readers(kind: str) -> dict[str, list[str]]:
    """Systems that read each number of a kind of part, by key."""
    by_key: dict[str, list[str]] = {}
    for name, system in sorted(systems().items()):
        for key in _keys_read(system, kind):
            by_key.setdefault(key, []).append(name)
    return by_key


def _keys_read(system: System, kind: str) -> set[str]:
    """Numbers of a kind of part that a system reads for either model."""
    platform = load_platform(system.platform)
    roles = [name for name, part in platform.roles.items() if part.type == kind]
    read: set[str] = set()
    machine = recording(platform.machine(), read)
    for answer in _tried(system, machine) if roles else ():
        for column in COLUMNS.values():
            column.compute(answer)
    addresses = [address.partition(".") for address in read]
    return {key for role, _, key in addresses if role in roles}
