"""One family of errors, and warnings that reach the caller."""

from __future__ import annotations

import pytest

from nearkv.costmodel.model.registry import find_system
from nearkv.hardware.errors import (
    LISTED,
    InputError,
    NearkvError,
    NearkvWarning,
    a_few,
    nearest,
    unknown,
    warn,
)


def test_bad_input_is_one_of_our_errors_and_a_warning_reaches_the_caller() -> None:
    with pytest.raises(NearkvError) as problem:
        find_system("hylos")
    assert isinstance(problem.value, InputError)
    with pytest.warns(NearkvWarning, match="12 of 16"):
        warn("12 of 16 sequences run at once")


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        # all its words stand in it, where b200 is but the end of gb200
        ("b200", ["gb200", "b200-sxm", "b300-sxm"], "b200-sxm"),
        ("h200", ["gh200", "h200-sxm", "hilos-h200"], "h200-sxm"),
        ("gpu.price", ["gpu.count", "gpu.price_usd", "ssd.price_usd"], "gpu.price_usd"),
        ("llama3-70b", ["llama2-70b", "llama3.1-70b", "llama3.3-70b"], "llama3.1-70b"),
        ("b", ["qwen-7b", "opt-66b"], ""),  # a word of one character says too little
        # typing errors, which seldom change the initial
        ("h201-sxm", ["gh200", "h200-sxm"], "h200-sxm"),
        ("Estimte", ["estimate", "validate"], "estimate"),
        ("ilos", ["hilos", "inf2"], "hilos"),
        ("list", ["validate", "systems", "plot"], ""),
        ("lmcache", ["full-cache"], ""),
        ("Gbps", ["GB/s", "Gb/s"], "Gb/s"),
        ("", ["hilos"], ""),
        ("hilos", [], ""),
    ],
)
def test_the_name_that_is_meant_is_near(name: str, known: list[str], meant: str) -> None:
    assert nearest(name, known) == meant


def test_of_many_names_an_error_lists_those_most_alike() -> None:
    names = [f"model-{place}" for place in range(90)]
    sentence = str(unknown("model", "zzz-89", names))
    assert "valid are, the most alike first: model-89, " in sentence
    assert sentence.endswith(", ...")
    assert sentence.count("model-") == LISTED


def test_a_few_names_of_many_are_those_most_alike_or_the_first() -> None:
    names = [f"role-{place}" for place in range(20)]
    assert a_few(names[:LISTED]) == ", ".join(names[:LISTED])
    assert a_few(names) == ", ".join([*names[:LISTED], "..."])
    assert a_few(names, like="role-17").startswith("role-17, ")
    assert a_few([]) == "none"
