"""One family of errors, and warnings that reach the caller."""

from __future__ import annotations

import pytest

from nearkv.costmodel.model.registry import find_system
from nearkv.hardware.errors import InputError, NearkvError, NearkvWarning, warn


def test_bad_input_is_one_of_our_errors_and_a_warning_reaches_the_caller() -> None:
    with pytest.raises(NearkvError) as problem:
        find_system("hylos")
    assert isinstance(problem.value, InputError)
    with pytest.warns(NearkvWarning, match="12 of 16"):
        warn("12 of 16 sequences run at once")
