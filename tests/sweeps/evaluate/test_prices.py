"""Prices of whole servers, and what has none, in words and in sums by hand."""

from __future__ import annotations

import pytest
from support.command_line import succeed

from nearkv.costmodel.model.registry import systems
from nearkv.hardware.errors import NearkvWarning
from nearkv.sweeps.evaluate.columns import table
from nearkv.sweeps.evaluate.prices import no_prices, price_sentences
from nearkv.sweeps.explore.hardware import find_hardware
from nearkv.sweeps.explore.pareto import find_front
from nearkv.sweeps.study.study import Study, blocks

NODE = Study(("flexgen-dram", "gpu"), ("gpt-oss-120b",), platforms="h200-node")
PRICES = {"gpu.price": "32000USD", "host.price": "20000USD", "ssd.price": "400USD"}


def test_every_system_on_a_server_is_priced_with_its_server() -> None:
    """Eight GPUs and a host; FlexGen keeps weights on eight drives besides."""
    rows = table(NODE.but(sets=PRICES))
    assert rows["cost_usd"].tolist() == [279_200, 276_000]
    sentences = price_sentences(blocks(NODE.but(sets=PRICES)))
    assert sentences[0] == (
        "cost_usd of flexgen-dram on h200-node is of gpu, host and ssd, "
        "without dram, cxl and object_store, which it does not need."
    )
    assert sentences[1] == (
        "cost_usd of gpu on h200-node is of gpu and host, "
        "without ssd, dram, cxl and object_store, which it does not need."
    )


def test_every_system_with_gpus_owns_a_host() -> None:
    bare = [
        system.name
        for system in systems().values()
        if {"gpu", "cluster_gpu"} & {*system.owns} and not {"host", "cluster_host"} & {*system.owns}
    ]
    assert not bare


def test_a_part_without_a_price_is_named_until_it_has_one() -> None:
    bare = NODE.but(parts={"gpu": "mi300x"})
    (_, both) = no_prices(blocks(bare))
    assert both == (
        "no cost_usd of gpu on h200-node gpu=mi300x: gpu (mi300x) and host "
        "(xeon-8480c-2s) state no price; give --set gpu.price=USD --set host.price=USD"
    )
    gpus = bare.but(sets={"gpu.price": "32000USD"})
    assert "host (xeon-8480c-2s) states no price" in no_prices(blocks(gpus))[-1]
    assert not no_prices(blocks(NODE.but(sets=PRICES)))


def test_a_machine_without_a_host_is_told() -> None:
    box = Study(("gpu",), ("gpt-oss-20b",), platforms="dgx-spark")
    (sentence,) = price_sentences(blocks(box.but(sets={"gpu.price": "4000USD"})))
    assert sentence.endswith("is of gpu; the platform states no host.")


def test_a_limit_on_a_price_that_is_not_known_names_the_part() -> None:
    (row,) = find_hardware(
        NODE.but(systems=("gpu",), parts={"gpu": "mi300x"}),
        "gpu.count=1:8",
        ["cost_usd<=100000"],
    )
    assert row["limit"] == "never"
    assert "gpu (mi300x) and host (xeon-8480c-2s) state no price" in row["reason"]


def test_a_front_names_the_part_that_left_a_design_out() -> None:
    """Four RTX PRO 6000 in the server: 4 x 8,565 + 20,000 USD."""
    choice = NODE.but(
        systems=("gpu",),
        parts={"gpu": "rtx-pro-6000,mi300x"},
        sets={"host.price": "20000USD", "gpu.count": "4"},
    )
    with pytest.warns(NearkvWarning, match=r"gpu \(mi300x\) states no price"):
        front = find_front(choice, "throughput_tok_s,cost_usd", [])
    assert front["cost_usd"].tolist() == [54_260]


def test_what_a_price_is_of_stands_below_a_table_that_shows_it() -> None:
    line = ["compare", "hilos", "flexgen-dram", "--model", "opt-66b", "--columns"]
    printed = " ".join(succeed(*line, "cost_usd").split())  # lines wrap at any width
    assert "is of gpu, host, csd and chassis, without ssd and raid, which it does not" in printed
    assert "is of gpu" not in succeed(*line, "step_ms")
