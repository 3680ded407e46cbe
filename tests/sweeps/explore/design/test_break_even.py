"""Where a number of a part turns a cell: asked again with it put in, both tie or change places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nearkv
from nearkv.costmodel.model.registry import find_system
from nearkv.hardware.catalog import load_part
from nearkv.hardware.errors import InputError
from nearkv.hardware.server import load_server

pytestmark = pytest.mark.filterwarnings("ignore::nearkv.hardware.errors.NearkvWarning")
SERVERS = "h2m2-server,hillinfer-server,mac-studio-desktop"
BEST: dict[str, Any] = {"maximize": "throughput_tok_s", "model": "llama3.1-70b"}


def owner_wins(systems: str, role: str, prices: Path, servers: str, **asked: Any) -> bool:
    """True if the best machine, at prices of one's own, is of a system that owns a role."""
    table = nearkv.design(systems, servers=servers, prices=prices, **BEST, **asked)
    return role in find_system(table["system"][0]).owns


def check_price(role: str, systems: str, folder: Path, servers: str, **asked: Any) -> bool:
    """Hold that prices a millionth below the break-even are won by the owner, and above lost.

    Returns:
        Whether there is a break-even.
    """
    given: dict[str, Any] = {"model": "llama3.1-70b", "servers": servers, **asked}
    (row,) = nearkv.design(systems, break_even=f"{role}.price", **given).to_dict("records")
    if row["factor"] is None or np.isnan(row["factor"]):
        return False
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
    return True


def test_at_the_price_of_lpddr_at_which_it_loses_64k_a_gpu_takes_over(tmp_path: Path) -> None:
    """Two chips with two HBM cost 14,360 USD; one module of 128 GB may cost what is left of 20,000.

    That is 5,640 USD where it costs 1,440, or 41 USD/GB. More modules are dearer.
    """
    asked: dict[str, Any] = {"context": "64k", "batch": 16, "budget": "20kUSD"}
    assert check_price("lpddr", "h2m2,gpu", tmp_path, SERVERS, **asked)
    given: dict[str, Any] = {"model": "llama3.1-70b", "servers": SERVERS, **asked}
    (row,) = nearkv.design("h2m2,gpu", break_even="lpddr.price", **given).to_dict("records")
    assert row["owner_wins"]
    assert row["at"] == pytest.approx(20_000 - 14_360, rel=1e-6)
    assert row["factor"] == pytest.approx(5640 / 1440, rel=1e-6)
    assert row["usd_per_gb"] == pytest.approx(5640 / 137.438953472, rel=1e-6)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(50))
def test_fifty_random_cells_change_hands_at_their_price(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    asked: dict[str, Any] = {
        "context": int(8192 << random.integers(0, 8)),
        "batch": int(4 ** random.integers(0, 5)),
        "budget": f"{random.choice([15, 20, 40, 60])}kUSD",
    }
    role = str(random.choice(["lpddr", "csd", "hbf", "dimm"]))
    servers = f"{SERVERS},hbf-server,l3-server"
    check_price(role, "h2m2,hilos,hillinfer,l3,hbf,gpu", tmp_path, servers, **asked)


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
