"""The best machine against looking at every one, and its certificate against tampering."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from support.designs import alone, by_brute_force, points_of, random_question, searched

import nearkv
from nearkv.hardware.errors import InputError
from nearkv.solvers.boxes import Optimum, Progress
from nearkv.sweeps.explore.design.answer import sentence_of_bound
from nearkv.sweeps.explore.design.certificate import fault_of
from nearkv.sweeps.explore.design.measures import Space

QUESTIONS = int(os.environ.get("NEARKV_CASES", "80")) // 10


def tampered(certificate: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """A certificate with one thing changed that makes it prove less."""
    changed = copy.deepcopy(certificate)
    cuts, best = changed["cuts"], changed["best"]
    row = int(rng.integers(len(cuts)))
    kind = int(rng.integers(6))
    if kind == 0:
        del cuts[row]
    elif kind == 1:
        case = cuts[row][0]
        changed["cuts"] = [cut for cut in cuts if cut[0] != case]
    elif kind == 2:
        cuts[row][2][0] += 1
    elif kind == 3:
        cuts.append(copy.deepcopy(cuts[row]))
    elif kind == 4 and best:
        best[int(rng.integers(len(best)))][2][0] *= 0.99
    else:
        changed["cases"] = [f"{name}x" for name in changed["cases"]]
    return changed


MALFORMED: list[Callable[[dict[str, Any]], object]] = [
    lambda proof: proof["cases"].pop(),
    lambda proof: proof["cases"].reverse(),
    lambda proof: proof["monotone"].clear(),
    lambda proof: proof["monotone"].append("lies: x by y"),
    lambda proof: proof["cuts"][0].__setitem__(0, "0"),
    lambda proof: proof["cuts"][0].__setitem__(0, float(proof["cuts"][0][0])),
    lambda proof: proof["cuts"][0].__setitem__(0, float("inf")),
    lambda proof: proof["cuts"][0].__setitem__(0, 10**30),
    lambda proof: proof["cuts"][0].__setitem__(1, {}),
    lambda proof: proof["cuts"][0].pop(),
    lambda proof: proof["best"][0].__setitem__(0, -1),
    lambda proof: proof["best"][0].__setitem__(0, 10**6),
    lambda proof: proof["best"][0].__setitem__(1, [0.5, 0]),
    lambda proof: proof["best"][0].__setitem__(2, ["1"]),
    lambda proof: proof["best"].append(proof["best"][0]),
    lambda proof: proof["best"].clear(),
    lambda proof: proof.update(cuts={}),
    lambda proof: proof.update(best=None),
    lambda proof: proof.update(open=None),
    lambda proof: proof.pop("goal"),
]  # fmt: skip
"""Ways to spoil a certificate that are no cut of another box."""


def test_a_spoiled_certificate_is_refused_in_one_sentence(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"model": "opt-30b", "context": "16k", "batch": 8}
    asked |= {"systems": "gpu,hilos,flexgen-dram", "servers": "hilos-server,workstation-2gpu"}
    proof = nearkv.design(**asked, budget="40kUSD").attrs["certificate"]
    file = tmp_path / "proof.json"
    for spoil in MALFORMED:
        spoilt = json.loads(proof)
        spoil(spoilt)
        file.write_text(json.dumps(spoilt))
        with pytest.raises(InputError, match=r"does not hold: |is no certificate") as refused:
            nearkv.check_design(file, **asked, budget="40kUSD")
        assert len(str(refused.value).splitlines()) == 1
    file.write_text("[" * 10**5)
    with pytest.raises(InputError, match="is no certificate"):
        nearkv.check_design(file, **asked, budget="40kUSD")


@pytest.mark.parametrize("seed", range(QUESTIONS))
def test_the_best_of_each_system_is_that_of_all_machines(seed: int) -> None:
    """Of up to 10^5 machines, some with mappings of heads, long prompts and replicas."""
    question, space = random_question(seed, most=10.0 ** (2 + seed % 4))
    answer, best = searched(question)
    expected = by_brute_force(space)
    assert best.keys() == expected.keys()
    assert best == pytest.approx(expected, rel=1e-7)
    if answer is None:
        return
    certificate = answer.certificate()
    assert not fault_of(question.space()[0], certificate)
    assert fault_of(question.space()[0], {**certificate, "cuts": []})
    rng = np.random.default_rng(seed)
    for _ in range(3):
        assert fault_of(question.space()[0], tampered(certificate, rng))


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


@pytest.mark.parametrize("limits", ["", "tpot_ms=1e9"])
def test_a_column_that_no_machine_has_is_named(limits: str) -> None:
    """The drive of the desktop states no price, so what a token wears out of it is not known."""
    asked: dict[str, Any] = {"servers": "mac-studio-desktop", "minimize": "usd_mtok"}
    with pytest.raises(InputError, match=r"has (a|no) usd_mtok"):
        nearkv.design("flexgen-percent", "opt-6.7b", slo=limits, **asked)


@pytest.mark.parametrize("seed", range(QUESTIONS))
def test_a_machine_among_others_is_worth_what_it_is_alone(seed: int) -> None:
    """Machines that state other numbers are not evaluated as one array."""
    _, space = random_question(seed, most=1e4)
    case, point = points_of(space.boxes)
    rows = np.random.default_rng(seed).integers(0, len(case), 4)
    together = space.value(case[rows], point[rows])[:, 0]
    every = space.value(case, point)[rows, 0]
    own = [alone(space, int(case[row]), point[row]) for row in rows]
    assert together == pytest.approx(own, rel=1e-9)
    assert every == pytest.approx(own, rel=1e-9)


def test_a_system_that_is_solved_bounds_what_others_may_still_reach() -> None:
    """Of two systems one is solved at 42, the other has open boxes from 77 on."""
    progress = Progress(np.array([42.0, np.inf]), np.array([42.0, 77.0]), 1, 0)
    optimum = cast("Optimum", SimpleNamespace(progress=progress))
    goal = SimpleNamespace(objectives=("cost_usd",))
    space = cast("Space", SimpleNamespace(goal=goal))
    said = "; none is better than cost_usd 42, a gap of 0.0%"
    assert sentence_of_bound(space, optimum) == said
