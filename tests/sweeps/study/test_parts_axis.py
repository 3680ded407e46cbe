"""Parts as an axis: `--part ROLE=A,B` puts each in the role, and every table says which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nearkv
from nearkv.hardware.catalog import load_part, load_platform
from nearkv.hardware.errors import InputError, NearkvWarning
from nearkv.sweeps.jobs.plan import digest_of, plan
from nearkv.sweeps.study.study import Study


def test_a_swapped_part_keeps_what_its_place_adds() -> None:
    """Eight devices stay eight; numbers of the old part that the new one lacks are gone."""
    platform = load_platform("hilos-a100")
    isp = load_part("isp")
    csd = platform.with_part("csd", isp, "isp").roles["csd"].si
    assert csd == {**isp.si, "count": 8, "file_read": 10e9}
    assert "kernel_g4" in platform.roles["csd"].si
    assert "kernel_g4" not in csd
    raid = platform.with_part("raid", load_part("pm9a3"), "pm9a3").roles["raid"].si
    assert (raid["count"], raid["array_read"]) == (16, 6.4e9)


def test_a_number_of_the_old_part_does_not_stay_with_the_new(tmp_path: Path) -> None:
    """A platform that overrides a rate of its SmartSSDs says nothing of another device."""
    file = tmp_path / "mine.toml"
    file.write_text('base = "hilos-a100"\n[csd]\ncount = 4\np2p_read = "12 GB/s"\n')
    csd = load_platform(str(file)).with_part("csd", load_part("isp"), "isp").roles["csd"].si
    assert (csd["count"], csd["p2p_read"]) == (4, 16e9)


def test_a_swap_is_the_platform_with_that_part(tmp_path: Path) -> None:
    file = tmp_path / "h200.toml"
    file.write_text('base = "hilos-a100"\n[gpu]\npart = "h200-sxm"\ncount = 1\n')
    swapped = nearkv.sweep(systems="hilos", model="opt-66b", parts={"gpu": "h200-sxm"})
    whole = nearkv.sweep(systems="hilos", model="opt-66b", platform=str(file))
    differing = {"platform", "gpu.part"}
    for name in swapped.columns.difference(list(differing)):
        assert swapped[name].equals(whole[name]), name


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:--by")  # one of the parts has no price
def test_every_table_has_a_column_for_it() -> None:
    parts = {"gpu": "a100-40gb,h200-sxm", "csd": ["smartssd", "isp"]}
    rows = nearkv.compare("hilos", "opt-66b", parts=parts)
    pairs = rows[["gpu.part", "csd.part"]].values.tolist()
    gpus, csds = ("a100-40gb", "h200-sxm"), ("smartssd", "isp")
    assert pairs == [[gpu, csd] for gpu in gpus for csd in csds]
    front = nearkv.pareto(systems="hilos", model="opt-66b", parts=parts)
    assert {"gpu.part", "csd.part"} <= set(front.columns)
    placed = {"weights": "host"}
    stated: dict[str, Any] = {
        "alpha": {"knobs": placed},
        "spill": {"knobs": placed},
        "batch": {"knobs": {**placed, "alpha": 0.25}},
    }
    for question, words in stated.items():
        answer = nearkv.solve(question, "opt-66b", systems="hilos", parts=parts, **words)
        assert answer[["gpu.part", "csd.part"]].values.tolist() == pairs, question


def test_other_parts_are_another_sweep() -> None:
    def key(gpu: str) -> str:
        rows = plan(Study(("hilos",), ("opt-66b",), parts={"gpu": gpu}))
        return digest_of(rows.blocks)

    assert key("h100-sxm") != key("h200-sxm")


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"gpu": "smartssd"}, "smartssd is a part of type csd; this role takes gpu"),
        ({"gup": "h200-sxm"}, "did you mean 'gpu'"),
        ({"gpu": "h300"}, "unknown part 'h300'"),
        ({"gpu": "h200-sxm,h200-sxm"}, "names 'h200-sxm' twice"),
        ({"gpu": "./none.toml"}, "does not exist"),
        ({"derate": "h200-sxm"}, "is a part of type gpu"),
    ],
)
def test_a_part_that_does_not_fit_gets_a_sentence(parts: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        nearkv.compare("hilos", "opt-66b", parts=parts)


def test_questions_of_their_own_take_parts_too() -> None:
    """A GPU of 80 GB in place of a T4 holds more weights; heads are mapped on other LPDDR."""
    gpus = {"gpu": "t4,a100-80gb"}
    with pytest.warns(NearkvWarning, match="its rates are those of the role offload"):
        placed = nearkv.solve("placement", model="opt-30b", parts=gpus)
    assert placed["gpu.part"].tolist() == ["t4", "a100-80gb"]
    assert placed["throughput_tok_s"].is_monotonic_increasing
    assert placed["wg"].iloc[1] > placed["wg"].iloc[0]
    memories = {"lpddr": "lpddr5x-512gb,lpddr5x-128gb"}
    mapped = nearkv.solve("mapping", model="gpt3-175b", parts=memories)
    assert mapped["lpddr.part"].tolist() == ["lpddr5x-512gb", "lpddr5x-128gb"]
    split, usual = (
        nearkv.solve("subbatch", "gpt-89b", requests="2k,3k", parts=parts)
        for parts in ({"gpu": "h200-sxm"}, {"gpu": "a100-80gb"})
    )
    assert split["iteration_ms"].iloc[-1] < usual["iteration_ms"].iloc[-1]
    with pytest.raises(InputError, match=r"this takes one model, .* one part of a role"):
        nearkv.solve("subbatch", "gpt-89b", requests="2k,3k", parts={"gpu": "h200-sxm,h100-sxm"})
