"""Checks of numbers as the catalogue states them: parts, platforms, knobs and defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.registry import find_system
from nearkv.sweeps.study.sizes import size
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.study.study_files import load_study
from nearkv.sweeps.validation import questions
from nearkv.sweeps.validation.checks import check

STUDIES = Path(__file__).parent.parent.parent / "studies"


@check
def arithmetic(*expressions: str) -> list[Real]:
    """Sums, products and so on of numbers by address, which `questions.arithmetic` reads."""
    return [questions.arithmetic(expression) for expression in expressions]


@check
def default_of(key: str, study: str = "") -> float:
    """The default of a workload axis: the tool's, or that of a study of a paper's figure [1]."""
    source = load_study(str(STUDIES / f"{study}.toml")) if study else Study((), ())
    return size(getattr(source, key), key)


@check
def knob_default(system: str, knob: str) -> Any:
    """The default of a system's knob."""
    return find_system(system).knobs[knob].default
