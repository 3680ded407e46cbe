"""`--rate`, `--users` and `--slo`, as a user types them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from support.command_line import refusal, succeed

import nearkv

GPU = ("gpu", "--model", "llama3.1-8b", "--context", "2k", "--knob", "tp=1", "--knob", "dp=1")


def goodput(slo: str) -> pd.DataFrame:
    return nearkv.compare(
        "gpu",
        model="llama3.1-8b",
        context="2k",
        output_tokens=128,
        rate=[1, 2],
        knobs={"tp": 1, "dp": 1, "pp": 1, "ep": 1},
        slo=slo,
    )


def test_goodput_is_what_keeps_the_limits() -> None:
    kept = goodput("ttft_s=60,tpot_ms=500")
    assert kept["goodput_req_s"].tolist() == pytest.approx([1, 2], rel=1e-3)
    # by Little's law
    present = kept["goodput_req_s"] * kept["total_s"]
    assert kept["users_served"].tolist() == pytest.approx(present.tolist(), rel=1e-3)
    assert goodput("tpot_ms=0.1")["goodput_req_s"].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--rate", "1", "--users", "2"), "--rate and --users: requests come by one of them"),
        (("--rate", "1", "--batch", "4"), "--batch: its requests all wait"),
        (("--users", "4", "--per-round", "2"), "--per-round: its requests all wait"),
        (("--rate", "2GB/s"), "--rate: '2GB/s' has a unit; leave it out, as in 0.5"),
        (("--rate", "1", "--slo", "tpot_ms=66ms"), "--slo tpot_ms: '66ms' has a unit; leave it"),
        (("--rate", "1", "--slo", "ttft_s=1:4:x2"), "'1:4:x2' gives several limits; give one"),
        (("--rate", "0"), "--rate: '0' must be a number above zero"),
        (("--users", "1.5"), "--users: '1.5' must be a whole number"),
        (("--slo", "ttft_s=1"), "--slo: its limits are for requests that arrive; add --rate"),
        (("--rate", "1", "--slo", "step_ms=1"), "unknown limit 'step_ms'"),
        (("--method", "simulate"), "add --trace, --rate or --users"),
    ],
)
def test_bad_load_is_one_sentence(options: tuple[str, ...], said: str) -> None:
    assert said in refusal("estimate", *GPU, *options)


def test_a_static_batch_serves_users_and_no_arrivals() -> None:
    common = ("estimate", "flexgen-dram", "--model", "opt-30b", "--format", "csv")
    users = succeed(*common, "--users", "4", "--columns", "status,ttft_s,users_served")
    assert users.splitlines()[-1].startswith("ok,")
    assert users.strip().endswith(",4")


def test_a_trace_with_arrival_times_is_a_load(tmp_path: Path) -> None:
    trace = tmp_path / "mine.csv"
    rows = [f"{2 * i},1000,20" for i in range(40)]
    trace.write_text("\n".join(["arrival_s,input_tokens,output_tokens", *rows]))
    printed = succeed(
        "estimate",
        *GPU[:3],
        *GPU[5:],
        "--trace",
        str(trace),
        "--method",
        "simulate",
        "--format",
        "csv",
        "--columns",
        "ttft_s,ttft_p99_s,throughput_tok_s",
    )
    mean, most, rate = map(float, printed.splitlines()[-1].split(","))
    # one each two seconds: nobody waits for another
    assert most == pytest.approx(mean)
    assert rate == pytest.approx(10, rel=0.05)


def test_limits_vary_a_study_from_a_file(tmp_path: Path) -> None:
    """Of requests that all wait from the start no limit counts any, with a file or without."""
    study = tmp_path / "study.toml"
    study.write_text('systems = ["flexgen-dram"]\nmodel = ["opt-30b"]\n')
    refused = refusal("sweep", str(study), "--slo", "ttft_s=3")
    assert "slo: its limits are for requests that arrive" in refused


def test_eight_users_that_are_alike_hardly_meet() -> None:
    """One in eighteen begins beside another in 127 iterations; of those simulated, none."""
    asked = {
        method: nearkv.compare(
            "gpu",
            model="llama3.1-8b",
            context="2k",
            output_tokens=128,
            users=[1, 8],
            knobs={"tp": 1, "dp": 1, "pp": 1, "ep": 1},
            method=method,
        )
        for method in ("fluid", "simulate")
    }
    for column in ("ttft_s", "tpot_ms", "batch_run", "throughput_tok_s"):
        closed, simulated = asked["fluid"][column], asked["simulate"][column]
        assert closed.tolist() == pytest.approx(simulated.tolist(), rel=0.06), column


@pytest.mark.parametrize(
    ("load", "method"), [("--users", "fluid"), ("--users", "simulate"), ("--batch", "fluid")]
)
def test_no_more_sequences_run_at_once_than_is_stated(load: str, method: str) -> None:
    options = (load, "64", "--output-tokens", "128", "--knob", "sequences=0,8")
    columns = ("--method", method) if load == "--users" else ()
    printed = succeed(
        "compare", *GPU, *options, *columns, "--columns", "batch_run,total_s", "--format", "csv"
    )
    free, limited = (line.split(",") for line in printed.splitlines()[-2:])
    assert float(limited[0]) <= 8 < float(free[0])
    assert float(limited[1]) > float(free[1])


def test_a_goodput_that_is_no_better_to_a_hundredth_chooses_no_slower_split() -> None:
    """Attention by sequences answers 0.3 % more within the limits, at 1.4 times the TPOT."""
    table = nearkv.compare(
        "gpu",
        model="llama3.1-70b",
        context="8k",
        output_tokens=512,
        platform="hgx-h100",
        rate=0.25,
        slo="ttft_s=2,tpot_ms=40",
        knobs={"tp": 4, "attention": ["dp", "tp", "auto"]},
    )
    tpot, kept = table["tpot_ms"].tolist(), table["goodput_req_s"].tolist()
    assert kept[1] < kept[0] < 1.01 * kept[1]
    assert tpot[2] == tpot[1] < tpot[0]


def test_requests_that_arrive_have_a_prompt() -> None:
    asked = ("estimate", "gpu", "--model", "llama3.1-8b", "--context", "0,1k")
    for arrive in ("--rate", "--users"):
        assert f"leave out {arrive}" in refusal(*asked, arrive, "1")


def test_what_a_limit_is_on_is_shown_of_a_trace_too(tmp_path: Path) -> None:
    trace = tmp_path / "mine.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n0,1000,64\n1,2000,64\n2,500,32\n")
    asked = ("compare", *GPU[:3], "--knob", "tp=1", "--trace", str(trace))
    limited = succeed(*asked, "--slo", "ttft_s=60,tpot_ms=500")
    assert {"ttft_s", "tpot_ms", "goodput_req_s"} <= {*limited.split()}
