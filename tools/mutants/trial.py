"""Put a mutant into a copy of the project and see whether a test notices."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from mutants.covering import Covering
from mutants.draw import Mutant

LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "out", ".*_cache", "__pycache__", "*.egg-info")
BUDGET = 60.0
"""Seconds of tests a mutant must survive, as they take without it."""
LONGEST = 300.0
"""A mutant that takes longer is noticed: it does not end."""


class Place:
    """A copy of the project to change, and a warm process that runs its tests."""

    def __init__(self, root: Path, folder: Path) -> None:
        """Copy the project under `root` to a folder that does not exist."""
        self.folder = folder
        shutil.copytree(root, folder, symlinks=True, ignore=LEFT_OUT)
        compiled = {"PYTHONPYCACHEPREFIX": str(folder / "compiled")}
        paths = os.pathsep.join(str(folder / name) for name in ("src", "tests", "tools"))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mutants.serve"],
            cwd=folder,
            env={**os.environ, **compiled, "PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._moments = count(1_000_000_000)

    def close(self) -> None:
        """End the process."""
        self.process.communicate()

    def noticed_by(self, mutant: Mutant, covering: Covering) -> str:
        """The test that fails first of those that run the line of a mutant; empty if none does."""
        tests = covering.tests(mutant.file, mutant.line, BUDGET)
        file = self.folder / mutant.file
        original = file.read_text()
        self._write(file, mutant.source(original))
        try:
            return self.failure(tests)
        finally:
            self._write(file, original)

    def failure(self, tests: Iterable[str]) -> str:
        """The first of these tests that fails; empty if none does."""
        names = self.folder / "tests.txt"
        names.write_text("\n".join(tests))
        if not names.read_text():
            return ""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{names} {LONGEST}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def _write(self, file: Path, source: str) -> None:
        """Write a file with a time of its own: compiled modules are known by it."""
        file.write_text(source)
        moment = next(self._moments)
        os.utime(file, (moment, moment))
