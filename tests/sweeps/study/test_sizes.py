"""Numbers and names as people give them."""

from __future__ import annotations

import pytest

from nearkv.hardware.errors import InputError
from nearkv.sweeps.study.sizes import choices, pairs, size, size_or_none, values

BAD_SIZES = """
-1 0 nan 1e400 1.5 4,,8 k 64q 8:64 8:64:2 8:64:x1 8:64:+0 64:8:x2 1:1M:+1e-9 1:8M:+1 8:64:x-2
1:1e15:+1 4,4 4:8:+1,8 1k,1024
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("64k", [65536]),
        ("1M", [1048576]),
        ("4,8,16", [4, 8, 16]),
        ("8k:64k:x2", [8192, 16384, 32768, 65536]),
        ("1:7:+2", [1, 3, 5, 7]),
        ("1:8:+2", [1, 3, 5, 7]),
        ("1:1:+1", [1]),
        ("2,8:16:x2", [2, 8, 16]),
    ],
)
def test_sizes_and_ranges(text: str, expected: list[float]) -> None:
    assert values(text, size, "--context") == expected


@pytest.mark.parametrize("text", ["", *BAD_SIZES.split()])
def test_bad_sizes_are_one_sentence(text: str) -> None:
    with pytest.raises(InputError, match="--batch") as caught:
        values(text, size, "--batch")
    assert "\n" not in str(caught.value)


def test_a_prompt_may_have_no_token() -> None:
    assert values("0,64k", size_or_none, "--context") == [0, 65536]
    with pytest.raises(InputError, match="0 or more"):
        values("-1", size_or_none, "--context")


def test_options_are_name_and_value() -> None:
    assert pairs(["csd.count=4,8"], "--set") == {"csd.count": "4,8"}
    for wrong in (["csd.count"], ["=4"], ["csd.count="], ["a=1", "a=2"]):
        with pytest.raises(InputError, match="--set"):
            pairs(wrong, "--set")


def test_a_value_of_a_knob_may_be_written_as_a_context_is() -> None:
    assert [value.si for value in choices("4k,64k,8192", "--knob chunk")] == [4096, 65536, 8192]  # type: ignore[union-attr]
    with pytest.raises(InputError, match="zero or more"):
        choices("-4k", "--knob chunk")
