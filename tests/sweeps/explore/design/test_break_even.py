"""Where a number of a part turns a cell: asked again with it put in, both tie or change places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.machine_draws import DrawnMachine, band_over

import nearkv
from nearkv.costmodel.algebra.span import Numbers
from nearkv.costmodel.model.registry import find_system
from nearkv.hardware.catalog import load_part
from nearkv.hardware.errors import InputError, UnmetError
from nearkv.hardware.server import load_server
from nearkv.sweeps.explore.design.break_even import DOUBLINGS, _nearest_turn, turns_of_draws
from nearkv.sweeps.explore.design.goal import Goal, budget_limits
from nearkv.sweeps.study.grid import Block
from nearkv.sweeps.study.study import Study, blocks

pytestmark = pytest.mark.filterwarnings("ignore::nearkv.hardware.errors.NearkvWarning")
SERVERS = "h2m2-server,hillinfer-server,mac-studio-desktop"
BEST: dict[str, Any] = {"maximize": "throughput_tok_s", "model": "llama3.1-70b"}


def owner_wins(systems: str, role: str, prices: Path, servers: str, **asked: Any) -> bool:
    """True if the best machine, at prices of one's own, is of a system that owns a role.

    Where no other system serves, no machine is left once it is beyond the budget.
    """
    try:
        table = nearkv.design(systems, servers=servers, prices=prices, **BEST, **asked)
    except UnmetError:
        return False
    return role in find_system(table["system"][0]).owns


def check_price(
    role: str, systems: str, folder: Path, servers: str, **asked: Any
) -> dict[Any, Any]:
    """Hold that prices a millionth below the break-even are won by the owner, and above lost.

    Returns:
        The break-even with its band; nothing where there is none.
    """
    given: dict[str, Any] = {"model": "llama3.1-70b", "servers": servers, **asked}
    table = nearkv.design(systems, break_even=f"{role}.price", band=90, **given)
    (row,) = table.to_dict("records")
    if row["factor"] is None or np.isnan(row["factor"]):
        return {}
    built = [load_server(name) for name in servers.split(",")]
    parts = {part.name for each in built if role in each.slots for part in each.parts(role)}
    for side, wins in ((1 - 1e-6, True), (1 + 1e-6, False)):
        prices = folder / "prices.csv"
        lines = [
            f"{name},{load_part(name).si['price'] * row['factor'] * side!r}"
            for name in sorted(parts)
            if "price" in load_part(name).si
        ]
        prices.write_text("\n".join(["part,usd", *lines]) + "\n")
        assert owner_wins(systems, role, prices, servers, **asked) is wins
    return row


def test_at_the_price_of_lpddr_at_which_it_loses_64k_a_gpu_takes_over(tmp_path: Path) -> None:
    """Two chips with two HBM cost 14,360 USD; one module of 128 GB may cost what is left of 20,000.

    That is 5,640 USD where it costs 1,440, or 41 USD/GB. More modules are dearer, and one chip
    holds so many sequences in rounds alone, which are not asked for.
    """
    asked: dict[str, Any] = {"context": "64k", "batch": 16, "per_round": 16, "budget": "20kUSD"}
    row = check_price("lpddr", "h2m2,gpu", tmp_path, SERVERS, **asked)
    assert row["owner_wins"]
    assert row["at"] == pytest.approx(20_000 - 14_360, rel=1e-6)
    assert row["factor"] == pytest.approx(5640 / 1440, rel=1e-6)
    assert row["usd_per_gb"] == pytest.approx(5640 / 137.438953472, rel=1e-6)
    assert row["at_p05"] is None, "in over a twentieth of the draws it loses at any price"
    assert row["at_p50"] < row["at"] < row["at_p95"]
    assert row["usd_per_gb_p95"] == pytest.approx(row["at_p95"] / 137.438953472)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(50))
def test_fifty_random_cells_change_hands_at_their_price(seed: int, tmp_path: Path) -> None:
    """Cells are drawn until one has a break-even."""
    random = np.random.default_rng(seed)
    servers = f"{SERVERS},hbf-server,l3-server"
    for _ in range(100):
        asked: dict[str, Any] = {
            "context": int(8192 << random.integers(0, 8)),
            "batch": int(4 ** random.integers(0, 5)),
            "budget": f"{random.choice([15, 20, 40, 60])}kUSD",
        }
        role = str(random.choice(["lpddr", "csd", "hbf", "dimm"]))
        if check_price(role, "h2m2,hilos,hillinfer,l3,hbf,gpu", tmp_path, servers, **asked):
            return
    pytest.fail("no cell has a break-even")


@pytest.mark.parametrize("address", ["lpddr.price", "lpddr.bandwidth"])
def test_in_each_draw_machines_change_places_at_its_own_value(address: str) -> None:
    """Each draw by itself: the owner's rate, and the rival's with the error of a ratio.

    A price counts up to the budget, from which on a machine of that price is not built; a rate
    counts per dollar beyond it.
    """
    budget = 40_000
    goal = Goal(("throughput_tok_s",), (True,), budget_limits([f"{budget}USD"]))
    study = Study(("h2m2", "gpu"), "opt-13b", platforms=("common",), context=4096, batch=4)
    pair = blocks(study)
    band = band_over(pair, 16)
    is_price = address == "lpddr.price"
    turns = turns_of_draws(goal, pair, address, band, 0.0, is_price)
    owner, rival = (DrawnMachine(block, band) for block in pair)

    def leads(draw: int, doublings: float) -> bool:
        rate, cost = owner.rate_and_cost(draw, {address: value * 2.0**doublings})
        other, others_cost = rival.rate_and_cost(draw, {})
        other *= float(np.exp(-rival.errors[draw])) / max(others_cost / budget, 1.0)
        if is_price:
            return cost <= budget and rate > other
        return rate / max(cost / budget, 1.0) > other

    role, _, key = address.partition(".")
    value = pair[0].platform.roles[role].si[key]
    for draw, turn in enumerate(turns.tolist()):
        if np.isinf(turn):
            ends = leads(draw, -DOUBLINGS), leads(draw, DOUBLINGS)
            assert ends == ((turn > 0) == is_price,) * 2
        else:
            assert leads(draw, turn - 1e-6) is is_price
            assert leads(draw, turn + 1e-6) is not is_price
    assert np.isfinite(turns).any()


@pytest.mark.parametrize(("nearest_to", "turn"), [(1.5, 2.2), (-1.5, -1.3)])
def test_of_two_values_at_which_a_draw_turns_alike_the_nearest_counts(
    nearest_to: float, turn: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, the owner serves from -1.3 to 0.6 doublings of its rate, and from 2.2."""
    owner = blocks(Study(("gpu",), "opt-13b", context=4096))[0]
    stated = owner.platform.roles["gpu"].si["bandwidth"]

    def loss(_: Goal, __: Block, numbers: dict[str, Numbers], ___: int) -> Numbers:
        doublings = np.log2(numbers["gpu.bandwidth"] / stated)
        return np.where((doublings < -1.3) | ((doublings > 0.6) & (doublings < 2.2)), np.inf, 1.0)

    monkeypatch.setattr("nearkv.sweeps.explore.design.break_even.at_equal_cost", loss)
    goal = Goal(("throughput_tok_s",), (True,), ())
    band = band_over([owner], 3)
    turns = turns_of_draws(goal, [owner], "gpu.bandwidth", band, nearest_to, wins_below=False)
    assert turns == pytest.approx([turn] * 3)


