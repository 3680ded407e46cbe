"""What a table tells of its question."""

from __future__ import annotations

from nearkv.sweeps.evaluate.provenance import provenance
from nearkv.sweeps.study.study import Study, blocks


def test_provenance_names_the_choices_that_were_made() -> None:
    study = Study(("hilos",), ("opt-66b",), knobs={"writeback": "naive"})
    axes = provenance(blocks(study))["axes"]
    assert axes["writeback"] == ["naive"]
    assert axes["model"] == ["opt-66b"]
