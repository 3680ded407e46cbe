"""Sub-batches of L3: the paper's example, the MILP against brute force, bounds, time limits, bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import model

from nearkv.costmodel.queue import Load
from nearkv.costmodel.systems.l3 import gpu_side, pim_side
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.errors import InputError
from nearkv.solvers.subbatch.planes import planes
from nearkv.solvers.subbatch.problem import (
    Costs,
    Schedule,
    SubbatchProblem,
    costs_of,
    even_halves,
    exhaustive,
    gpu_seconds,
    least_decode,
    phases,
    pim_seconds,
)
from nearkv.solvers.subbatch.rules import greedy, one_batch
from nearkv.solvers.subbatch.schedule import EPSILON, evenest, optimal

COMMAND = Path(sys.executable).with_name("nearkv")
HW = load_platform("dgx-a100-pim").machine()
LLM = model("gpt-175b", HW)
COSTS = costs_of(HW, LLM)
EXAMPLE = np.array([2048.0, 3072.0, 4096.0, 5120.0])
EVERYWHERE = np.full(4, -1)


def problem(
    contexts: np.ndarray, homes: np.ndarray, prompts: list[float], costs: Costs = COSTS
) -> SubbatchProblem:
    return SubbatchProblem(contexts, homes, 4, np.array(prompts), costs)


def drawn(seed: int, most: int, prompts: int = 0) -> SubbatchProblem:
    random = np.random.default_rng(seed)
    n = int(random.integers(2, most + 1))
    contexts = np.floor(random.lognormal(9.5, 1.0, n)) + 1
    homes = random.integers(0, 4, n) if seed % 2 else np.full(n, -1)
    waiting = np.floor(random.lognormal(5.5, 1.0, prompts)) + 1
    return problem(contexts, homes, waiting.tolist())


def test_planes_are_the_seconds_of_the_tree() -> None:
    random = np.random.default_rng(0)
    for n, hottest, prompt, squares in random.uniform(2, 1e5, (20, 4)):
        load = Load(n, hottest, hottest, prompt, squares)
        chunks = ((0, prompt),)
        tree = LLM.layers * gpu_side(HW, LLM, Load(n, 0.0, 0.0, prompt, prompt**2))
        assert gpu_seconds(COSTS, n, chunks) == pytest.approx(tree.seconds, rel=1e-9)
        pim = LLM.layers * pim_side(HW, LLM, load, 1.0)
        assert np.max(COSTS.pim @ [1.0, n, hottest, prompt]) >= pim.seconds * (1 - 1e-9)


def test_planes_refuse_what_is_not_affine() -> None:
    mixture = model("mixtral-8x7b", HW)
    with pytest.raises(InputError, match="not affine"):
        costs_of(HW, mixture)
    with pytest.raises(InputError, match="not affine"):
        planes(lambda n: gpu_side(HW, LLM, Load(n * n, 0.0, 0.0)), 1)


def test_example_of_section_5_3() -> None:
    in_one = even_halves(EXAMPLE)  # 2k and 5k against 3k and 4k
    assert sorted([sorted(EXAMPLE[in_one]), sorted(EXAMPLE[~in_one])]) == [
        [2048, 5120],
        [3072, 4096],
    ]
    halves = evenest(EXAMPLE)
    assert halves.larger == halves.bound == 7168
    assert EXAMPLE[halves.in_one].sum() == 7168


def test_the_rule_is_not_always_even() -> None:
    contexts = (
        np.array([3.0, 3.0, 2.0, 2.0, 2.0]) * 1000
    )  # longest first gives 7 and 5, the best is 6 and 6
    in_one = even_halves(contexts)
    assert max(contexts[in_one].sum(), contexts[~in_one].sum()) == 7000
    halves = evenest(contexts)
    assert (halves.larger, halves.bound) == (6000, 6000)


def test_a_small_batch_should_not_be_split() -> None:
    asked = problem(EXAMPLE, EVERYWHERE, [])
    rule, best = greedy(asked), optimal(asked)
    assert best.proof == "optimal"
    assert best.in_one.sum() in (0, 4)
    assert best.decode < 0.62 * rule.decode  # the weights are read once instead of twice


def test_greedy_fills_the_gpu_up_to_the_other_sub_batch() -> None:
    contexts = np.full(60, 9000.0)
    found = greedy(problem(contexts, np.full(60, -1), [500.0, 4000.0, 900.0]))
    assert [len(chunks) for chunks in found.chunks] == [1, 1]
    for s in (0, 1):
        sizes = [tokens for _, tokens in found.chunks[s]]
        assert sizes[-1] % 16 == 0
        limit = pim_seconds(
            problem(contexts, np.full(60, -1), []), ~found.in_one if s else found.in_one, 0.0
        )
        longer = ((0, sum(sizes) + 32.0),)
        assert gpu_seconds(COSTS, 30.0, found.chunks[s]) <= limit < gpu_seconds(COSTS, 30.0, longer)


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_milp_is_never_worse_than_greedy_or_trying_all(first: int) -> None:
    for seed in range(first, first + 20):
        asked = drawn(seed, 9)
        best, (_, least) = optimal(asked, 20.0), exhaustive(asked)
        assert best.proof == "optimal", seed
        assert best.decode == pytest.approx(least, rel=1e-5), seed
        assert best.decode <= greedy(asked).decode * (1 + 1e-12), seed
        assert best.bound <= least * (1 + 1e-9), seed
        assert 0 < least_decode(asked) <= least * (1 + 1e-12), seed


@pytest.mark.parametrize("first", range(0, 100, 25))
def test_prompts_leave_the_proof_of_decoding_alone(first: int) -> None:
    for seed in range(first, first + 25):
        asked = drawn(seed, 6, prompts=2)
        best, (_, least) = optimal(asked, 20.0), exhaustive(asked)
        assert best.decode == pytest.approx(least, rel=1e-5), seed
        assert best.gap < 1e-5, seed
        assert best.decode * (1 - 1e-12) <= best.split_decode == sum(phases(asked, best.in_one)), (
            seed
        )
        assert best.seconds <= best.decode * (1 + EPSILON) * (1 + 3e-6), seed


def test_milp_equals_trying_all_of_twelve_requests() -> None:
    for seed in (1, 2):
        random = np.random.default_rng(seed)
        asked = problem(np.floor(random.uniform(1e3, 6e4, 12)), random.integers(0, 4, 12), [])
        assert optimal(asked, 20.0).decode == pytest.approx(exhaustive(asked)[1], rel=1e-5)


def most_prompt_tokens(asked: SubbatchProblem, limit: float) -> float:
    """Every split, and every chunk of one prompt in each sub-batch or none: at most two prompts."""
    lengths = asked.prompts.tolist()
    sizes = [[0.0, *np.arange(16.0, length, 16.0), length] for length in lengths]
    best, n = 0.0, len(asked.contexts)
    for code in range(2**n):
        split = (code >> np.arange(n)) % 2 == 1
        for a in sizes[0]:
            for b in sizes[1]:
                for where in (((0, a), (1, b)), ((1, b), (0, a))):
                    chunks = tuple(((where[s]),) if where[s][1] else () for s in (0, 1))
                    if a + b > best and sum(phases(asked, split, chunks)) <= limit:  # type: ignore[arg-type]
                        best = a + b
                for both in ((((0, a), (1, b)), ()), ((), ((0, a), (1, b)))):
                    parts = (a not in (0.0, lengths[0])) + (b not in (0.0, lengths[1]))
                    kept = tuple(tuple(c for c in half if c[1]) for half in both)
                    if parts <= 1 and a + b > best and sum(phases(asked, split, kept)) <= limit:  # type: ignore[arg-type]
                        best = a + b
    return best


def test_most_prompt_tokens_equal_trying_all() -> None:
    for seed in (0, 3):
        random = np.random.default_rng(seed)
        contexts = np.floor(random.uniform(5e4, 1.4e5, 4))
        asked = problem(contexts, np.full(4, -1), [150.0, 90.0])
        best = optimal(asked, 30.0)
        assert best.proof == "optimal"
        assert best.seconds <= best.decode * (1 + EPSILON) * (1 + 3e-6)
        assert best.prompt_tokens == pytest.approx(
            most_prompt_tokens(asked, best.decode * (1 + EPSILON) * (1 + 2e-6))
        )


def test_chunks_obey_the_rules_and_beat_the_greedy() -> None:
    for seed in range(6):
        asked = drawn(seed, 30, prompts=4)
        rule, best = greedy(asked), optimal(asked, 5.0)
        assert best.prompt_tokens <= best.most_tokens
        if rule.decode <= best.decode * (1 + 1e-9) and rule.seconds <= best.decode * (1 + EPSILON):
            assert best.prompt_tokens >= rule.prompt_tokens
        used = [j for chunks in best.chunks for j, _ in chunks]
        assert len(used) == len(set(used))
        for chunks in best.chunks:
            parts = [tokens for j, tokens in chunks if tokens != asked.prompts[j]]
            assert len(parts) <= 1
            assert all(
                tokens % 16 == 0 and tokens <= asked.prompts[j]
                for j, tokens in chunks
                if tokens in parts
            )


def test_a_time_limit_is_said_and_the_bound_stays_below() -> None:
    asked = drawn(7, 40, prompts=10)
    hurried, patient = optimal(asked, 1e-6), optimal(asked, 2.0)
    assert hurried.proof == "time limit"
    assert 0 < hurried.bound <= patient.decode <= hurried.decode * (1 + 1e-9)
    assert hurried.decode <= min(greedy(asked).decode, one_batch(asked).decode)
    assert isinstance(hurried, Schedule)
    hurried_halves = evenest(asked.contexts, 1e-6)
    patient_halves = evenest(asked.contexts, 2.0)
    assert hurried_halves.bound <= patient_halves.larger <= hurried_halves.larger


def test_bad_problems_are_refused() -> None:
    with pytest.raises(InputError, match="no requests"):
        problem(np.zeros(0), np.zeros(0), [])
    with pytest.raises(InputError, match="less than one token"):
        problem(np.array([-4.0]), np.full(1, -1), [])
    with pytest.raises(InputError, match="too many to try"):
        exhaustive(problem(np.full(17, 10.0), np.full(17, -1), []))


# --- command ----------------------------------------------------------------------------------


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=False)


def test_command_gives_both_splits_with_times_bound_and_gap() -> None:
    asked = (
        "--requests",
        "2k,3k,4k,5k",
        "--model",
        "gpt-175b",
        "--platform",
        "dgx-a100-pim",
        "--format",
        "json",
    )
    rows = json.loads(run("solve", "subbatch", *asked).stdout)
    by = {(row["load"], row["method"]): row for row in rows}
    assert by["tokens", "greedy"]["sub_batch_0"] == [2048, 5120]
    assert by["tokens", "greedy"]["sub_batch_1"] == [3072, 4096]
    assert by["tokens", "greedy"]["proof"] == "optimal"
    best = by["modelled", "optimal"]
    assert best["proof"] == "optimal"
    assert best["gap"] < 1e-9
    assert best["iteration_ms"] == pytest.approx(best["phase_0_ms"] + best["phase_1_ms"])
    assert {"chunks_0", "chunks_1", "bound_ms", "decode_ms"} <= best.keys()
    assert by["modelled", "greedy"]["loss"] > 0.2
    assert by["modelled", "one-batch"]["decode_ms"] == pytest.approx(best["decode_ms"])


def test_command_takes_a_trace_and_a_csv(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("input_tok,output_tok\n" + "300,9000\n40,2000\n" * 30)
    for requests in ("dolphin", str(path)):
        done = run(
            "solve", "subbatch", "--requests", requests, "--model", "gpt-175b", "--time-limit", "2"
        )
        assert done.returncode == 0, done.stderr
        assert "optimal" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--requests", "900000"], "exceed the 466,034 that the DIMMs of a replica hold"),
        (["--requests", "2k,-3"], "must be a whole number, 1 or more"),
        (["--requests", ""], "--requests '': names nothing"),
        (["--requests", "dolfin"], "did you mean 'dolphin'"),
        (["--requests", "none.csv"], "cannot be read"),
        (["--requests", "2k", "--placement", "odd"], "unknown placement 'odd'"),
        (
            ["--requests", "2k", "--prompts", "1k,2k", "--slack", "inf"],
            "--slack inf: must be a number",
        ),
        (
            ["--requests", "2k", "--prompts", "1000000000000"],
            "--prompts: 1,000,000,000,000 tokens exceed the",
        ),
        (["--requests", "2k", "--time-limit", "0"], "must be a number of seconds above 0"),
        (["--requests", "2k", "--platform", "hilos-a100"], "has no 'dimm'"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_two(arguments: list[str], message: str) -> None:
    done = run("solve", "subbatch", "--model", "gpt-175b", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_compare_prints_twelve_cells_for_each_system() -> None:
    asked = (
        "--model",
        "opt-66b,gpt-89b,gpt-175b",
        "--trace",
        "openr1,dolphin,openthoughts,longbench",
    )
    rows = json.loads(
        run(
            "compare",
            "gpu-only",
            "cpu-offload",
            "rank-pim",
            "hbm-pim",
            "l3",
            *asked,
            "--format",
            "json",
        ).stdout
    )
    assert len(rows) == 60
    cells: dict[tuple[str, str], dict[str, float]] = {
        (row["model"], row["trace"]): {} for row in rows
    }
    for row in rows:
        cells[row["model"], row["trace"]][row["system"]] = row["throughput_tok_s"] or 0
    assert all(max(cell, key=cell.__getitem__) == "l3" for cell in cells.values())
    blank = {
        (row["system"], row["model"], row["trace"]) for row in rows if row["short_of"] == "gpu"
    }
    # prompts ride in the steps of l3, which then tell nothing of decoding
    assert all(
        (row["step_ms"] is None) == (row["system"] == "l3" or row["short_of"] != "") for row in rows
    )
    assert all(row["total_speedup"] is not None for row in rows if row["model"] != "opt-66b")
    assert {s for s, *_ in blank} == {"gpu-only", "hbm-pim"}
    assert {(m, t) for _, m, t in blank} == {("opt-66b", "openr1"), ("opt-66b", "openthoughts")}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trace", "dolfin"], "did you mean 'dolphin'"),
        (["--trace", "dolphin", "--context", "8k"], "--trace brings its own requests"),
        (["--method", "simulate"], "name one with --trace"),
        (["--trace", "dolphin", "--method", "guess"], "unknown method 'guess'"),
    ],
)
def test_bad_traces_are_one_sentence(arguments: list[str], message: str) -> None:
    done = run("compare", "gpu-only", "l3", "--model", "gpt-175b", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_only_systems_with_a_queue_can_be_simulated() -> None:
    done = run(
        "compare", "hilos", "--model", "opt-66b", "--trace", "dolphin", "--method", "simulate"
    )
    assert done.returncode == 2
    assert "has no queue to play" in done.stderr


def test_simulated_rows_say_so_and_leave_blank_what_they_do_not_answer() -> None:
    asked = (
        "--model",
        "opt-66b",
        "--trace",
        "openr1,dolphin",
        "--method",
        "simulate",
        "--format",
        "json",
    )
    rows = json.loads(run("compare", "gpu-only", "l3", *asked).stdout)
    assert {row["method"] for row in rows} == {"simulate"}
    assert [row["throughput_tok_s"] is None for row in rows] == [True, False, False, False]
    assert all(row["step_ms"] is None for row in rows)
