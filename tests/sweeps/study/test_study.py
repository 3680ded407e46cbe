"""A study is blocks of design points, or a sentence on why it is none."""

from __future__ import annotations

import pytest
from support.command_line import printed, refusal

import nearkv
from nearkv.hardware.errors import InputError
from nearkv.sweeps.study.study import Study, blocks


@pytest.mark.slow
def test_paired_axes_go_together() -> None:
    study = Study(
        ("flexgen-ssd", "hilos"),
        ("opt-66b",),
        zipped={"context": "256,1k,8k", "output_tokens": "9,8,7"},
    )
    points = [
        (block.system.name, *(int(axis.values[0]) for axis in block.grid.axes[2:4]))
        for block in blocks(study)
    ]
    lengths = [(256, 9), (1024, 8), (8192, 7)]
    assert points == [(name, *pair) for name in ("flexgen-ssd", "hilos") for pair in lengths]
    words = "compare flexgen-ssd hilos --model opt-66b --zip context=1k,8k --zip output_tokens=9,8"
    text = printed(*words.split())
    assert "context_tok  output_tokens" in text
    for wrong in ({"context": "1k,2k", "output_tokens": "9"}, {"batch": "1,2"}):
        with pytest.raises(InputError, match="--zip"):
            blocks(Study(("hilos",), ("opt-66b",), batch="4", zipped=wrong))


def test_a_knob_without_a_value_is_refused() -> None:
    with pytest.raises(InputError, match="has no value; give one"):
        nearkv.compare("hilos", "opt-66b", knobs={"alpha": []})


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ("8k:4k:x2", "ends below its start"),
        ("8k:4k:+1k", "ends below its start"),
        ("1k:4k:x1", "use a factor above 1"),
        ("1k:4k:+0", "use a step above 0"),
    ],
)
def test_a_range_that_never_ends_says_why(values: str, why: str) -> None:
    assert why in refusal("compare", "hilos", "--model", "opt-66b", "--context", values)


def test_a_choice_named_auto_is_that_choice() -> None:
    """FlexGen's `weights` puts them where they fit, which no solver may replace."""
    (block,) = blocks(Study(("flexgen-dram",), ("opt-66b",), knobs={"weights": "auto"}))
    (axis,) = [axis for axis in block.grid.axes if axis.name == "weights"]
    assert axis.labels[int(axis.values[0])] == "auto"
    assert "weights" not in block.requested
