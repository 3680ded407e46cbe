"""Imported by the process from which `warm_command` forks: reads what commands need."""

from support.command_line import build_commands_once, succeed

build_commands_once()
succeed("compare", "hilos", "--model", "opt-66b", "--context", "8k")
