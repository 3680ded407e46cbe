"""Name which parts a price covers, and which have none."""

from __future__ import annotations

from collections.abc import Sequence

from nearkv.costmodel.model.metrics import COSTS, SERVER
from nearkv.sweeps.study.grid import Block


def price_sentences(study_blocks: Sequence[Block]) -> list[str]:
    """Say what each price of a study covers, or why there is none, once a system and machine."""
    sentences = (_no_price(block) or _price(block) for block in study_blocks)
    return list(dict.fromkeys(sentences))


def no_prices(study_blocks: Sequence[Block]) -> list[str]:
    """Why there is no price, once for each system and machine without one."""
    return list(dict.fromkeys(filter(None, map(_no_price, study_blocks))))


def _no_price(block: Block) -> str:
    """Name the parts that the system needs and that state no price; empty where all do."""
    roles, stated = block.platform.roles, block.sets.values()
    lacking = [
        role
        for role in (*block.system.owns, SERVER)
        if role in roles
        and "price" not in roles[role].numbers
        and f"{role}.price" not in stated
    ]
    if not lacking:
        return ""
    parts = _listed([f"{role} ({roles[role].name})" for role in lacking])
    state = "states" if len(lacking) == 1 else "state"
    advice = " ".join(f"--set {role}.price=USD" for role in lacking)
    return f"no {COSTS[0]} of {_where(block)}: {parts} {state} no price; give {advice}"


def _price(block: Block) -> str:
    """Name the parts that the price covers, and which of the platform are other systems'."""
    roles = block.platform.roles
    owned = (*block.system.owns, SERVER)
    devices = [role for role, part in roles.items() if part.is_device]
    bought = [role for role in devices if role in owned]
    sentence = f"{COSTS[0]} of {_where(block)} is of {_listed(bought)}"
    if others := [role for role in devices if role not in owned]:
        sentence += f", without {_listed(others)}, which it does not need"
    if absent := [role for role in owned if role not in (*roles, SERVER)]:
        sentence += f"; the platform states no {_listed(absent)}"
    return f"{sentence}."


def _where(block: Block) -> str:
    return f"{block.system.name} on {block.platform.label}"


def _listed(names: Sequence[str]) -> str:
    """Names with commas, and `and` before the last."""
    *before, last = names
    return f"{', '.join(before)} and {last}" if before else last
