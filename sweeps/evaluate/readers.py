"""Which systems read a number of a part: each is asked once, on the platform of its paper."""

from __future__ import annotations

from nearkv.costmodel.model.metrics import COLUMNS, Answer
from nearkv.costmodel.model.models import llm_from_part
from nearkv.costmodel.model.registry import System, systems
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_llm, load_platform
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import recording
from nearkv.solvers.knobs import resolve_knobs

MODELS = ("opt-66b", "llama2-70b")
"""One whose heads have their own K and V, and one whose heads share them."""
WORK = Workload(batch=16.0, prompt=4096.0, output=64.0)


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
    for model in MODELS if roles else ():
        try:
            llm = llm_from_part(load_llm(model), machine["precision"])
            solved = resolve_knobs(system, machine, llm, WORK, dict(system.defaults))
        except InputError:  # the system does not take this model
            continue
        answer = Answer(solved.estimate, machine, system.owns)
        for column in COLUMNS.values():
            column.compute(answer)
    addresses = [address.partition(".") for address in read]
    return {key for role, _, key in addresses if role in roles}
