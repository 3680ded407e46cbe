"""The draw of mutants, and the list of those that no test can notice."""

from __future__ import annotations

from collections import Counter

from mutants.draw import Equivalent, _mutants, equivalents, sample
from sizes import ROOT


def test_what_no_test_can_notice_is_a_line_that_exists() -> None:
    for equivalent in equivalents():
        assert equivalent.reason
        for place in equivalent.lines:
            file, _, line = place.partition(": ")
            assert line in [text.strip() for text in (ROOT / file).read_text().splitlines()]


def test_a_draw_depends_on_its_seed_alone_and_every_mutant_is_python() -> None:
    under = "costmodel/model/estimate.py"
    drawn = sample(ROOT, 3, 1, under)
    assert drawn == sample(ROOT, 3, 1, under)
    assert drawn != sample(ROOT, 3, 2, under)
    original = (ROOT / under).read_text()
    for mutant in drawn:
        changed = mutant.source(original)
        compile(changed, mutant.file, "exec")
        lines = zip(original.splitlines(), changed.splitlines(), strict=True)
        differing = [number for number, (old, new) in enumerate(lines, 1) if old != new]
        assert differing == [mutant.line]


def test_no_decorator_is_mutated() -> None:
    """A frozen class that is not answers alike."""
    file = ROOT / "costmodel" / "model" / "workload.py"
    operators = Counter(mutant.operator for mutant in _mutants(ROOT, file))
    assert operators["NumberReplacer"] > 0
    assert operators["ReplaceTrueWithFalse"] == 0


def test_one_of_the_changes_of_a_line_may_be_listed_alone() -> None:
    file = ROOT / "solvers" / "mapping" / "exact.py"
    line = "half = 2 ** (len(levels) - 1)"
    becomes = ["half=2**(len(levels)+1)"]
    twice = Equivalent([f"solvers/mapping/exact.py: {line}"], "", "", becomes)
    mutants = [mutant for mutant in _mutants(ROOT, file) if mutant.text == line]
    listed = [mutant.operator for mutant in mutants if twice.covers(mutant, ROOT)]
    assert len(mutants) == 3
    assert listed == ["ReplaceBinaryOperator_Sub_Add"]
