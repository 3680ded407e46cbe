"""Imported by the process from which `warm_command` forks: reads what commands need."""

import distributed  # noqa: F401
from support import small_parts  # noqa: F401
from support.command_line import build_commands_once, succeed

from nearkv.costmodel.model.registry import systems

build_commands_once()
systems()
succeed("compare", "hilos", "accelerate", "--model", "llama3.1-8b", "--context", "8k")
