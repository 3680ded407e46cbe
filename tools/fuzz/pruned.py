"""Random studies whose best rows are searched with bounds and without: they must be the same."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from unittest.mock import patch

import numpy as np

from nearkv.costmodel.model.registry import System, systems
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate.evaluate import Columns
from nearkv.sweeps.explore import pruning
from nearkv.sweeps.jobs.best import best
from nearkv.sweeps.jobs.reduce import BestPer, Reducer, Top
from nearkv.sweeps.jobs.running import SweepRun
from nearkv.sweeps.jobs.workers import Workers
from nearkv.sweeps.study.study import Study

MODELS = ("opt-66b", "opt-175b", "llama2-70b", "qwen2.5-32b")
BY = (
    "throughput_tok_s",
    "step_ms",
    "total_s",
    "prefill_s",
    "energy_j_tok",
    "tok_s_per_kusd",
    "decode_tok_s",
    "endurance_requests",
    "cost_usd",
    "batch_run",
)
PER = ("model", "batch", "context_tok", "output_tokens", "status", "system", "batch_run", "reason")
ROLES = ("gpu", "gpu_link", "host", "csd", "ssd", "uplink", "ssd_link", "dimm", "precision")


@contextmanager
def searched(least: int, most_at_once: int = 16) -> Iterator[None]:
    """Studies of at least so many points are searched with bounds, none is given up."""
    with (
        patch.object(pruning, "ENOUGH", least),
        patch.object(pruning, "_ALLOWED", 1e9),
        patch.object(pruning, "_LEAF", 4),
        patch.object(pruning, "_AT_ONCE", most_at_once),
    ):
        yield


def drawn(random: Random, points: int) -> tuple[Study, Reducer]:
    """A study of about so many points, and which of its rows are the best."""
    names = random.sample(sorted(systems()), random.choice((1, 1, 2)))
    known = [systems()[name] for name in names]
    extents = [random.choice((1, 2, 3, 5, 8, 13, 30)) for _ in range(6)]
    while np.prod(extents) * len(names) > points:
        extents[random.randrange(6)] = random.choice((1, 2, 3))
    while np.prod(extents) * len(names) * 1.3 < points:
        extents[random.randrange(6)] += 1
    sets: dict[str, str] = {}
    for extent in extents[3:]:
        address, text = _number(random, known[0], extent)
        sets[address] = text
    study = Study(
        systems=tuple(names),
        models=tuple(random.sample(MODELS, random.choice((1, 1, 2)))),
        batch=_sizes(random, 1, 600, extents[0]),
        context=_sizes(random, 100, 2_000_000, extents[1]),
        output_tokens=_sizes(random, 1, 4000, extents[2]),
        platforms=(known[0].platform,),
        sets=sets,
        knobs=_knobs(random, known),
    )
    by = random.choice(BY)
    if random.random() < 0.5:
        return study, Top(by, most=random.choice((1, 3, 10, 100)))
    return study, BestPer(by, tuple(random.sample(PER, random.choice((1, 1, 2)))))


def _sizes(random: Random, low: int, high: int, extent: int) -> str:
    """Sizes near and far apart, mostly in order."""
    first = int(low * (high / low) ** random.random())
    factor = 1 + 2 ** random.uniform(-6, 2)
    sizes = {first}
    for step in range(extent - 1):
        sizes.add(round(first * factor ** (step + 1)) + step + 1)
    ordered = sorted(min(size, 2**50) for size in sizes)
    if random.random() < 0.2:
        ordered.reverse()
    if random.random() < 0.1:
        random.shuffle(ordered)
    return ",".join(map(str, ordered))


def _number(random: Random, system: System, extent: int) -> tuple[str, str]:
    """A hardware number and its values, as a user writes them."""
    platform = load_platform(system.platform)
    roles = [role for role in ROLES if role in platform.roles]
    role = random.choice(roles)
    key = random.choice(sorted(platform.roles[role].numbers))
    value = platform.roles[role].numbers[key].si
    address = f"{role}.{key}"
    known = platform.key(address)
    low = value * 2 ** random.uniform(-3, 1)
    values = [low * (1 + random.uniform(0.01, 0.3) * step) for step in range(extent)]
    if known.whole:
        values = [float(max(round(low), 1) + step) for step in range(extent)]
    unit = "" if known.unit == "1" else known.unit
    return address, ",".join(f"{value!r}{unit}" for value in dict.fromkeys(values))


def _knobs(random: Random, known: list[System]) -> dict[str, str]:
    """Values, rules or `auto` of a knob that all systems have."""
    shared = set.intersection(*(set(system.knobs) for system in known))
    knobs: dict[str, str] = {}
    for name in sorted(shared):
        knob = known[0].knobs[name]
        if knob.sets or random.random() < 0.5:
            continue
        values = ["auto", *knob.rules, str(knob.low), str(knob.high)]
        if knob.kind == "share":
            values += ["0.25,0.5,0.75"]
        knobs[name] = random.choice(values)
    return knobs


def rows(study: Study, reducer: Reducer) -> Columns:
    """The best rows."""
    return best(study, reducer, SweepRun(Workers(), True, False, print, lambda _: True))


def difference(study: Study, reducer: Reducer) -> str | None:
    """Which column of the best rows differs with bounds; None where the study is refused."""
    try:
        with patch.object(pruning, "ENOUGH", 1 << 62):
            expected = rows(study, reducer)
    except InputError:
        return None
    with searched(0):
        answer = rows(study, reducer)
    for name, column in expected.items():
        is_number = column.dtype.kind == "f"
        if not np.array_equal(column, answer[name], equal_nan=is_number):
            return name
    return ""


def campaign(seed: int, studies: int, points: int) -> Iterator[str]:
    """Compare so many studies that can be evaluated; yields what differs."""
    random = Random(seed)
    compared = 0
    while compared < studies:
        study, reducer = drawn(random, points)
        column = difference(study, reducer)
        if column is None:
            continue
        compared += 1
        if column:
            yield f"{column} differs: {reducer} {study}"


if __name__ == "__main__":
    seed, studies, points = map(int, sys.argv[1:])
    faults = 0
    for fault in campaign(seed, studies, points):
        faults += 1
        print(fault, flush=True)
    print(f"{studies:,} studies of about {points:,} points: {faults} differ")
    sys.exit(faults > 0)
