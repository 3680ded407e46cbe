"""Put a mutant into a copy of the project and see whether a test notices."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from mutants.covering import PYTEST, Covering
from mutants.draw import Mutant

LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "out", ".*_cache", "__pycache__", "*.egg-info")
BUDGET = 60.0
"""Seconds of tests a mutant must survive, as they take without it."""
LONGEST = 240.0
"""A mutant that takes longer is noticed: it does not end."""


def copy(root: Path, place: Path) -> Path:
    """A copy of the project to change."""
    shutil.copytree(root, place, symlinks=True, ignore=LEFT_OUT)
    return place


def survives(mutant: Mutant, place: Path, covering: Covering) -> bool:
    """Whether no test that runs the line of a mutant fails."""
    tests = covering.tests(mutant.file, mutant.line, BUDGET)
    if not tests:
        return True
    file = place / mutant.file
    original = file.read_text()
    names = place / "tests.txt"
    names.write_text("\n".join(tests))
    file.write_text(mutant.source(original))
    try:
        return not _fails(place, names)
    finally:
        file.write_text(original)


def _fails(place: Path, names: Path) -> bool:
    """Whether one of the named tests fails."""
    environment = {**os.environ, "PYTHONPATH": str(place / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [*PYTEST, "-n0", "-x", f"@{names}"]
    try:
        done = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, timeout=LONGEST, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    assert done.returncode in (0, 1, 2, 3, 4), done.stdout.decode()
    return bool(done.returncode)
