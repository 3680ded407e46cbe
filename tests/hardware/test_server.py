"""Servers: what can be assembled, what cannot and why, and what a machine of one costs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import nearkv
from nearkv.hardware.catalog import load_part
from nearkv.hardware.errors import InputError
from nearkv.hardware.files import names
from nearkv.hardware.own import problems
from nearkv.hardware.server import Fitted, Server, load_server, sold_servers

GIB = 2.0**30


def build(**fitted: tuple[str, float]) -> dict[str, Fitted]:
    return {role: Fitted(load_part(part), count) for role, (part, count) in fitted.items()}


IMPOSSIBLE = {
    "RTX 5090s on the board of H200s": (
        "hgx-h200-server",
        {"gpu": ("rtx-5090", 8.0)},
        0,
        "does not fit",
    ),
    "half a board": ("hgx-h200-server", {"gpu": ("h200-sxm", 4.0)}, 0, "cannot be fitted: 8 "),
    "a module of a board in a slot": (
        "pcie-8gpu-server",
        {"gpu": ("h200-sxm", 1.0)},
        0,
        "does not fit",
    ),
    "a board of another generation": (
        "hgx-b200-server",
        {"gpu": ("h100-sxm", 8.0)},
        0,
        "does not fit",
    ),
    "more drives than bays": ("pcie-4gpu-server", {"ssd": ("pm9a3", 17.0)}, 0, "1 to 16"),
    "more cards than slots": ("workstation-4gpu", {"gpu": ("rtx-5090", 8.0)}, 0, "1, 2, 3, 4"),
    "more lanes than there are": (
        "workstation-4gpu",
        {"gpu": ("rtx-5090", 4.0), "ssd": ("pm9a3", 14.0)},
        0,
        "cannot be fitted",
    ),
    "a card that the supply does not carry": (
        "dgx-spark-desktop",
        {"gpu": ("rtx-pro-6000", 1.0)},
        0,
        "does not fit",
    ),
    "DRAM that no set of DIMMs makes": (
        "pcie-4gpu-server",
        {},
        100 * GIB,
        "100 GiB cannot be fitted",
    ),
    "DRAM that is soldered": ("gh200-server", {}, 960 * GIB, "960 GiB cannot be fitted"),
    "a role without a slot": (
        "dgx-spark-desktop",
        {"ssd": ("pm9a3", 1.0)},
        0,
        "unknown slot 'ssd'",
    ),
}
REAL = {
    "8 x RTX 5090 over MCIO": ("pcie-8gpu-server", {"gpu": ("rtx-5090", 8.0)}, 192 * GIB),
    "4 x RTX PRO 6000": ("pcie-4gpu-server", {"gpu": ("rtx-pro-6000", 4.0)}, 384 * GIB),
    "4 x RTX 5090 workstation": ("workstation-4gpu", {"gpu": ("rtx-5090", 4.0)}, 64 * GIB),
    "DGX Spark": ("dgx-spark-desktop", {}, 0),
    "HILOS with 16 SmartSSDs": ("hilos-server", {"csd": ("smartssd", 16.0)}, 0),
}


QUOTES = {
    "HGX H100, quoted by Thinkmate in August 2024": ("hgx-h100-server", {}, 0, 317_000),
    "tinybox green, of tinygrad": (
        "pcie-8gpu-server",
        {"gpu": ("rtx-4090", 6.0)},
        192 * GIB,
        25_000,
    ),
    "four A6000 of E. Wallner, 25,000 EUR in 2021": (
        "workstation-4gpu",
        {"gpu": ("a6000", 4.0)},
        256 * GIB,
        30_000,
    ),
    "one RTX 5090 of Sesame Disk, June 2026": (
        "workstation-2gpu",
        {"gpu": ("rtx-5090", 1.0)},
        64 * GIB,
        5_000,
    ),
    "DGX Spark at its launch": ("dgx-spark-desktop", {}, 0, 3_999),
}
"""Machines with what others ask or paid for them, who are no source of a price here [USD]."""


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_a_build_that_cannot_exist_is_refused_with_its_rule(case: str) -> None:
    server, fitted, memory, rule = IMPOSSIBLE[case]
    with pytest.raises(InputError, match=rule):
        load_server(server).machine(build(**fitted), memory)


@pytest.mark.parametrize("case", REAL)
def test_a_machine_that_is_sold_is_accepted(case: str) -> None:
    server, fitted, memory = REAL[case]
    machine = load_server(server).machine(build(**fitted), memory)
    for role, (part, count) in fitted.items():
        assert machine.roles[role].name == part
        assert machine.roles[role].si["count"] == count


@pytest.mark.parametrize("case", QUOTES)
def test_what_others_ask_for_a_machine_lies_within_the_range_of_its_price(case: str) -> None:
    server, fitted, memory, usd = QUOTES[case]
    machine = load_server(server).machine(build(**fitted), memory)
    numbers = machine.roles["server"].numbers
    prices = [(1.0, numbers["price"])]
    if "memory_price" in numbers:
        prices.append((machine.roles["host"].si["memory"], numbers["memory_price"]))
    for role in {"gpu", "host"} & machine.roles.keys():
        part = machine.roles[role]
        prices.append((part.si["count"], part.numbers["price"]))
    ranges = [(count, price.range_si or (price.si, price.si)) for count, price in prices]
    low, high = (sum(count * ends[end] for count, ends in ranges) for end in (0, 1))
    assert low <= usd <= high


def test_rules_that_slots_share_hold_together() -> None:
    """8 x 16 lanes and 8 x 4 are the 160 of two sockets; 8 x 600 W and the host fit 8 kW."""
    server = load_server("pcie-8gpu-server")
    full = build(gpu=("rtx-pro-6000", 8.0), ssd=("pm1753", 8.0))
    drawn = server.draws(full)
    assert drawn["PCIe lanes"] == (160, 160)
    assert drawn["W"] == (8 * 600 + 8 * 25 + 700 + 250, 8000)
    server.check(full)
    small = Server(load_part("workstation-2gpu"), server.platform, server.includes, server.slots)
    with pytest.raises(InputError, match="needs 160 PCIe lanes, and has 24"):
        small.check(full)


def test_a_server_says_whether_one_can_buy_it(tmp_path: Path) -> None:
    """Those built around flash behind HBM, H2M2's chips or DIMMs that compute are proposals."""
    proposed = {"hbf-server", "hbf-pcie-server", "h2m2-server", "l3-server"}
    assert set(names("server")) - set(sold_servers()) == proposed
    file = tmp_path / "mine.toml"
    text = (Path(nearkv.__file__).parent / "hardware/servers/hbf-server.toml").read_text()
    file.write_text(text.replace("sold = false", "sold = true"))
    assert sold_servers(["hbf-server", str(file)]) == [str(file)]
    file.write_text(text.replace("sold = false", 'sold = "no"'))
    with pytest.raises(InputError, match="sold = 'no': state true or false"):
        load_server(str(file))


