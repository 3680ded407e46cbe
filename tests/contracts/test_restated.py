"""Knobs as a row prints them, stated again, give the same row."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from support.systems import SYSTEMS

from nearkv.hardware.catalog import load_platform
from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate.columns import table
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.tables.table import records

CASES = int(os.environ.get("NEARKV_CASES", "3"))
"""Studies of a system."""
MODELS = ("opt-66b", "opt-175b", "llama2-70b", "mixtral-8x7b")
PLACED = [
    name
    for name, system in SYSTEMS.items()
    if any(knob.share == "ssd_weights" for knob in system.knobs.values())
]
TIGHT = Study(
    ("flexgen-raid",),
    ("opt-175b",),
    batch=2,
    context="32k",
    output_tokens=512,
    sets={"gpu.memory": "113.14GB", "host.memory": "895.58GB"},
)
"""Best with a quarter of the streamed weights on the drives, which no name alone states."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_row_stated_again_is_the_same_row(name: str) -> None:
    random = Random(f"{os.environ.get('NEARKV_SEED')} {name}")
    answered = 0
    while answered < CASES:
        study = drawn(name, random)
        with suppress(InputError):  # two shares that are both auto, or memories that contradict
            (row,) = records(table(study))
            answered += 1
            again = replace(study, knobs=printed(row))
            assert same_answer(row, again), printed(row)


def same_answer(row: dict[str, Any], again: Study) -> bool:
    """True if a study of one point has the answer of a row."""
    try:
        (stated,) = records(table(again))
    except InputError as refusal:
        raise AssertionError(f"what a row prints is refused: {refusal}") from refusal
    if stated["status"] != row["status"] or row["total_s"] is None:
        return bool(stated["status"] == row["status"])
    return bool(stated["total_s"] == pytest.approx(row["total_s"], rel=1e-8))


def drawn(name: str, random: Random) -> Study:
    """One design point with memories that may be small, one more knob to be solved."""
    system = SYSTEMS[name]
    platform = load_platform(system.platform)
    sets = {}
    for address in ("gpu.memory", "host.memory", "hbm.memory", "lpddr.memory"):
        role, _, key = address.partition(".")
        if role in platform.roles and key in platform.roles[role].numbers:
            size = platform.roles[role].numbers[key].si * 2 ** random.uniform(-2, 1)
            sets[address] = f"{size!r}{platform.key(address).unit}"
    # a knob of a million values takes seconds to solve
    solved = [
        name
        for name, knob in system.knobs.items()
        if not (knob.sets or knob.is_given) and knob.high < 1e5
    ]
    return Study(
        (name,),
        (random.choice(MODELS),),
        batch=random.randint(1, 64),
        context=random.randint(1, 100_000),
        output_tokens=random.randint(1, 1000),
        sets=sets,
        knobs={random.choice(solved): "auto"} if solved else {},
    )


def printed(row: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """The knobs of a row as its cells show them."""
    knobs = SYSTEMS[row["system"]].knobs
    return {
        name: (str(row[name]),) for name, knob in knobs.items() if name in row and not knob.sets
    }


def test_a_placement_that_one_name_does_not_state_has_another_name() -> None:
    (row,) = records(table(TIGHT))
    assert row["weights"] == "filled+ssd_weights"
    assert row["ssd_weights"] == pytest.approx(0.254, rel=0.01)
    (filled,) = records(table(replace(TIGHT, knobs={"weights": ("filled",)})))
    assert filled["weights"] == "filled"
    assert filled["total_s"] > 1.008 * row["total_s"]


@pytest.mark.parametrize("name", PLACED)
def test_half_of_a_placement_is_refused(name: str) -> None:
    """Alone, the name would be read as the share 0, which is timed as `filled`."""
    half = Study((name,), ("opt-30b",), knobs={"weights": "filled+ssd_weights"})
    with pytest.raises(InputError, match="give ssd_weights a value as well"):
        table(half)
