"""Which systems read a number of a part: each is asked once, on the platform of its paper."""

from __future__ import annotations

from typing import Any

from nearkv.costmodel.metrics import Answer, cost, energy
from nearkv.costmodel.models import llm_from_part
from nearkv.costmodel.registry import System, systems
from nearkv.costmodel.workload import Workload
from nearkv.hardware.catalog import load_llm, load_platform
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine
from nearkv.hardware.platform import Platform
from nearkv.solvers.knobs import resolve_knobs

MODELS = ("opt-66b", "llama2-70b")
"""One whose heads have their own K and V, and one whose heads share them."""
WORK = Workload(batch=16.0, prompt=4096.0, output=64.0)


class Recorded(dict[str, Any]):
    """Numbers of a role that remember which of them were read."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or another where there is none."""
        self.read.add(key)
        return super().get(key, default)


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
    machine = platform.machine()
    recorded = _record(machine, platform, kind)
    for model in MODELS if recorded else ():
        try:
            llm = llm_from_part(load_llm(model), machine["precision"])
            solved = resolve_knobs(system, machine, llm, WORK, dict(system.defaults))
        except InputError:  # the system does not take this model
            continue
        answer = Answer(solved.estimate, machine, system.owns)
        energy(answer)
        cost(answer)
    keys: set[str] = set()
    return keys.union(*(values.read for values in recorded))


def _record(machine: Machine, platform: Platform, kind: str) -> list[Recorded]:
    """Let the roles of a machine that hold this kind of part record what is read."""
    recorded = []
    for name, part in platform.roles.items():
        if part.kind == kind:
            values = Recorded(machine[name].values)
            machine[name].values = values
            recorded.append(values)
    return recorded
