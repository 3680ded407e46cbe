"""Columns of an answer by hand: energy, and times of decoding alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from support.systems import model
from support.tiny import estimate

from nearkv.costmodel.algebra.span import Leaf, Span, overlap, serial
from nearkv.costmodel.mechanisms.serving.arrivals import under_load
from nearkv.costmodel.model.estimate import fits
from nearkv.costmodel.model.metrics import (
    COLUMNS,
    Evaluated,
    _alone,
    _decode_energy,
    _joules_at_work,
    _throughput_per_cost,
    cost,
    energy,
    power,
    power_cap,
    rack_units,
    throughput,
    usd_hour,
    usd_mtok,
)
from nearkv.costmodel.model.registry import find_system
from nearkv.costmodel.model.workload import Arrivals, Load, Serving, Workload
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.machine import Role
from nearkv.hardware.server import load_server
from nearkv.solvers.knobs import resolve_knobs
from nearkv.sweeps.evaluate.columns import table
from nearkv.sweeps.study.study import Study


def test_a_device_that_draws_the_same_at_work_and_idle() -> None:
    """Two of 7 W all the time, for 5 sequences of 21 tokens."""
    answer = estimate("full-cache")
    hw = load_platform("aipc-4090").machine()
    steady = hw.with_values({"gpu.count": 2, "gpu.power": 7.0, "gpu.idle_power": 7.0})
    joules = energy(Evaluated(answer, steady, ("gpu",)))
    assert joules == pytest.approx(2 * 7.0 * answer.total.seconds / (5 * 21), rel=1e-12)


@pytest.mark.parametrize(
    ("launching", "reading", "multiplying", "joules"),
    [
        (3.0, 0.0, 0.0, 3 * 20),  # 20 of 100 W beyond 10 W idle are 10 W more
        (0.0, 3.0, 0.0, 3 * 60),
        (0.0, 0.0, 3.0, 3 * 100),
        (1.0, 2.0, 1.0, 20 + 2 * 60 + 100),
    ],
)
def test_a_gpu_draws_by_what_it_does(
    launching: float, reading: float, multiplying: float, joules: float
) -> None:
    """Ten seconds at 10 W idle; at work 20 W while it waits, 60 while it reads, 100 multiplying."""
    numbers = {"idle_power": 10.0, "power_waiting": 0.2, "power_streaming": 0.6, "power": 100.0}
    part = Role("a", "gpu", {"count": 1.0, **numbers})
    span = serial(
        launch=Leaf("gpu.launch", "wait", launching, 1.0, "s"),
        read=Leaf("gpu.hbm", "read", reading, 1.0, "B"),
        run=Leaf("gpu.tensor", "run", multiplying, 1.0, "FLOP"),
    )
    idle = 10 * (launching + reading + multiplying)
    assert _joules_at_work(part, span, "gpu") == pytest.approx(joules - idle)
    both = overlap(
        read=Leaf("gpu.hbm", "read", 2.0, 1.0, "B"),
        run=Leaf("gpu.tensor", "run", 2.0, 1.0, "FLOP"),
    )
    assert _joules_at_work(part, both, "gpu") == pytest.approx(2 * (100 - 10))  # no more than all
    plain = Role("a", "gpu", {"idle_power": 10.0, "power": 100.0})
    assert _joules_at_work(plain, span, "gpu") == pytest.approx(9 * idle)


def test_few_users_of_eight_gpus_draw_what_was_measured() -> None:
    """gpt-oss-120b on 8 H100, 4 users: nvidia-smi reads 1,777 W with idle spells, at most 2,208.

    Not used to set a number (InferenceX, issue 828).
    """
    study = Study(
        ("gpu",),
        ("gpt-oss-120b",),
        context="1k",
        output_tokens="8k",
        users="4",
        platforms=("hgx-h100",),
        knobs={"tp": "8"},
    )
    idle_host = load_platform("hgx-h100").machine().host.idle_power
    drawn = table(study)["power_w"][0] - idle_host
    assert 0.75 * 2208 < drawn < 2208


def test_energy_of_decoding_is_what_every_further_token_adds() -> None:
    """Prefill makes the first of 21 tokens: 5 sequences draw the rest in 20 steps."""
    answer = estimate("hilos", alpha=0.5)
    hw = load_platform("hilos-a100").machine()
    roles = ("gpu", "host", "csd", "chassis")
    whole = 5 * 21 * energy(Evaluated(answer, hw, roles))
    prompts = replace(answer, step=0.0 * answer.step)
    first = 5 * 21 * energy(Evaluated(prompts, hw, roles))
    step = 5 * _decode_energy(Evaluated(answer, hw, roles))
    assert first > 0
    assert whole == pytest.approx(first + 20 * step, rel=1e-12)


def of_load(users: float | None = None, rate: float = 0.0) -> Evaluated:
    """One GPU of 700 W, 100 W idle, all of whose iterations of 0.1 s are its work."""

    def busy(load: Load) -> Span:
        return Leaf("gpu.tensor", "run", 0.1 + 0.0 * load.sequences, 1.0, "s")

    serving = Serving(busy, lambda many, load: busy(load), 1e9, 1.0, chunked=1.0, budget=512.0)
    arrivals = Arrivals(rate=rate, users=users)
    work = Workload(users or 1e9, 100.0, 11.0, arrivals=arrivals)
    machine = load_platform("aipc-4090").machine()
    numbers = {"gpu.count": 1.0, "gpu.power": 700.0, "gpu.idle_power": 100.0}
    answer = under_load(work, serving, fits())
    return Evaluated(answer, machine.with_values(numbers), ("gpu",))


@pytest.mark.parametrize("users", [1.0, 8.0, 300.0])
def test_users_keep_a_gpu_at_work_though_their_requests_wait(users: float) -> None:
    """Its power is 700 W whoever waits; the energy of a token is that over the tokens a second."""
    answer = of_load(users=users)
    assert power(answer) == pytest.approx(700.0)
    assert energy(answer) == pytest.approx(700.0 / throughput(answer))


def test_a_gpu_that_is_asked_now_and_then_rests_in_between() -> None:
    """A request of eleven iterations once in 110 s: busy for a hundredth of the time."""
    answer = of_load(rate=1 / 110)
    assert power(answer) == pytest.approx(100 + 600 * (1 - np.exp(-0.01)), rel=1e-3)


def test_rates_that_benchmarks_print() -> None:
    """5 prompts of 100 tokens in 2 s are 250 tokens/s; 20 steps of a quarter second are 5 s."""
    answer = estimate("full-cache")
    prefill = (2.0 / answer.prefill.seconds) * answer.prefill
    timed = replace(answer, prefill=prefill, step=(0.25 / answer.step.seconds) * answer.step)
    shown = Evaluated(timed, load_platform("aipc-4090").machine(), ("gpu",))
    assert COLUMNS["prefill_tok_s"].compute(shown) == pytest.approx(250)
    assert COLUMNS["decode_s"].compute(shown) == pytest.approx(5)


def test_tokens_per_second_of_decoding_are_blank_where_prompts_ride() -> None:
    serving = Study(("l3",), ("gpt-175b",), traces=("dolphin",))
    alone = Study(("l3",), ("gpt-175b",), batch="4", context="8k")
    assert np.isnan(table(serving)["decode_tok_s"].astype(float)).all()
    assert np.isfinite(table(alone)["decode_tok_s"].astype(float)).all()


def test_only_points_whose_steps_carry_prompts_are_blank() -> None:
    answer = estimate("full-cache")
    hw = load_platform("aipc-4090").machine()
    mixed = Evaluated(replace(answer, step_carries=np.array([0.0, 5.0])), hw, ())
    alone, carrying = np.ravel(_alone(mixed, answer.step.seconds))
    assert alone == answer.step.seconds
    assert np.isnan(carrying)


def owned(sets: Mapping[str, float]) -> Evaluated:
    """FlexGen on a server of two cards of 100 W, a host of 50 W and a drive of 10 W."""
    machine = load_server("pcie-4gpu-server").machine({})
    terms = {"years": 2.0, "usd_kwh": 0.1 / 3.6e6, "pue": 1.5, "utilisation": 0.5, "rented": 0.0}
    hw = machine.machine()
    hw.roles["ownership"] = Role("", "ownership", terms)
    steady = {"server": 40.0, "gpu": 100.0, "host": 50.0, "ssd": 10.0}
    watts = {f"{role}.{key}": power for role, power in steady.items() for key in POWERS}
    hw = hw.with_values({**watts, "gpu.count": 2.0, **sets})
    work, system = Workload(8.0, 4096.0, 64.0), find_system("flexgen-ssd")
    solved = resolve_knobs(system, hw, model("opt-6.7b", hw), work, dict(system.defaults))
    return Evaluated(solved.estimate, hw, system.owns)


POWERS = ("power", "idle_power")


def test_the_price_of_a_machine_is_that_of_its_server_with_all_that_is_in_it() -> None:
    """Two cards, a drive, the server with its processor, and 768 GiB of DRAM at 31 USD/GB."""
    answer = owned({"gpu.price": 1000.0, "ssd.price": 300.0})
    dimms = 768 * 2**30 / 1e9 * 31
    assert cost(answer) == pytest.approx(2 * 1000 + 300 + 9000 + dimms)
    assert power(answer) == pytest.approx(2 * 100 + 50 + 10 + 40)
    assert power_cap(answer) == pytest.approx(2 * 100 + 50 + 10 + 40)
    assert rack_units(answer) == 5
    assert _throughput_per_cost(answer) == pytest.approx(1000 * throughput(answer) / cost(answer))


def test_an_hour_of_a_bought_machine_and_of_a_rented_one() -> None:
    """The price over two years, and 0.3 kW at 0.1 USD/kWh and 1.5 of the building; rent of two."""
    bought = owned({})
    hour = cost(bought) / (2 * 8766) + 0.3 * 0.1 * 1.5
    assert usd_hour(bought) == pytest.approx(hour)
    rented = owned({"ownership.rented": 1.0, "gpu.rent": 0.66 / 3600})
    assert usd_hour(rented) == pytest.approx(2 * 0.66)


def test_a_million_tokens_cost_the_hours_they_take_and_the_flash_they_wear() -> None:
    answer = owned({"ssd.endurance": np.inf})
    hours = 1e6 / throughput(answer) / 3600
    assert usd_mtok(answer) == pytest.approx(usd_hour(answer) * hours / 0.5)
    worn = owned({"ssd.endurance": 1e15, "ssd.price": 300.0})
    written = sum(worn.estimate.total.traffic("write").values())
    per_token = written / 1e15 * 300 / (8 * 64)
    still = owned({"ssd.endurance": np.inf, "ssd.price": 300.0})
    assert usd_mtok(worn) - usd_mtok(still) == pytest.approx(1e6 * per_token, rel=1e-6)


def test_flash_that_is_never_written_wears_out_after_no_number_of_requests() -> None:
    """FLEX(DRAM) keeps all in DRAM, HILOS its cache on drives; a blank is no infinity."""
    both = Study(("flexgen-dram", "hilos"), ("opt-30b",), batch="4", context="1k")
    requests = table(both)["endurance_requests"].astype(float)
    assert np.isnan(requests).tolist() == [True, False]
    assert 0 < requests[1] < np.inf


def test_a_platform_without_a_server_has_no_rack_units_and_no_hourly_price() -> None:
    hw = load_platform("aipc-4090").machine()
    answer = Evaluated(estimate("full-cache"), hw, ("gpu",))
    assert np.isnan(rack_units(answer))
    assert np.isnan(usd_hour(answer))
    assert np.isnan(usd_mtok(answer))
