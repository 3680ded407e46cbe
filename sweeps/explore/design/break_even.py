"""Values of a part's number at which the systems that own the part win a workload, or lose it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.optimize import brentq

from nearkv.hardware.errors import InputError, check_known
from nearkv.hardware.schema import keys_of
from nearkv.sweeps.evaluate.slo import FAR
from nearkv.sweeps.explore.design.answer import (
    Design,
    MachineSearch,
    designs_of,
    machines_of,
)
from nearkv.sweeps.explore.design.atlas import Region
from nearkv.sweeps.explore.design.question import Question
from nearkv.sweeps.explore.design.space import Read
from nearkv.sweeps.study.grid import NO_NUMBERS
from nearkv.sweeps.tables.table import Row

DOUBLINGS = 6
"""A number is looked at up to 64 times as high, and down to a 64th."""
EXACT = 1e-9
"""Distance of the factor's logarithm to which it is found, and of values that tie [1]."""
GB = 1e9
"""Bytes of a gigabyte, as prices count it [B]."""


def break_even(region: Region, address: str) -> Row:
    """The value of a number at which the systems that own its part begin to win, or no longer do.

    All parts that may stand in the role have the number times one factor; machines of systems that
    own the role are searched again at each factor, and within the budget at its prices. Of two such
    factors the nearer to the stated value counts.

    Args:
        region: a workload within a budget, whose machines of other systems stay as they are.
        address: the number, `role.key`.

    Returns:
        The workload; whether the owners win as stated; the `factor`, empty where none up to 64
        turns the ranking; and there the best machine's part, the number `at` that it has, with its
        unit, for a price `usd_per_gb`, and who is level: `owner` and `rival`.

    Raises:
        InputError: no system that is asked about owns such a part.
    """
    role = address.partition(".")[0]
    question = region.question
    check_owned(question, address)
    rivals = [
        machine
        for machine in region.machines
        if role not in question.deployments_of(machine[0]).system.owns
    ]
    rival = designs_of(question, rivals[:1])
    beaten = np.inf
    if rival:
        beaten = float(question.goal.worth(rival[0].block, NO_NUMBERS, 1)[0])

    def lead(doublings: float) -> float:
        """The lead of the owners as a logarithm, below 0 behind; at most `FAR` [1]."""
        search = searched(question, address, 2.0**doublings)
        own = float(np.min(search.kept.costs[:, 1])) if search.meets else np.inf
        if np.isclose(own, beaten, EXACT, 0):  # who ties does not win
            return -EXACT
        if not np.isfinite([own, beaten]).all():
            return FAR if own < beaten else -FAR
        # rates are negative, as less is better
        return float(np.log(own / beaten) if own < 0 else np.log(beaten / own))

    wins = lead(0.0) > 0
    row = {**region.asked, "number": address, "owner_wins": wins}
    row |= dict.fromkeys(("factor", "part", "at", "unit", "usd_per_gb", "owner"))
    row["rival"] = rival[0].system if rival else ""
    reach = _reach(lead, wins)
    if not reach:
        return row
    doublings = float(brentq(lead, *reach, xtol=EXACT))
    # on the side of the owners, as the other may have no machine of theirs
    inside = doublings - np.sign(reach[1]) * (EXACT if wins else -EXACT)
    search = searched(question, address, 2.0**inside)
    owner = designs_of(search.question, machines_of(search.kept)[:1])[0]
    return {**row, **_value(owner, address, 2.0**doublings), "owner": owner.system}


def check_owned(question: Question, address: str) -> None:
    """Refuse a number of a part that no system of a question owns, and how many parts there are.

    Raises:
        InputError: it is one.
    """
    role, _, key = address.partition(".")
    owned = {own for each in question.deployments for own in each.system.owns}
    check_known("part", [role], owned, "--break-even")
    if not key:
        raise InputError(f"--break-even {address}: name a number of it, as {role}.price")
    if key == "count":
        raise InputError(
            f"--break-even {address}: machines of every count are tried; name a number of "
            f"one part, as {role}.price"
        )


def _reach(lead: Callable[[float], float], wins: bool) -> tuple[float, float] | None:
    """Doublings between which who wins changes, those nearest to none; None where it never does."""
    for far in range(1, DOUBLINGS + 1):
        for sign in (1, -1):
            if (lead(sign * far) > 0) != wins:
                return sign * (far - 1), sign * far
    return None


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


def searched(question: Question, address: str, factor: float) -> MachineSearch:
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
    for each in scaled.deployments:
        search.over(each.candidates(each.within))
    if search.is_interrupted:
        raise KeyboardInterrupt
    search.rank()
    return search
