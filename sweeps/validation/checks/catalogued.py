"""Checks of numbers as the catalogue states them: parts, platforms, knobs and defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.near_storage.scoring import SCORE_BYTES
from nearkv.costmodel.model.registry import find_system
from nearkv.solvers.subbatch.problem import CHUNK_TOKENS
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.study.study_files import load_study
from nearkv.sweeps.study.traces import REQUESTS
from nearkv.sweeps.validation import questions
from nearkv.sweeps.validation.checks import check

CONSTANTS = {
    "score_bytes": SCORE_BYTES,
    "chunk_tokens": CHUNK_TOKENS,
    "requests_of_a_trace": REQUESTS,
}
"""Numbers that papers print and the models hold: bytes of a score block for one token (HillInfer
sec. 5.4), granularity of a prompt's chunks (L3 sec. 5.3), requests drawn of each trace (L3 6.2)."""
STUDIES = Path(__file__).parent.parent.parent / "studies"


@check
def arithmetic(*expressions: str) -> list[Real]:
    """Sums, products and so on of numbers by address, which `questions.arithmetic` reads."""
    return [questions.arithmetic(expression) for expression in expressions]


@check
def constant(name: str) -> float:
    """One of `CONSTANTS`."""
    return float(CONSTANTS[name])


@check
def default_of(key: str, study: str = "") -> float:
    """The default of a workload axis: the tool's, or that of a study of a paper's figure [1]."""
    source = load_study(str(STUDIES / f"{study}.toml")) if study else Study((), ())
    (value,) = getattr(source, key)
    return float(value)


@check
def knob_default(system: str, knob: str) -> Any:
    """The default of a system's knob."""
    return find_system(system).knobs[knob].default
