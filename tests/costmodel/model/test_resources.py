"""Rates and capacities of the resources of a machine, by hand."""

from __future__ import annotations

import pytest

from nearkv.costmodel.model.resources import (
    Gpu,
    attention_kernel,
    csd,
    drives,
    gpu,
    host,
    link,
    page_cache,
    per,
)
from nearkv.hardware.catalog import load_platform

HILOS = (
    load_platform("hilos-a100")
    .machine()
    .with_values(
        {
            "csd.count": 3,
            "csd.p2p_read": 5.0,
            "csd.write": 7.0,
            "csd.commit": 0.25,
            "csd.dma": 0.125,
            "csd.page": 64,
            "csd.capacity": 11.0,
            "csd.memory_bandwidth": 40.0,
            "csd.kernel_g1": 48.0,
            "csd.kernel_g4": 256.0,
            "csd.kernel_g5": 100.0,
            "csd.kernel_power_g1": 13.0,
            "csd.kernel_power_g4": 17.0,
            "csd.kernel_power_g5": 19.0,
            "gpu.count": 2,
            "gpu.flops": 100.0,
            "gpu.bandwidth": 30.0,
            "gpu.memory": 9.0,
            "gpu.gemm": 0.5,
            "gpu.hbm": 0.7,
            "derate.pcie": 0.8,
            "gpu_link.count": 2,
            "gpu_link.bandwidth": 6.0,
            "host.count": 2,
            "host.bandwidth": 20.0,
            "host.memory": 80.0,
            "ssd.file_read": 4.0,
            "derate.cpu_attention": 0.1,
            "ssd.count": 4,
            "ssd.read": 6.0,
            "ssd.write": 3.0,
            "ssd.capacity": 8.0,
        }
    )
)


def test_devices_work_at_once() -> None:
    devices = csd(HILOS, 4.0)
    assert (devices.read.rate, devices.write.rate) == (15, 21)
    assert (devices.capacity, devices.page) == (33, 64)
    assert devices.commit.rate == 3 / 0.25
    assert devices.stage.rate == 1 / 0.125
    # 256 FLOP/s at 8 an element and 2 bytes each are 64 B/s, of which memory brings 40
    assert devices.attend.rate == 3 * 40
    assert devices.kernel_power == 3 * 17


@pytest.mark.parametrize(
    ("group", "width", "rate", "power"),
    [
        # kernels of 1, 4 and 5 queries do 24, 32 and 10 elements a second
        (1.0, 1.0, 32.0, 17.0),
        (1.0, 2.0, 40.0, 13.0),
        (4.0, 1.0, 32.0, 17.0),
        # eight queries pass the second kernel twice
        (8.0, 1.0, 16.0, 17.0),
        (20.0, 1.0, 32.0 / 5, 17.0),
    ],
)
def test_the_kernel_that_is_fastest_attends(
    group: float, width: float, rate: float, power: float
) -> None:
    fastest, watts = attention_kernel(HILOS.csd, group, width)
    assert (fastest, watts) == pytest.approx((rate, power))


def test_parts_are_as_many_times_as_fast_as_there_are() -> None:
    gpus = gpu(HILOS)
    assert (gpus.run.rate, gpus.memory) == (100, 18)
    assert gpus.read.rate == pytest.approx(42)
    hosts = host(HILOS)
    assert (hosts.read.rate, hosts.attend.rate) == (40, 4)
    assert hosts.memory == pytest.approx(160 * 0.972)
    # a file system is one, whatever hosts read it
    assert page_cache(HILOS, "ssd").rate == 4
    lanes = link(HILOS, "gpu_link", "pcie")
    assert lanes.inward.rate == lanes.outward.rate == pytest.approx(9.6)
    disks = drives(HILOS, "ssd")
    assert (disks.read.rate, disks.write.rate, disks.capacity) == (24, 12, 32)


def test_no_delay_is_no_bound() -> None:
    assert per(0.25, 3.0) == 12
    assert per(0.0) == float("inf")


def gpu_of(platform: str) -> Gpu:
    return gpu(load_platform(platform).machine())


def test_a_gpu_runs_narrow_products_at_the_rate_that_its_part_states() -> None:
    h200 = gpu_of("hgx-h200")
    # FP8 reaches half of its 1,979 TFLOP/s, 16 bits 0.77 of 989.5; there is no rate of 4 bits
    assert h200.products(1.0).rate == pytest.approx(8 * 0.51 * 1979e12)
    assert h200.run.rate == pytest.approx(8 * 0.77 * 989.5e12)
    assert h200.products(0.5).rate == h200.run.rate
    assert h200.products(2.0).rate == h200.run.rate
    rtx = gpu_of("aipc-5090")
    assert rtx.products(0.5).rate / rtx.products(1.0).rate == pytest.approx(
        0.6 * 1676 / (0.68 * 419)
    )
    a100 = gpu_of("hilos-a100")
    assert a100.products(0.5).rate == a100.run.rate


def test_a_drives_link_carries_what_packets_leave_and_a_gpus_what_copies_reach() -> None:
    """PCIe 4.0 x4 carries 0.945 of 7.88 GB/s for a drive, whatever copies by a GPU reach."""
    hw = load_platform("colibri-5070ti").machine().with_values({"derate.pcie": 0.5})
    assert link(hw, "ssd_link", "pcie").inward.rate == pytest.approx(0.945 * 7.88e9)
    gpu_link = link(hw, "gpu_link", "pcie").inward.rate
    assert gpu_link == pytest.approx(0.5 * hw.gpu_link.bandwidth)
    # 512 bytes of data in packets of 536: no drive reaches more (Neugebauer et al. 2018, sec. 3)
    assert hw.ssd_link.payload <= 512 / 536