@pytest.mark.parametrize(
    ("edges", "turn"),
    [((-0.9, 0.3), 0.3), ((-0.2, 0.6), -0.2), ((-1.5, 1.6), -1.5), ((-9, 9), None)],
)
def test_of_two_values_the_one_nearer_by_its_ratio_counts(
    edges: tuple[float, float], turn: float | None
) -> None:
    """The owners win between two edges, in doublings."""
    low, high = edges
    found = _nearest_turn(lambda doublings: min(doublings - low, high - doublings), wins=True)
    assert (found[0] if found else None) == (turn if turn is None else pytest.approx(turn))


def test_at_the_rate_of_a_drive_at_which_it_loses_both_are_level(tmp_path: Path) -> None:
    """HILOS on SmartSSDs that read so slowly is as fast as the GPU, to a millionth."""
    asked: dict[str, Any] = {"context": "64k", "batch": 64}
    question: dict[str, Any] = {"servers": SERVERS, "budget": "20kUSD", **asked}
    model = "llama3.1-70b"
    (row,) = nearkv.design("hilos,gpu", model, break_even="csd.p2p_read", **question).to_dict(
        "records"
    )
    best = nearkv.design("hilos,gpu", **BEST, **question)
    rates = dict(zip(best["system"], best["throughput_tok_s"], strict=True))
    assert row["owner_wins"] == (rates["hilos"] > rates["gpu"])
    machine = tmp_path / "machine.toml"
    machine.write_text(best.attrs["machine"][list(rates).index("hilos")])
    slow = nearkv.estimate(
        "hilos", model, platform=str(machine), sets={"csd.p2p_read": f"{row['at']!r} GB/s"}, **asked
    )
    assert slow["throughput_tok_s"] == pytest.approx(rates["gpu"], rel=1e-6)


def test_a_number_that_turns_nothing_and_who_is_refused() -> None:
    asked: dict[str, Any] = {"model": "llama3.1-70b", "context": "8k", "servers": SERVERS}
    table = nearkv.design("hilos,gpu", budget="20kUSD", break_even="csd.endurance", **asked)
    assert table["factor"].isna().all()
    assert table["rival"].tolist() == ["gpu"]
    for address, sentence in (("raid.price", "unknown part"), ("csd", "name a number")):
        with pytest.raises(InputError, match=sentence):
            nearkv.design("hilos,gpu", break_even=address, **asked)
    with pytest.raises(InputError, match="has such a number"):
        nearkv.design("hilos,gpu", break_even="csd.joy", **asked)


def test_a_count_has_no_break_even_as_all_counts_are_tried() -> None:
    with pytest.raises(InputError, match="every count are tried"):
        nearkv.design(
            "h2m2,gpu",
            "llama3.1-70b",
            servers=SERVERS,
            budget="20kUSD",
            break_even="lpddr.count",
        )
