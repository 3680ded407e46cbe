"""Studies evaluated into tables, point by point and piece by piece."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate.columns import TIME_PREFIX, table
from nearkv.sweeps.evaluate.compare import compare_systems
from nearkv.sweeps.study import grid
from nearkv.sweeps.study.axes import field_of
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.study.study_files import load_study

STUDY = Study(
    ("flexgen-ssd", "hilos"),
    ("opt-30b", "opt-66b"),
    batch="1,8",
    context="8k:32k:x2",
    knobs={"devices": "4,8"},
)


def test_a_table_has_one_row_per_point_in_order() -> None:
    rows = table(STUDY)
    assert len(rows["system"]) == 2 * 2 * 3 + 2 * 2 * 3 * 2
    assert rows["system"].tolist() == ["flexgen-ssd"] * 12 + ["hilos"] * 24
    assert rows["devices"][12:16].tolist() == [4, 8, 4, 8]
    assert np.isnan(rows["devices"][:12]).all()


@pytest.mark.slow
def test_rows_do_not_depend_on_the_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = table(STUDY)
    monkeypatch.setattr(grid, "POINTS_AT_ONCE", 3)
    pieces = table(STUDY)
    assert pieces.keys() == whole.keys()
    for name, column in whole.items():
        np.testing.assert_array_equal(pieces[name], column, err_msg=name)


def test_the_bottleneck_is_the_resource_most_to_blame() -> None:
    study = Study(("hilos", "flexgen-ssd"), ("opt-66b",), context="8k,64k")
    columns = compare_systems(study, extra=(TIME_PREFIX,))
    names = [name for name in columns if name.startswith(TIME_PREFIX)]
    seconds = np.stack([np.nan_to_num(columns[name].astype(float)) for name in names])
    np.testing.assert_allclose(seconds.sum(axis=0), columns["total_s"].astype(float))
    most = [names[place].removeprefix(TIME_PREFIX) for place in np.argmax(seconds, axis=0)]
    assert columns["bottleneck"].tolist() == most
    share = columns["bottleneck_share"].astype(float)
    np.testing.assert_allclose(share, seconds.max(axis=0) / seconds.sum(axis=0))
    assert not any(name.startswith((TIME_PREFIX, "bottleneck")) for name in table(study))


def test_the_bottleneck_of_a_step_leaves_prompts_out() -> None:
    """A prompt of 64k is computed for longer than its 64 answers are read from HBM."""
    study = Study(("gpu",), ("llama3.1-8b",), batch="1", context="64k", platforms=("common",))
    columns = compare_systems(study)
    assert columns["bottleneck"].tolist() == ["gpu.tensor"]
    assert columns["step_bottleneck"].tolist() == ["gpu.hbm"]


def test_infeasible_points_have_no_numbers_but_a_reason() -> None:
    """One sequence: 618.8 GB of cache, 2 x 618.8 / 96 of a layer in 32 bits, 8.6 of relays.

    DRAM of 512 GiB has 97.2 % for them.
    """
    rows = table(Study(("flexgen-dram",), ("opt-175b",), context="128k"))
    assert rows["status"][0] == "infeasible"
    assert rows["short_of"][0] == "host"
    assert rows["short_gb"][0] == pytest.approx(105.9, abs=0.1)
    assert np.isnan(rows["step_ms"][0])
    assert np.isnan(rows["energy_j_tok"][0])


def test_knob_cases_stand_side_by_side() -> None:
    rows = table(
        Study(
            ("hilos",),
            ("opt-66b",),
            knobs={"alpha": "0,0.5,paper,auto", "writeback": "naive,delayed"},
        )
    )
    assert len(rows["alpha"]) == 8
    assert set(rows["writeback"]) == {"naive", "delayed"}
    auto = rows["step_ms"][rows["writeback"] == "delayed"]
    assert auto[-1] == auto.min()


def hilos(**axes: Any) -> Study:
    return Study(("hilos",), ("opt-66b",), **axes)


@pytest.mark.parametrize(
    ("study", "problem"),
    [
        (Study(("hilo",), ("opt-66b",)), "did you mean 'hilos'"),
        (Study(("hilos",), ("opt-65b",)), "unknown model 'opt-65b'; valid are, .*opt-66b"),
        (hilos(platforms=("hilos",)), "unknown platform"),
        (hilos(knobs={"alfa": "1"}), "did you mean 'alpha'"),
        (Study(("gpu",), ("opt-66b",), knobs={"alpha": "1"}), "unknown knob 'alpha'; .*tp"),
        (Study(("hbm-8",), ("opt-66b",), knobs={"alpha": "1"}), "valid are: chunk"),
        (hilos(knobs={"alpha": "1.5"}), "from 0 to 1"),
        (hilos(knobs={"interval": "2.5"}), "whole number"),
        (hilos(knobs={"interval": "0"}), "from 1 to 256"),
        (hilos(knobs={"writeback": "eager"}), "unknown value of writeback"),
        (hilos(knobs={"writeback": "7"}), "writeback"),
        (hilos(sets={"csd.cuont": "4"}), "did you mean 'csd.count'"),
        (hilos(sets={"cds.count": "4"}), "did you mean 'csd'"),
        (hilos(sets={"count": "4"}), "ROLE.KEY"),
        (hilos(sets={"csd.count": "2.5"}), "whole number"),
        (hilos(sets={"csd.count": "0"}), "more than zero"),
        (hilos(sets={"gpu.flops": "3 GB"}), "needs 'FLOP/s'"),
        (hilos(sets={"csd.count": "4"}, knobs={"devices": "4"}), "say the same thing"),
        (Study((), ("opt-66b",)), "no system is named"),
        (Study(("hilos",), ()), "no --model is named"),
        (Study(("hilos", "hilos"), ("opt-66b",)), "names 'hilos' twice"),
        (Study(("gpu",), ("opt-66b",), platforms=("zero-a6000",)), "lacks .*: .*derate.link"),
        (hilos(platforms=("workstation-5090",)), "csd"),
        (hilos(batch="1:16k:+1", context="1:16k:+1"), "too many for one table"),
    ],
)
@pytest.mark.slow
def test_a_study_that_cannot_be_evaluated_says_why(study: Study, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        table(study)
    assert "\n" not in str(caught.value)


def test_a_study_file_is_what_its_axes_say(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(
        'title = "t"\nsystems = ["flexgen-ssd", "hilos"]\n'
        'model = ["opt-30b", "opt-66b"]\nbatch = [1, 8]\n'
        'context = "8k:32k:x2"\n[knob]\ndevices = [4, 8]\n'
    )
    assert load_study(str(file)) == STUDY
    file.write_text('systems = ["hilos"]\n')
    with pytest.raises(InputError, match="needs systems"):
        load_study(str(file))
    file.write_text('system = ["hilos"]\n')
    with pytest.raises(InputError, match="did you mean 'systems'"):
        load_study(str(file))


def test_paired_axes_are_fields_of_a_study() -> None:
    axes = ("batch", "model", "trace", "csd.count", "alpha", "gpu")
    fields = ["batch", "models", "traces", "sets", "knobs", "parts"]
    assert [field_of(axis) for axis in axes] == fields


def test_parts_are_paired_each_with_its_price() -> None:
    """A host of 20,000 USD and eight GPUs of either price."""
    pairs = {"gpu": "h200-sxm,rtx-pro-6000", "gpu.price": "32000USD,8000USD"}
    study = Study(("gpu",), ("gpt-oss-120b",), sets={"host.price": "20000USD"}, zipped=pairs)
    rows = table(study)
    assert rows["gpu.part"].tolist() == ["h200-sxm", "rtx-pro-6000"]
    assert rows["cost_usd"].tolist() == [276_000, 84_000]