STATED = "source = 'hilos', at = 'Table 1'"
MISWRITTEN = {
    "slots = 5": r"slots = 5 must be a table",
    "slots = { gpu = [1] }": r"slots: gpu = \[1\] must be a table",
    "slots = [{ gpu = {} }]": "must be a table",
    "includes = 5": "includes = 5 must be a name, or a list",
    "slots = { gpu = { source = ['hilos'] } }": r"source = \['hilos'\] must be a name",
    "slots = { gpu = { most = [1] } }": r"most = \[1\] must be a whole number",
    "slots = { gpu = { takes = 5 } }": r"slots\.gpu: takes = 5 must be a name, or a list",
    'slots = { gpu = { takes = "sxm", counts = ["x"] } }': r"counts = \['x'\] must be a number",
    'slots = { gpu = { takes = "sxm", most = 1.5 } }': r"most = 1\.5 must be a whole number",
    f"slots = {{ gpu = {{ {STATED} }} }}": "needs what it takes",
    f"slots = {{ gpu = {{ takes = 'sxm', most = 0, {STATED} }} }}": "1 to 1,000,000 of it",
    f"slots = {{ gpu = {{ takes = 'a', links = {{ x = 5 }}, {STATED} }} }}": "x = 5 must be a name",
}


@pytest.mark.parametrize("line", MISWRITTEN)
def test_a_miswritten_server_says_where(line: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    text = (Path(nearkv.__file__).parent / "hardware/servers/hgx-h200-server.toml").read_text()
    whole = text[: text.index("[slots")]
    key = line.partition(" ")[0]
    kept = [other for other in whole.splitlines() if not other.startswith(f"{key} =")]
    file.write_text("\n".join([line, *kept]))
    with pytest.raises(InputError, match=MISWRITTEN[line]):
        load_server(str(file))


@pytest.mark.parametrize("name", names("server"))
def test_every_server_is_a_machine_as_delivered(name: str) -> None:
    server = load_server(name)
    machine = server.machine({})
    assert machine.roles["server"].name == name
    for role in server.includes:
        assert machine.roles[role].si["price"] == 0
    assert all(server.parts(role) for role in server.slots)


def test_a_server_of_a_user_takes_a_part_that_lies_beside_it(tmp_path: Path) -> None:
    """By design from its path alone, and the written machine gives the same answer."""
    for folder, name in (("servers", "hillinfer-server"), ("parts", "smartssd")):
        shutil.copy(Path(nearkv.__file__).parent / f"hardware/{folder}/{name}.toml", tmp_path)
    file, part = tmp_path / "hillinfer-server.toml", tmp_path / "smartssd.toml"
    file = file.rename(tmp_path / "mine.toml")
    file.write_text(file.read_text().replace('["smartssd"]', '["smartssd", "my-csd"]'))
    assert "takes: unknown part 'my-csd'" in problems(file)[0]
    part.write_text(part.read_text().replace("value = 3.0, unit", "value = 3.1, unit"))
    part.rename(tmp_path / "my-csd.toml")
    assert problems(file) == []
    assert [each.name for each in load_server(str(file)).parts("csd")] == ["smartssd", "my-csd"]
    asked: dict[str, Any] = {"context": "32k", "budget": "40kUSD", "maximize": "throughput_tok_s"}
    table = nearkv.design("hilos", "llama3.1-70b", servers=str(file), **asked)
    assert table["csds"][0] == "1 x my-csd"
    machine = tmp_path / "best.toml"
    machine.write_text(table.attrs["machine"][0])
    again = nearkv.estimate("hilos", "llama3.1-70b", context="32k", platform=str(machine))
    assert again["throughput_tok_s"] == table["throughput_tok_s"][0]


def test_links_come_with_what_they_connect() -> None:
    machine = load_server("pcie-8gpu-server").machine(build(gpu=("l40s", 4.0), ssd=("pm1753", 3.0)))
    counts = {role: machine.roles[role].si["count"] for role in ("gpu_link", "ssd_link")}
    assert counts == {"gpu_link": 4, "ssd_link": 3}
    assert "nvlink" not in machine.roles


def test_what_a_system_may_use_grows_with_the_dimms() -> None:
    machine = load_server("pcie-4gpu-server").machine({}, 384 * GIB)
    host = machine.roles["host"].si
    before = load_part("epyc-9354-1s").si
    assert host["memory"] == 384 * GIB
    assert host["kv_memory"] / host["memory"] == pytest.approx(
        before["kv_memory"] / before["memory"]
    )
