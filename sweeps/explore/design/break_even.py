"""Values of a part's number at which the systems that own the part win a workload, or lose it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from scipy.optimize import brentq

from nearkv.costmodel.algebra.span import Indices, Numbers
from nearkv.hardware.errors import InputError, check_known
from nearkv.hardware.schema import keys_of
from nearkv.solvers.search import crossings, looked_at
from nearkv.sweeps.evaluate.slo import FAR
from nearkv.sweeps.explore.design.answer import (
    Design,
    MachineSearch,
    designs_of,
    machines_of,
)
from nearkv.sweeps.explore.design.atlas import DRAWS, Region
from nearkv.sweeps.explore.design.flips import at_equal_cost, band_of, ratio_errors
from nearkv.sweeps.explore.design.goal import Goal
from nearkv.sweeps.explore.design.question import Question
from nearkv.sweeps.explore.design.space import Read
from nearkv.sweeps.study.bands import Band
from nearkv.sweeps.study.grid import NO_NUMBERS, Block
from nearkv.sweeps.tables.table import Row
from nearkv.sweeps.uncertainty.sampled import drawn_numbers, ends

DOUBLINGS = 6
"""A number is looked at up to 64 times as high, and down to a 64th."""
EXACT = 1e-9
"""Distance of the factor's logarithm to which it is found, and of values that tie [1]."""
VALUE_COLUMNS = ("at", "usd_per_gb")
"""Columns of the value, which have bands."""
GB = 1e9
"""Bytes of a gigabyte, as prices count it [B]."""


def break_even(region: Region, address: str, level: float = 0.0) -> Row:
    """The value of a number at which the systems that own its part begin to win, or no longer do.

    All parts that may stand in the role have the number times one factor; machines of systems that
    own the role are searched again at each factor, and within the budget at its prices. Of several
    such factors the one nearest to 1 counts, by its ratio.

    Args:
        region: a workload within a budget, whose machines of other systems stay as they are.
        address: the number, `role.key`.
        level: share of the draws inside the band of the value; 0 for none [%].

    Returns:
        The workload; whether the owners win as stated; the `factor`, empty where none up to 64
        turns the ranking; and there the best machine's part, the number `at` that it has, with its
        unit, for a price `usd_per_gb`, and who is level: `owner` and `rival`. With a level the ends
        and the middle of a band of both values, as `at_p05`; one is empty where so many draws turn
        at no factor up to 64.

    Raises:
        InputError: no system that is asked about owns such a part.
    """
    question = region.question
    check_owned(question, address)
    rival = _rival_of(region, address)
    advantage = _advantage_over(rival, question, address)
    wins = advantage(0.0) > 0
    suffixes = Band(level, DRAWS, 0).suffixes if level else ()
    blank = ["factor", "part", "at", "unit", "usd_per_gb", "owner"]
    blank += [f"{name}_{suffix}" for name in VALUE_COLUMNS for suffix in suffixes]
    row = {**region.cell, "number": address, "owner_wins": wins, **dict.fromkeys(blank)}
    row["rival"] = rival.system if rival else ""
    turn = _nearest_turn(advantage, wins)
    if turn is None:
        return row
    doublings, side = turn
    # on the side of the owners, as the other may have no machine of theirs
    inside = doublings - 2 * EXACT * (side if wins else -side)
    search = search_owners(question, address, 2.0**inside)
    owner = designs_of(search.question, machines_of(search.kept)[:1])[0]
    row |= {**_value(owner, address, 2.0**doublings), "owner": owner.system}
    if level:
        blocks = [design.block for design in (owner, rival) if design]
        band = band_of(blocks, DRAWS, level)
        wins_below = wins == (side > 0)
        turns = turns_of_draws(question.goal, blocks, address, band, doublings, wins_below)
        for name in VALUE_COLUMNS:
            if row[name]:
                row |= _shown_ends(band, name, turns + np.log2(row[name] / 2.0**doublings))
    return row


def _rival_of(region: Region, address: str) -> Design | None:
    """The best machine of the systems that do not own a number's part; None where none serves."""
    role = address.partition(".")[0]
    for row, split in region.machines:
        if role not in region.question.deployments_of(row).system.owns:
            return designs_of(region.question, [(row, split)])[0]
    return None


def _advantage_over(
    rival: Design | None, question: Question, address: str
) -> Callable[[float], float]:
    """Function of the doublings of a number: logarithm of its owners' advantage over a rival.

    It is below 0 where they are behind or level, and at most `FAR`. No value is searched twice.
    """
    rival_loss = np.inf
    if rival:
        rival_loss = float(question.goal.loss(rival.block, NO_NUMBERS, 1)[0])

    @cache
    def advantage(doublings: float) -> float:
        search = search_owners(question, address, 2.0**doublings)
        owner_loss = float(np.min(search.kept.costs[:, 1])) if search.meets else np.inf
        if np.isclose(owner_loss, rival_loss, EXACT, 0):  # who ties does not win
            return -EXACT
        if not np.isfinite([owner_loss, rival_loss]).all():
            return FAR if owner_loss < rival_loss else -FAR
        # rates are negative, as less is better
        ratio = owner_loss / rival_loss if owner_loss < 0 else rival_loss / owner_loss
        return float(np.log(ratio))

    return advantage


