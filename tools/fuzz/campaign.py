"""Many command lines from one seed, and what was wrong with them."""

from __future__ import annotations

import os
import shlex
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from fuzz.judge import PRINTED, Outcome, run
from fuzz.lines import (
    LINES,
    REFUSED,
    extreme,
    mutated,
    with_each_addition,
    without_each_option,
)
from fuzz.words import write_files

ONLY_HOW = {"--format", "--jobs", "--time-limit", "--platform", "--budget", "--server"}
"""Options that may leave an answer as it is: they say how it comes about, name what is the default,
or bound a search whose best machine lies within."""


@dataclass
class Report:
    """Findings of a campaign.

    Attributes:
        lines: how many were run.
        codes: how many ended with each exit code.
        faults: what was wrong -> a line that shows it.
    """

    lines: int = 0
    codes: dict[int | None, int] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)

    def add(self, outcome: Outcome, more: list[str]) -> None:
        self.lines += 1
        self.codes[outcome.code] = self.codes.get(outcome.code, 0) + 1
        for fault in outcome.faults + more:
            self.faults.setdefault(fault, shlex.join(outcome.words)[:400])

    def text(self) -> str:
        rows = [f"{self.lines:,} command lines, by exit code: {self.codes}"]
        rows += [f"FAULT {fault}\n      nearkv {line}" for fault, line in self.faults.items()]
        return "\n".join(rows)


def campaign(seed: int, seconds: float, most: int) -> Report:
    """Run command lines for so long, or so many."""
    random, report = Random(seed), Report()
    end = time.monotonic() + seconds
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        hostile = Path(folder) / "hostile"
        hostile.mkdir()
        files = write_files(hostile, random)
        os.chdir(folder)
        try:
            for line in LINES:
                if time.monotonic() < end:
                    remove_each(run(line.split()), report)
            while time.monotonic() < end and report.lines < most:
                report.add(run(attack(random, files)), [])
        finally:
            os.chdir(before)
    return report


def attack(random: Random, files: list[str]) -> list[str]:
    """A hostile or, as often, an extreme command line."""
    if random.random() < 0.5:
        return extreme(random.choice(LINES).split(), random)
    return mutated(random.choice(LINES + REFUSED).split(), random, files)


def remove_each(whole: Outcome, report: Report) -> None:
    """Add the faults of a line that must have an answer, and of it without or with each option."""
    report.add(whole, [] if whole.code in PRINTED else [f"no answer: {whole.err.strip()[:200]}"])
    for option, outcome in (*removals(whole), *additions(whole)):
        unread = f"{' '.join(whole.words[:2])}: {option} was not read"
        report.add(outcome, [unread] if outcome.same_as(whole) else [])


SAME = {
    ("solve subbatch", "--set gpu.flops=1TFLOP/s"),
}
"""Additions that may leave an answer as it is: other numbers bind."""


def additions(whole: Outcome) -> Iterator[tuple[str, Outcome]]:
    """Every option that a line with an answer has not, and what the line does with it."""
    command = " ".join(whole.words[:2])
    for addition, longer in with_each_addition(whole.words):
        if (command, addition) not in SAME:
            yield addition, run(longer)


def removals(whole: Outcome) -> Iterator[tuple[str, Outcome]]:
    """Every option of a line that has an answer, and what the line does without it.

    An answer that stays the same says that the option was not read.
    """
    for option, shorter in without_each_option(whole.words):
        if option not in ONLY_HOW:
            yield option, run(shorter)
