"""Every column of a system's table is one that `nearkv columns` defines, or one of its knobs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.systems import SYSTEMS
from typer.testing import CliRunner

from nearkv.cli import app
from nearkv.costmodel.model.registry import System
from nearkv.sweeps.evaluate.catalogue import column_rows, system_rows
from nearkv.sweeps.evaluate.columns import columns, table
from nearkv.sweeps.evaluate.slo import higher_is_better
from nearkv.sweeps.study.study import Study, blocks


def answered(study: Study) -> set[str]:
    """Names of the columns of one point."""
    (block,) = blocks(study)
    return set(columns(block, block.grid.whole))


def test_every_column_of_a_system_is_defined(system: System) -> None:
    lengths = Study((system.name,), ("opt-66b",))
    defined = {row["column"] for row in column_rows()}
    knobs = {name for name in answered(lengths) if name.startswith(tuple(system.knobs))}
    assert answered(lengths) - knobs <= defined


def test_every_column_of_a_simulated_queue_is_defined() -> None:
    fluid = Study(("l3",), ("opt-66b",), traces=("longbench",))
    defined = {row["column"] for row in column_rows()}
    for study in (fluid, replace(fluid, method="simulate")):
        assert answered(study) - set(SYSTEMS["l3"].knobs) <= defined


def test_every_column_of_numbers_states_which_value_is_better(system: System) -> None:
    """And no column of text does, as it has no order."""
    (block,) = blocks(Study((system.name,), ("opt-66b",)))
    better = {row["column"]: row["better"] for row in column_rows()}
    for name, values in columns(block, block.grid.whole).items():
        if name in better:
            assert (better[name] != "") == (values.dtype.kind in "fiu"), name


@pytest.mark.parametrize(
    "name",
    [
        "expert_hit_share",
        "faster_share",
        "goodput_req_s",
        "users_served",
        "endurance_requests",
        "speedup_p05",
        "throughput_tok_s_p97.5",
    ],
)
def test_more_is_better_of_shares_rates_and_lives(name: str) -> None:
    assert higher_is_better(name)


@pytest.mark.parametrize("name", ["tpot_ms", "usd_mtok", "ttft_p99_s", "preempted", "alpha"])
def test_less_is_better_of_times_and_costs(name: str) -> None:
    assert not higher_is_better(name)


def test_a_column_of_one_family_is_explained() -> None:
    shown = CliRunner().invoke(app, ["columns", "show", "kv_drive_gb"])
    assert shown.exit_code == 0
    assert "on the drive" in shown.output


def test_systems_that_run_on_a_platform_are_those_that_compare_answers() -> None:
    """A workstation has one GPU, DRAM and a drive: no drives that compute, no ranks."""
    rows = {row["system"]: row for row in system_rows("workstation-5090")}
    assert rows["flexgen-dram"]["runs"] == "yes"
    assert rows["hilos"]["runs"] == "no"
    assert rows["hilos"]["lacks"].startswith("csd")
    study = Study(tuple(rows), ("opt-30b",), context="1k", platforms=("workstation-5090",))
    compared = table(study)
    for name, reason in zip(compared["system"], compared["reason"], strict=True):
        assert ("lacks what" in reason) == (rows[name]["runs"] == "no"), name
