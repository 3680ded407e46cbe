"""One word, one meaning: names of types and constants across the package."""

from __future__ import annotations

import sizes

SHARED_CONSTANTS = {
    "ALPHA": "the knob alpha, declared by each system that has it",
    "ATTENDS": "the kinds of layer that a mechanism models, beside its LACKS",
    "CACHE": "the knob cache, declared by each system that has it",
    "CHUNK": "the knob chunk, declared by each system that has it",
    "INTERVAL": "the knob interval, declared by each system that has it",
    "LACKS": "reasons why a mechanism does not model a kind of layer",
    "PIN": "the knob pin, declared by each system that has it",
    "PLATFORM": "the test bed of the paper whose claims a file checks",
    "_ROUNDING": "the relative error of floats in this computation, which depends on its length",
}
"""Constants that have a value in each of several files, and the reason."""


def test_a_type_name_means_one_thing() -> None:
    assert not sizes.ambiguous_types()


def test_a_constant_has_one_value_but_for_these() -> None:
    unexplained = {
        name: files
        for name, files in sizes.ambiguous_constants().items()
        if name not in SHARED_CONSTANTS
    }
    assert not unexplained
    assert len(SHARED_CONSTANTS) <= 20


def test_few_modules_serve_a_neighbour_alone() -> None:
    """A module that only its neighbour imports belongs in the neighbour, unless it is large."""
    assert len(sizes.neighbours_only()) <= 8
