"""The best machine of each system, against the rows of `compare` of every machine there is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.designs import (
    SERVERS,
    SYSTEMS,
    Asked,
    best_by_system,
    every_row,
    random_question,
    with_limits,
)

import nearkv
from nearkv.costmodel.model.metrics import COLUMNS
from nearkv.hardware.errors import InputError
from nearkv.hardware.server import load_server
from nearkv.sweeps.evaluate.slo import higher_is_better
from nearkv.sweeps.explore.design.space import Builds, Machines, options_of

pytestmark = pytest.mark.filterwarnings("ignore::nearkv.hardware.errors.NearkvWarning")
FEW = (*range(8), 13)
"""Of 13 a desktop does not state the KV budget of its host, and a server beside it states one."""
MANY = sorted({*range(300)} - {*FEW})


def answered(asked: Asked, **limits: Any) -> dict[str, float]:
    """The best value of each system as `design` finds it; nothing where no machine meets all."""
    try:
        table = asked.design(**limits)
    except InputError:
        return {}
    return {row["system"]: row[asked.objective] for row in table.to_dict("records")}


def check_question(seed: int, folder: Path) -> None:
    """One random question against every row, then what must not change its answer."""
    asked = random_question(seed, folder)
    rows = every_row(asked)
    limits, within = with_limits(asked, rows) if len(rows) else ({}, rows)
    expected = best_by_system(within, asked.objective) if len(within) else {}
    if not len(rows):
        with pytest.raises(InputError, match="no machine"):
            asked.design(**limits)
        return
    found = answered(asked, **limits)
    assert found == pytest.approx(expected, rel=1e-9)
    if not found:
        return
    check_alone(asked, limits, found)
    again = Asked(**{**vars(asked), "systems": asked.systems[::-1], "files": asked.files[::-1]})
    pd.testing.assert_frame_equal(again.design(**limits), asked.design(**limits))


def check_alone(asked: Asked, limits: dict[str, Any], found: dict[str, float]) -> None:
    """Of all servers together no answer is worse than of one alone."""
    sign = 1 if higher_is_better(asked.objective) else -1
    for file in asked.files if len(asked.files) > 1 else ():
        try:
            alone = asked.design([file], **limits)
        except InputError:
            continue
        for row in alone.to_dict("records"):
            assert sign * found[row["system"]] >= sign * row[asked.objective] - 1e-9


@pytest.mark.parametrize("seed", FEW)
def test_the_best_of_each_system_is_the_best_row_of_all_machines(seed: int, tmp_path: Path) -> None:
    check_question(seed, tmp_path)


@pytest.mark.deep
@pytest.mark.parametrize("seed", MANY)
def test_the_best_of_many_questions_is_the_best_row(seed: int, tmp_path: Path) -> None:
    check_question(seed, tmp_path)


@pytest.mark.deep
def test_random_questions_touch_every_server_and_most_systems(tmp_path: Path) -> None:
    asked = [random_question(seed, tmp_path) for seed in range(60)]
    assert {file.stem for each in asked for file in each.files} == {*SERVERS}
    assert len({name for each in asked for name in each.systems}) >= 12
    assert {*SYSTEMS} >= {name for each in asked for name in each.systems}


MAC: dict[str, Any] = {"model": "gpt-oss-120b", "context": "32k", "output_tokens": 512, "users": 1}


def test_a_server_whose_price_includes_its_dram_is_not_lost_beside_one_that_prices_it() -> None:
    """The memory price of the desktop is absent from the Mac, not unknown."""
    limits: dict[str, Any] = {"slo": "tpot_ms=20", "budget": "20kUSD"}
    both = nearkv.design("gpu", servers="mac-studio-desktop,workstation-2gpu", **limits, **MAC)
    assert both["server"][0] == "mac-studio-desktop"
    assert both["cost_usd"][0] == 9499


@pytest.mark.parametrize(
    ("system", "server"),
    [
        ("l3", "l3-server"),
        ("hillinfer", "hillinfer-server"),
        ("h2m2", "h2m2-server"),
        ("hbf", "hbf-server"),
    ],
)
def test_memory_that_computes_has_servers_with_a_price(system: str, server: str) -> None:
    table = nearkv.design(
        system, "llama3.1-8b", context="8k", servers=server, maximize="throughput_tok_s"
    )
    assert table["server"][0] == server
    assert table["cost_usd"][0] > 5000


@pytest.mark.parametrize(
    ("system", "server"),
    [
        ("l3", "common-server"),
        ("hillinfer", "common-server"),
        ("h2m2", "h2m2-server"),
        ("hbf", "hbf-server"),
        ("hbf", "hbf-pcie-server"),
    ],
)
def test_a_model_of_70b_has_a_machine_of_each_memory_for_60_000_usd(
    system: str, server: str
) -> None:
    limits: dict[str, Any] = {"budget": "60kUSD", "servers": server}
    table = nearkv.design(system, "llama3.1-70b", context="128k", **limits)
    assert 10_000 < table["cost_usd"][0] <= 60_000


def test_a_system_without_a_gpu_runs_where_links_follow_gpus() -> None:
    table = nearkv.design("cpu-only", "llama3.1-8b", context="4k", servers="common-server")
    assert table["gpus"].tolist() == [""]


def test_a_desktop_of_one_or_two_cards_takes_two() -> None:
    """Two cards on eight lanes each; one has all sixteen."""
    table = nearkv.design(
        "gpu", "llama3.1-8b", context="4k", servers="workstation-2gpu", maximize="throughput_tok_s"
    )
    assert table["gpus"][0].startswith("2 x ")
    assert 'gpu_link]\npart = "pcie-5.0-x8"' in table.attrs["machine"][0]


def test_the_split_over_gpus_is_the_best_of_all_that_keep_the_limit(tmp_path: Path) -> None:
    """The limit rules out the fastest step; the fastest prompts are of one that decodes slowly."""
    asked: dict[str, Any] = {"model": "gpt-oss-120b", "context": "64k", "output_tokens": 256}
    limits: dict[str, Any] = {"slo": "ttft_s=7.5", "budget": "27.5kUSD", "minimize": "tpot_ms"}
    table = nearkv.design("gpu", servers="pcie-4gpu-server", users=4, **asked, **limits)
    machine = tmp_path / "machine.toml"
    machine.write_text(table.attrs["machine"][0])
    degrees = {"tp": "1,2,4", "pp": "1:4:+1", "dp": "1:4:+1", "ep": "1,2,4", "attention": "tp,dp"}
    every = nearkv.compare("gpu", batch=4, platform=str(machine), knobs=degrees, **asked)
    every = every[(every["batch_run"] == 4) & (every["status"] == "ok")]
    kept = every[every["ttft_s"] <= 7.5]
    best = table["tpot_ms"][0]
    assert best == kept["tpot_ms"].min()
    assert best > every["tpot_ms"].min()
    assert table["prefill_s"][0] > every["prefill_s"].min()


def test_a_limit_that_the_best_meets_changes_nothing_and_prices_scale_costs(
    tmp_path: Path,
) -> None:
    asked: dict[str, Any] = {"servers": "dgx-spark-desktop,mac-studio-desktop", **MAC}
    first = nearkv.design("gpu", **asked)
    limit = f"tpot_ms={float(first['tpot_ms'][0])!r}"
    assert nearkv.design("gpu", slo=limit, **asked)["server"][0] == first["server"][0]
    prices = tmp_path / "prices.csv"
    prices.write_text("part,usd\ndgx-spark-desktop,9398\nmac-studio-desktop,18998\n")
    dear = nearkv.design("gpu", prices=prices, **asked)
    assert dear["cost_usd"][0] == 2 * first["cost_usd"][0]


@pytest.mark.parametrize("limits", ["", "tpot_ms=1e9"])
def test_a_column_that_no_machine_has_is_named(limits: str) -> None:
    """The drive of the desktop states no price, so what a token wears out of it is not known."""
    asked: dict[str, Any] = {"servers": "mac-studio-desktop", "minimize": "usd_mtok"}
    with pytest.raises(InputError, match=r"has (a value of|no) usd_mtok"):
        nearkv.design("flexgen-percent", "opt-6.7b", slo=limits, **asked)


@pytest.mark.parametrize(
    ("systems", "slo", "servers"),
    [
        ("gpu", "endurance_requests=1000000", "dgx-spark-desktop"),
        ("flexgen-ssd", "energy_j_tok=0.001", "mac-studio-desktop"),
    ],
)
def test_the_nearest_machine_may_have_no_value_of_a_limit(
    systems: str, slo: str, servers: str
) -> None:
    name = slo.partition("=")[0]
    with pytest.raises(InputError, match=f"it has no {name}"):
        nearkv.design(systems, "llama3.1-8b", context="4k", slo=slo, servers=servers)


def test_the_nearest_machine_may_lie_beyond_the_budget() -> None:
    """What exceeds every limit least is beyond the budget by 6 %, or slower by far within it."""
    asked: dict[str, Any] = {"servers": "dgx-spark-desktop,workstation-2gpu", **MAC}
    cheap = nearkv.design("gpu", **asked)
    budget = f"{float(cheap['cost_usd'][0]) / 1.06!r}USD"
    with pytest.raises(InputError, match=r"the nearest is gpu on .*cost_usd"):
        nearkv.design("gpu", budget=budget, **asked)


def test_more_machines_than_can_be_tried_are_refused_with_their_longest_axis(
    tmp_path: Path,
) -> None:
    text = (Path(nearkv.__file__).parent / "hardware/servers/pcie-4gpu-server.toml").read_text()
    file = tmp_path / "many.toml"
    file.write_text(text.replace("most = 16", "most = 300000"))
    with pytest.raises(InputError, match="the longest axis is ssd of many"):
        nearkv.design("flexgen-ssd", "opt-6.7b", servers=str(file))


def test_an_answer_without_a_value_is_a_fault_that_names_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A number that none is missing for may not be cut in silence."""
    endless = replace(COLUMNS["tpot_ms"], compute=lambda answer: np.full(1, np.inf))
    monkeypatch.setitem(COLUMNS, "tpot_ms", endless)
    asked: dict[str, Any] = {"servers": "mac-studio-desktop", "slo": "tpot_ms=20", **MAC}
    with pytest.raises(
        ArithmeticError, match="gpu on a mac-studio-desktop has an answer and no tpot_ms"
    ):
        nearkv.design("gpu", **asked)


def test_numbers_that_follow_what_is_fitted_are_those_of_each_machine() -> None:
    """Links between GPUs are as many as these in `common`, as a search and a machine alone say."""
    server = load_server("common-server")
    builds = Builds(server, {"gpu": options_of(server, "gpu", server.parts("gpu"))})
    machines = Machines(("gpu",), (builds,))
    for address in ("nvlink.count", "nvlink.hop", "gpu_link.count"):
        role, _, key = address.partition(".")
        alone = [machines.platform(number).roles[role].si[key] for number in machines.every]
        assert machines.column(address, machines.every).tolist() == alone
    assert {*machines.column("nvlink.count", machines.every)} == {1, 2, 4}
