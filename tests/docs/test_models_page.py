"""docs/models.md: every block prints what its command prints, and the prose repeats the blocks."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from support.command_line import succeed
from support.systems import SYSTEMS, machine_of, model

from nearkv.costmodel.model.resources import csd
from nearkv.sweeps.evaluate.models import kv_per_token

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
PROSE = " ".join(PAGE.split())
SHOWN = {
    command: printed
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.S | re.M)
    for command, printed in re.findall(r"^\$ nearkv (.*)\n((?:[^$].*\n|\n)*)", block, re.M)
}
"""What the page shows below each command."""


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    """Lines that the commands of the page print on a terminal of 80 columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        return {command: succeed(*shlex.split(command)) for command in SHOWN}


@pytest.mark.slow
def test_every_block_shows_what_its_command_prints(printed: dict[str, str]) -> None:
    assert len(SHOWN) == 5
    for command, shown in SHOWN.items():
        assert printed[command].rstrip() == shown.rstrip(), command


def milliseconds(text: str, system: str, *cells: str) -> float:
    """The step of a system's row that holds these cells."""
    rows = [line.split() for line in text.splitlines() if line.startswith(f"{system} ")]
    row = next(row for row in rows if set(cells) <= set(row))
    return float(row[-2].replace(",", ""))


def of_model(printed: dict[str, str], name: str) -> str:
    return next(text for command, text in printed.items() if f"--model {name} " in command)


CELLS = {
    "llama3.1-70b": ("Llama-3.1-70B", ()),
    "qwen3-32b": ("Qwen3-32B", ()),
    "gpt-oss-120b": ("gpt-oss-120b", ("65536",)),
    "deepseek-v3": ("DeepSeek-V3", ("paper",)),
}
"""Title of a model's row in the table, and cells of its row in the blocks."""


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_the_table_repeats_the_blocks(printed: dict[str, str], name: str) -> None:
    title, cells = CELLS[name]
    llm, text = model(name), of_model(printed, name)
    flexgen = milliseconds(text, "flexgen-ssd", *cells) / 1e3
    hilos = milliseconds(text, "hilos", *cells) / 1e3
    cache, weights = 16 * llm.kv_cache_bytes(1, 65536.0) / 1e9, llm.weight_bytes / 1e9
    row = f"| {title} | {kv_per_token(llm):,.0f} B | {cache:.0f} GB | {weights:.0f} GB |"
    assert f"{row} {flexgen:.1f} s | {hilos:.1f} s |" in PAGE


@pytest.mark.slow
def test_where_hilos_loses_to_flexgen_on_latents(printed: dict[str, str]) -> None:
    text = of_model(printed, "deepseek-v3")
    steps = {
        (system, weights): milliseconds(text, system, weights)
        for system in ("flexgen-ssd", "hilos")
        for weights in ("paper", "filled")
    }
    within = steps["flexgen-ssd", "paper"] / steps["hilos", "paper"]
    assert 1 < within < 1.1
    assert "within a tenth of HILOS" in PROSE
    faster = steps["hilos", "filled"] / steps["flexgen-ssd", "filled"]
    assert f"{faster:.1f} times as fast" in PROSE


def test_what_a_kernel_must_do_with_latents() -> None:
    """Each element of a row takes 128 x (576 + 512) / 576 multiply-adds, a kernel does 5."""
    each = 128 * (576 + 512) / 576
    latent = model("deepseek-v3").layer_types["latent_moe"]
    assert latent.group == pytest.approx(each)
    assert f"{each:.0f} for each" in PROSE
    assert f"passes the row {-(-each // 5):.0f} times" in PROSE
    hw = machine_of(SYSTEMS["hilos"])
    # two FLOPs a multiply-add, elements of 2 B at the rate of one drive's flash
    needed = hw.csd.p2p_read / 2 * 2 * each / 1e9
    assert f"{needed:.0f} GFLOP/s, {needed / 56.3:.0f} times the 56.3" in PROSE
    assert hw.csd.kernel_g5 == 56.3e9
    assert f"7,168 elements, {7168 / 576:.1f} times the latent" in PROSE


def test_two_passes_of_a_group_of_eight_keep_ahead_of_the_flash() -> None:
    devices = csd(machine_of(SYSTEMS["hilos"]), 8.0)
    assert devices.attend.rate > devices.read.rate
    for name, times in (("llama3.1-70b", "4 times as large"), ("qwen3-32b", "2.5 times")):
        llm = model(name)
        assert times.split()[0] == f"{llm.x_bytes(1, 1) / llm.kv_bytes(1, 1):g}"
        assert times in PROSE


def test_what_windows_and_states_keep() -> None:
    assert f"{18 * 128 * 2 * 8 * 64 * 2 / 1e6:.1f} MB a sequence" in PROSE
    jamba = model("jamba-v0.1")
    assert f"{jamba.all_state_bytes(1) / 1e6:.1f} MB for a sequence of Jamba" in PROSE
    assert f"take {jamba.kv_cache_bytes(1, 65536.0) / 1e9:.1f} GB at 64k" in PROSE
    latents, heads = model("deepseek-v3"), model("llama3.1-70b")
    assert 0.15 < kv_per_token(latents) / kv_per_token(heads) < 0.25
    assert "a fifth of the cache of Llama-3.1-70B" in PROSE