def check_owned(question: Question, address: str) -> None:
    """Refuse a number of a part that no system of a question owns, and how many parts there are.

    Raises:
        InputError: it is one.
    """
    role, _, key = address.partition(".")
    owned = {name for each in question.deployments for name in each.system.owns}
    check_known("part", [role], owned, "--break-even")
    if not key:
        raise InputError(f"--break-even {address}: name a number of it, as {role}.price")
    if key == "count":
        raise InputError(
            f"--break-even {address}: machines of every count are tried; name a number of "
            f"one part, as {role}.price"
        )


def _nearest_turn(
    advantage: Callable[[float], float], wins: bool
) -> tuple[float, int] | None:
    """The doublings nearest to none at which who wins changes, and their sign; None where never."""
    for octave in range(1, DOUBLINGS + 1):
        turns = []
        for side in (1, -1):
            near, far = float(side * (octave - 1)), float(side * octave)
            if (advantage(far) > 0) != wins:
                turns.append((float(brentq(advantage, near, far, xtol=EXACT)), side))
        if turns:
            return min(turns, key=lambda turn: abs(turn[0]))
    return None


def turns_of_draws(
    goal: Goal,
    blocks: Sequence[Block],
    address: str,
    band: Band,
    nearest_to: float,
    wins_below: bool,
) -> Numbers:
    """Doublings of a number at which one machine overtakes another, in draws of all other numbers.

    The machines stay as they are. One that drawn prices put beyond the budget counts by what it
    does per dollar, unless a price is asked about: then the owner is within it or loses.

    Args:
        goal: what ranks them.
        blocks: the machine that owns the number, and its rival where there is one.
        address: the number, `role.key`.
        band: the draws.
        nearest_to: doublings; of several the nearest to these counts.
        wins_below: whether the owner wins below them, and not above.

    Returns:
        Doublings of the stated number, one a draw; infinite, or below all, where the owner wins
        throughout or loses throughout.
    """
    owner, *rivals = blocks
    role, _, key = address.partition(".")
    stated = owner.platform.roles[role].si[key]
    numbers = drawn_numbers(owner, band)
    rival_loss = np.full(band.samples, np.inf)
    for rival in rivals:
        drawn = drawn_numbers(rival, band)
        rival_loss = at_equal_cost(goal, rival, drawn, band.samples)
        rival_loss *= ratio_errors(goal, rival, band)

    def leads(draws: Indices, factors: Numbers) -> Numbers:
        """1 where the owner is better."""
        changed = {name: values[draws] for name, values in numbers.items()}
        changed[address] = stated * factors
        if key == "price":
            loss = goal.loss(owner, changed, len(draws))
        else:
            loss = at_equal_cost(goal, owner, changed, len(draws))
        return (loss < rival_loss[draws]).astype(float)

    reach: Numbers = np.exp2(np.arange(-DOUBLINGS, DOUBLINGS + 1.0))
    looked = looked_at(leads, band.samples, reach, False)
    wins_somewhere = looked.any(axis=0)
    turns = np.where(wins_somewhere == wins_below, np.inf, -np.inf)
    for each in crossings(leads, band.samples, reach, False, looked):
        doublings = np.log2(each.below)
        is_nearer = abs(doublings - nearest_to) < abs(turns[each.point] - nearest_to)
        if is_nearer and each.rises != wins_below:
            turns[each.point] = doublings
    return turns


def _shown_ends(band: Band, name: str, logarithms: Numbers) -> Row:
    """Ends and middle of the band of a value, of which draws have the binary logarithm."""
    values = {
        end: 2.0 ** float(value) for end, value in ends(band, name, logarithms).items()
    }
    return {end: value if 0 < value < np.inf else None for end, value in values.items()}


def _value(owner: Design, address: str, factor: float) -> Row:
    """A number of a machine times a factor, in the unit that columns show it in."""
    role, _, key = address.partition(".")
    part = owner.machine.roles[role]
    meaning = keys_of(part.type, [key])[key]
    value = factor * part.si[key]
    row = {"factor": factor, "part": part.name, "at": meaning.shown(value)}
    row["unit"] = meaning.shown_in
    if key == "price" and (size := part.si.get("capacity") or part.si.get("memory")):
        row["usd_per_gb"] = value / (size / GB)
    return row


def search_owners(question: Question, address: str, factor: float) -> MachineSearch:
    """The best machines of the systems that own a part, one of whose numbers is times a factor.

    Raises:
        InputError: no machine has such a number.
        KeyboardInterrupt: Ctrl-C came.
    """
    role = address.partition(".")[0]
    laid_out = tuple(
        (each.system, Read(each.machines.scaled(address, factor)))
        for each in question.deployments
        if role in each.system.owns
    )
    scaled = replace(question, laid_out=laid_out)
    search = MachineSearch(scaled, scaled.goal.best, np.inf, None)
    search.over_within()
    if search.is_interrupted:
        raise KeyboardInterrupt
    search.rank()
    return search
