"""Studies from files: what is refused, and how a sentence names the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearkv.hardware.errors import InputError
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.study.study_files import either

STUDY = 'systems = ["hilos"]\nmodel = ["opt-66b"]\n'


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ('context = "abc"', "context: 'abc' must be a whole number"),
        ("batch = [4, -3]", "batch: -3 must be"),
        ('[set]\n"csd.count" = "many"', "set csd.count: 'many' is not a number"),
        ("[knob]\n# a comment\nalpha = 2", "knob alpha: '2' does not fit"),
        ('[set]\n"csd.count" = []', "set csd.count has no value; give one"),
        ('seed = "x"', "seed 'x': give a whole number"),
        ('platform = "hilos-z"', "platform: unknown platform 'hilos-z'"),
        ('[part]\ngpu = "b2000"', "part: unknown part 'b2000'"),
    ],
)
def test_a_study_that_cannot_be_evaluated_names_the_key(
    tmp_path: Path, lines: str, sentence: str
) -> None:
    path = tmp_path / "study.toml"
    path.write_text(STUDY + lines)
    with pytest.raises(InputError) as refusal:
        either(str(path), Study((), ()))
    assert str(refusal.value).startswith(f"{path}: {sentence}")
