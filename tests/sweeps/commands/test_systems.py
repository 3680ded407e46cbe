"""`nearkv systems new` writes a module that can be imported."""

from __future__ import annotations

import pytest
from support.command_line import refusal


@pytest.mark.parametrize("name", ["class", "json"])
def test_a_system_is_not_named_by_a_word_of_python(name: str) -> None:
    assert "is a word of Python" in refusal("systems", "new", name)
