"""One word, one meaning: names of types and constants across the package."""

from __future__ import annotations

import sizes

SHARED_CONSTANTS = {
    "ALPHA": "the knob alpha, declared by each system that has it",
    "ATTENDS": "the kinds of layer that a mechanism models, beside its LACKS",
    "BATCHES": "the knob batches, declared by each system that has it",
    "CACHE": "the knob cache, declared by each system that has it",
    "CHUNK": "the knob chunk, declared by each system that has it",
    "DRIVE_WEIGHTS": "the knob of weights on drives, declared by each system that has it",
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


def test_a_type_name_means_one_thing() -> None:
    assert not sizes.ambiguous_types()


def test_a_constant_has_one_value_but_for_these() -> None:
    """At most 20, and none of them for want of a better name."""
    names = sizes.ambiguous_constants()
    assert set(names) <= set(SHARED_CONSTANTS), names
    assert len(SHARED_CONSTANTS) <= 20


def test_each_exception_is_one() -> None:
    assert set(SHARED_CONSTANTS) <= set(sizes.ambiguous_constants())
