"""Which tests run a line, those that are quick and run few others first."""

from __future__ import annotations

import subprocess
import sys
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

from coverage import CoverageData

MEASURED = ("contracts", "costmodel", "hardware", "solvers", "sweeps/evaluate", "sweeps/explore")
"""Folders of tests that give reasons for formulas and solvers; tests of commands and files, and
those that compare with what was stored, would notice a mutant for no reason of their own."""
STARTING = "not browser and not processes"
"""Tests that start programs measure no lines here and take long."""
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
SETTINGS = """[run]
data_file = {data}
source_pkgs = nearkv.costmodel, nearkv.solvers
"""
SHORTEST = 0.01
"""Seconds that any test takes to be set up."""
STAGES = (1.0, 5.0, 20.0)
"""Seconds of tests after which the next stage begins."""

Lines = dict[str, dict[int, list[str]]]


class Covering:
    """Tests by the lines they run."""

    def __init__(self, root: Path, folder: Path, jobs: int) -> None:
        """What the tests under `root` run; measures of each folder what `folder` lacks."""
        self.seconds: dict[str, float] = {}
        self.lines: Lines = defaultdict(lambda: defaultdict(list))
        for tests in MEASURED:
            data = folder / f"{tests.replace('/', '-')}.lines"
            times = data.with_suffix(".xml")
            if not times.exists():
                _measure(root, tests, data, jobs)
            self.seconds |= _seconds(times)
            self._add_lines(root, data)
        by_line = (tests for lines in self.lines.values() for tests in lines.values())
        self.breadth = Counter(test for tests in by_line for test in tests)

    def _add_lines(self, root: Path, data: Path) -> None:
        """Add the tests of every line of every file that were measured."""
        measured = CoverageData(str(data))
        measured.read()
        for file in measured.measured_files():
            name = str(Path(file).resolve().relative_to(root.resolve()))
            for line, contexts in measured.contexts_by_lineno(file).items():
                tests = [context.partition("|")[0] for context in contexts if context]
                if tests:
                    self.lines[name][line] += tests

    def tests(self, file: str, line: int, budget: float) -> list[str]:
        """Tests that run a line of a file, the most telling first, `budget` seconds in all.

        A line that runs when its module is imported is covered by every test of the module.
        """
        by_line = self.lines.get(file, {})
        tests: Iterable[str] = by_line.get(line) or {
            test for tests in by_line.values() for test in tests
        }
        chosen: list[str] = []
        for test in self._by_turns(tests):
            budget -= self.seconds.get(test, 0.0)
            if budget < 0:
                break
            chosen.append(test)
        return self._by_stages(chosen)

    def _by_turns(self, tests: Iterable[str]) -> list[str]:
        """The first case of every test, then the next case of every test, and so on.

        What is quick and runs few lines comes first: it was written for those it runs.
        """
        ordered = sorted(tests, key=lambda test: (self._effort(test), test))
        cases: Counter[str] = Counter()
        turns: dict[str, int] = {}
        for test in ordered:
            name = test.partition("[")[0]
            turns[test] = cases[name]
            cases[name] += 1
        return sorted(ordered, key=lambda test: turns[test])

    def _effort(self, test: str) -> float:
        return (self.seconds.get(test, 0.0) + SHORTEST) * self.breadth[test]

    def _by_stages(self, tests: list[str]) -> list[str]:
        """Tests of a module together within a few seconds' worth: they share what it sets up."""
        spent, stages = 0.0, dict[str, int]()
        for test in tests:
            spent += self.seconds.get(test, 0.0)
            stages[test] = bisect_left(STAGES, spent)
        return sorted(tests, key=lambda test: (stages[test], test.partition("::")[0]))


def _measure(root: Path, tests: str, data: Path, jobs: int) -> None:
    command = [*PYTEST, "-n", str(jobs), "-m", STARTING]
    times = data.with_suffix(".xml")
    command += ["--cov", "--cov-context=test", "--cov-report=", f"--junitxml={times}"]
    settings = data.with_suffix(".ini")
    settings.write_text(SETTINGS.format(data=data))
    command += [f"--cov-config={settings}", f"tests/{tests}"]
    subprocess.run(command, cwd=root, check=True)


def _seconds(times: Path) -> dict[str, float]:
    """How long each test takes."""
    cases = ElementTree.parse(times).iter("testcase")
    return {
        f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name']}": float(
            case.attrib["time"]
        )
        for case in cases
    }
