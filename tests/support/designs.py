"""Random questions of which machine to buy, and their answers from the rows of every machine."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import nearkv
from nearkv.costmodel.model.registry import find_system
from nearkv.hardware.errors import InputError
from nearkv.hardware.platform import Platform
from nearkv.hardware.server import Fitted, Server, load_server, ownership
from nearkv.sweeps.evaluate.columns import evaluate
from nearkv.sweeps.evaluate.slo import higher_is_better
from nearkv.sweeps.study.study import Study, blocks

SYSTEMS = (
    "flexgen-dram", "flexgen-ssd", "hilos", "inf2", "zero-inference", "deepspeed-uvm",
    "cpu-offload", "infinigen", "leoam", "h2o", "gpu", "full-cache", "l3", "hbm-pim", "rank-pim",
    "hillinfer", "expert-offload", "accelerate", "flexgen-percent", "flexgen-16ssd", "cpu-only",
    "h2m2",
    "hierarchical",
)  # fmt: skip
MODELS = ("opt-30b", "llama3.1-70b", "qwen2.5-32b", "opt-6.7b", "gpt-oss-20b", "llama3.1-8b")
OBJECTIVES = ("cost_usd", "throughput_tok_s", "usd_mtok", "tpot_ms", "power_cap_w", "rack_units")
LIMITS = ("tpot_ms", "ttft_s", "throughput_tok_s", "batch_run")
BUDGETS = {"cost_usd": "USD", "power_cap_w": "W", "rack_units": "U"}
COSTS = ("cost_usd", "usd_mtok", "usd_hour")
FOLDER = Path(nearkv.__file__).parent / "hardware" / "servers"
SERVERS = tuple(sorted(file.stem for file in FOLDER.glob("*.toml")))


@dataclass(frozen=True)
class Asked:
    """A question over at most 500 machines of each server: what `design` takes, and the files."""

    seed: int
    systems: tuple[str, ...]
    files: tuple[Path, ...]
    workload: Mapping[str, Any]
    objective: str
    rent: bool

    def design(self, files: Sequence[Path] = (), **changed: Any) -> pd.DataFrame:
        """Answer of `design`, of some of the servers."""
        side = "maximize" if higher_is_better(self.objective) else "minimize"
        asked: dict[str, Any] = {**self.workload, side: self.objective, **changed}
        servers = [str(file) for file in files or self.files]
        return nearkv.design(self.systems, servers=servers, rent=self.rent, **asked)


def random_question(seed: int, folder: Path) -> Asked:
    """A question on a few servers, each with a few parts, counts and sizes; every server comes."""
    rng = np.random.default_rng(seed)
    own = [SERVERS[seed % len(SERVERS)], *rng.choice(SERVERS, int(rng.integers(0, 2)))]
    files = [small_server(name, rng, folder) for name in dict.fromkeys(own)]
    objective = str(rng.choice(OBJECTIVES))
    rent = objective == "usd_mtok" and rng.random() < 0.5
    runs = [name for name in SYSTEMS if any(needed(name, load_server(str(f))) for f in files)]
    systems = rng.choice(runs, min(int(rng.integers(1, 4)), len(runs)), replace=False)
    workload = {
        "model": str(rng.choice(MODELS)),
        "batch": int(rng.choice([1, 4, 16])),
        "context": int(rng.choice([2048, 16384, 65536])),
        "output_tokens": int(rng.choice([32, 512])),
    }
    return Asked(seed, tuple(map(str, systems)), tuple(files), workload, objective, rent)


def small_server(name: str, rng: np.random.Generator, folder: Path) -> Path:
    """A server of the catalogue of which each slot takes one or two parts, counts and sizes."""
    table = tomllib.loads((FOLDER / f"{name}.toml").read_text())
    server = load_server(name)
    for role, slot in table["slots"].items():
        parts = [part.name for part in server.parts(role)]
        slot["takes"] = some(parts, rng)
        if "lanes" not in slot or not isinstance(slot["lanes"], list):
            slot["counts"] = sorted(map(int, some(server.slots[role].counts, rng)))
            slot.pop("most", None)
        if "sizes" in slot:
            slot["sizes"] = some(slot["sizes"], rng)
    file = folder / f"{name}.toml"
    file.write_text(written(table))
    return file


def some(values: Sequence[Any], rng: np.random.Generator) -> list[Any]:
    """One or two of some values."""
    count = min(len(values), int(rng.integers(1, 3)))
    return [values[place] for place in rng.choice(len(values), count, replace=False)]


def written(table: Mapping[str, Any]) -> str:
    """A server as TOML."""

    def inline(value: Any) -> str:
        if isinstance(value, dict):
            return "{ " + ", ".join(f"{key} = {inline(own)}" for key, own in value.items()) + " }"
        return json.dumps(value)

    lines = [f"{key} = {inline(value)}" for key, value in table.items() if key != "slots"]
    for role, slot in table["slots"].items():
        lines += [f"\n[slots.{role}]", *(f"{key} = {inline(own)}" for key, own in slot.items())]
    return "\n".join(lines) + "\n"


def needed(system: str, server: Server) -> list[str]:
    """Slots of what a system owns; none where the server has no place for some of it."""
    owns = find_system(system).owns
    brought = {
        role for role, part in server.platform.roles.items() if part.type in ("chassis", "link")
    }
    absent = {"host"} - server.platform.roles.keys()
    slots = [role for role in owns if role in server.slots]
    return slots if set(owns) <= {*slots, *brought, *absent} else []


def every_machine(system: str, file: Path, rent: bool) -> Iterator[Platform]:
    """Every machine of a server that a system may run on, one by one as `Server` builds it."""
    server = load_server(str(file))
    roles = {**server.platform.roles, "ownership": ownership({})}
    server = replace(server, platform=replace(server.platform, roles=roles))
    slots = needed(system, server)
    options = []
    for role in slots:
        slot = server.slots[role]
        options.append(list(product(server.parts(role), slot.counts, slot.sizes or (0.0,))))
    for chosen in product(*options) if slots else ():
        build = {role: Fitted(one[0], one[1]) for role, one in zip(slots, chosen, strict=True)}
        try:
            machine = server.machine(build, sum(one[2] for one in chosen))
        except InputError:
            continue  # more lanes or watts than there are
        yield machine
        if rent:
            yield machine.override("ownership.rented", 1.0)


def every_row(asked: Asked) -> pd.DataFrame:
    """A row of `compare` for each system on each machine, each split of its GPUs, and rounds."""
    tables = [
        rows_of(system, machine, asked.workload).assign(machine=f"{file.stem} {place}")
        for system, file in product(asked.systems, asked.files)
        for place, machine in enumerate(every_machine(system, file, asked.rent))
    ]
    table = pd.concat(tables, ignore_index=True)
    return table[table["status"] == "ok"]


def rows_of(system: str, machine: Platform, workload: Mapping[str, Any]) -> pd.DataFrame:
    """The rows of `compare` of one machine; none where it lacks a number."""
    knobs: dict[str, Any] = {}
    if system == "gpu":
        most = int(machine.roles["gpu"].si["count"])
        degrees = list(range(1, most + 1))
        knobs = {"tp": degrees, "pp": degrees, "dp": degrees, "ep": degrees, "attention": "tp,dp"}
    asked = {name: value for name, value in workload.items() if name != "model"}
    batch = int(workload["batch"])
    asked["per_round"] = [size for size in range(1, batch + 1) if batch % size == 0]
    study = Study((system,), workload["model"], platforms=(machine,), knobs=knobs, **asked)
    try:
        return pd.concat(
            [pd.DataFrame(table) for table in evaluate(blocks(study), extra=("rack_units",))]
        )
    except InputError:
        return pd.DataFrame({"status": []})


def with_limits(asked: Asked, rows: pd.DataFrame) -> tuple[dict[str, Any], pd.DataFrame]:
    """Limits and budgets that some rows meet, as `design` takes them, and the rows that do."""
    rng = np.random.default_rng(asked.seed)
    limits: dict[str, list[str]] = {"slo": [], "budget": []}
    if asked.objective in COSTS:
        rows = rows[rows["cost_usd"].notna()]
    for column in [*rng.choice(LIMITS, 1), *rng.choice(list(BUDGETS), int(rng.integers(0, 3)))]:
        values = rows[column].dropna()
        if not len(values) or any(column in text for text in limits["slo"]):
            continue
        at_least = higher_is_better(column)
        value = float(f"{rng.choice(values) * (1 - 1e-6 if at_least else 1 + 1e-6):.9g}")
        if column in BUDGETS:
            if any(text.endswith(BUDGETS[column]) for text in limits["budget"]):
                continue
            limits["budget"].append(f"{value!r}{BUDGETS[column]}")
        else:
            limits["slo"].append(f"{column}={value!r}")
        if column in COSTS:
            rows = rows[rows["cost_usd"].notna()]
        rows = rows[rows[column] >= value] if at_least else rows[rows[column] <= value]
    return {name: texts for name, texts in limits.items() if texts}, rows


def best_by_system(rows: pd.DataFrame, objective: str) -> dict[str, float]:
    """The best value of each system among some rows."""
    known = rows[rows[objective].notna()]
    values = known.groupby("system")[objective]
    best = values.max() if higher_is_better(objective) else values.min()
    return {str(name): float(value) for name, value in best.items()}
