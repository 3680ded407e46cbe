"""A machine as a platform file that `--platform` reads."""

from __future__ import annotations

from nearkv.hardware.part import Part
from nearkv.hardware.platform import Platform
from nearkv.hardware.schema import PARTLESS
from nearkv.hardware.server import Server


def machine_file(machine: Platform, server: Server) -> str:
    """The TOML of a machine: what differs from the platform that its server is of.

    Args:
        machine: a build of the server.
        server: that it is of.
    """
    base = server.platform
    lines = [f'title = "{machine.name}"', f'base = "{base.name}"']
    for role, part in machine.roles.items():
        before = base.roles.get(role)
        if before is not None and before.numbers == part.numbers and role != "ownership":
            continue
        lines += ["", f"[{role}]"]
        if role not in PARTLESS:
            lines.append(f'part = "{part.name}"')
        lines += _numbers(part)
    return "\n".join(lines) + "\n"


def _numbers(part: Part) -> list[str]:
    """Every number of a part, in the unit of its source."""
    return [
        f'{key} = "{number.value!r} {number.unit}"' for key, number in part.numbers.items()
    ]
