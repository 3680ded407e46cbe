"""One word, one meaning: names of types and constants across the package."""

from __future__ import annotations

import sizes

SHARED_CONSTANTS = {
    "ALPHA": "the knob alpha, declared by each system that has it",
    "ATTENDS": "the kinds of layer that a mechanism models, beside its LACKS",
    "CACHE": "the knob cache, declared by each system that has it",
    "CHUNK": "the knob chunk, declared by each system that has it",
    "HEADING": "the text above the page that a command writes",
    "INTERVAL": "the knob interval, declared by each system that has it",
    "LACKS": "reasons why a mechanism does not model a kind of layer",
    "PIN": "the knob pin, declared by each system that has it",
    "PLATFORM": "the test bed of the paper whose claims a file checks",
    "SHOWN": "the columns that a command shows",
    "WRITEBACK": "the knob writeback, declared by each system that has it",
    "_ROUNDING": "the relative error of floats in this computation, which depends on its length",
}
"""Constants that have a value in each of several files, and the reason."""


def test_few_type_names_mean_several_things() -> None:
    assert len(sizes.ambiguous_types()) <= 12


def test_few_constants_have_several_values() -> None:
    assert len(sizes.ambiguous_constants()) <= 20
    assert len(SHARED_CONSTANTS) <= 20
