"""Write the table of `docs/not-modelled.md`: `python docs/not_modelled.py`.

It counts, for each kind of layer, the systems and models of the catalogue that meet `not-modelled`,
with the reasons that the column `reason` gives.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import numpy as np

from nearkv.costmodel.model.layers import not_modelled
from nearkv.costmodel.model.models import llm_from_part
from nearkv.costmodel.model.registry import systems
from nearkv.hardware.catalog import load_llm, names
from nearkv.hardware.machine import Role

PAGE = Path(__file__).with_name("not-modelled.md")
TABLE = re.compile(r"(<!-- reasons -->\n\n).*?(\n\n<!-- end -->)", re.DOTALL)
NATIVE = Role("", "precision", {"weight": 2.0, "kv": 2.0, "activation": 2.0})


def table() -> str:
    """A row per reason: how many systems and models it concerns, and pairs of them."""
    llms = {name: llm_from_part(load_llm(name), NATIVE) for name in names("model")}
    met: dict[str, set[tuple[str, str]]] = defaultdict(set)
    own = {name: system for name, system in systems().items() if system.plugin is None}
    for name, system in own.items():
        for model, llm in llms.items():
            for reason, where in not_modelled(llm, system.attends, system.lacks).items():
                if np.any(where):
                    met[reason].add((name, model))
    rows = [
        f"| {reason} | {len({system for system, _ in pairs})} "
        f"| {len({model for _, model in pairs})} | {len(pairs)} |"
        for reason, pairs in sorted(met.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    every = set().union(*met.values())
    head = [
        f"Of {len(own)} systems on {len(llms)} models of the catalogue, {len(own) * len(llms):,} "
        f"pairs, {len(every)} are `not-modelled`, some for several reasons.",
        "",
        "| reason | systems | models | pairs |",
        "|---|---|---|---|",
    ]
    return "\n".join([*head, *rows])


def page(text: str) -> str:
    """The page with the table in its place."""
    return TABLE.sub(lambda found: f"{found[1]}{table()}{found[2]}", text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
