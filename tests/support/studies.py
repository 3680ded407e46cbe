"""Studies that tests of sweeps share: one of every kind of column, and random ones."""

from __future__ import annotations

from functools import cache
from random import Random

import numpy as np

from nearkv.costmodel.model.registry import System, systems
from nearkv.hardware.catalog import Platform, load_platform
from nearkv.sweeps.jobs.progress import SweepRun
from nearkv.sweeps.jobs.workers import Workers
from nearkv.sweeps.study.study import Study

MIXED = Study(
    ("accelerate", "hillinfer"),
    ("llama3.1-8b", "opt-30b"),
    batch="1,8,64",
    context="8k:128k:x2",
    sets={"gpu.bandwidth": "1000GB/s,2000GB/s"},
    knobs={"hot_share": "0.5,auto", "chunks": "1,16"},
)
"""Blocks with different columns, points that do not fit, names, counts and blanks."""


def quietly(jobs: int = 1) -> SweepRun:
    """A run without a word or a question."""
    return SweepRun(
        Workers(jobs),
        quiet=True,
        resume=False,
        say=lambda line: None,
        confirm=lambda question: True,
    )


MODELS = ("opt-66b", "opt-175b", "llama2-70b", "qwen2.5-32b")
ROLES = ("gpu", "gpu_link", "host", "csd", "ssd", "uplink", "ssd_link", "dimm", "precision")


def drawn_study(random: Random, points: int) -> Study:
    """A study of about `points` design points."""
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
    return Study(
        systems=tuple(names),
        models=tuple(random.sample(MODELS, random.choice((1, 1, 2)))),
        batch=_sizes(random, 1, 600, extents[0]),
        context=_sizes(random, 100, 2_000_000, extents[1]),
        output_tokens=_sizes(random, 1, 4000, extents[2]),
        platforms=(known[0].platform,),
        sets=sets,
        # of their own, lest a new knob of one system changes all studies after it
        knobs=_knobs(Random(random.random()), known),
    )


def _sizes(random: Random, low: int, high: int, extent: int) -> str:
    """Sizes near and far apart, mostly in order."""
    first = int(low * (high / low) ** random.random())
    factor = 1 + 2 ** random.uniform(-6, 2)
    sizes = {first}
    for step in range(extent - 1):
        sizes.add(round(first * factor ** (step + 1)) + step + 1)
    ordered = sorted({min(size, 2**50) for size in sizes})
    if random.random() < 0.2:
        ordered.reverse()
    if random.random() < 0.1:
        random.shuffle(ordered)
    return ",".join(map(str, ordered))


@cache
def _platform(name: str) -> Platform:
    """Read once: most drawn studies are of no use to who draws."""
    return load_platform(name)


def _number(random: Random, system: System, extent: int) -> tuple[str, str]:
    """A hardware number and its values, as a user writes them."""
    platform = _platform(system.platform)
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
        values = [*knob.rule_names, str(knob.low), str(knob.high)]
        if knob.is_continuous:
            values += ["0.25,0.5,0.75"]
        knobs[name] = random.choice(values)
    return knobs
