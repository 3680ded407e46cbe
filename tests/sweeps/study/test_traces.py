"""Traces of requests: drawn lengths, moments, and CSV files that users write."""

from __future__ import annotations

from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest

from nearkv.hardware.catalog import load_part
from nearkv.hardware.errors import InputError, NearkvWarning
from nearkv.sweeps.study.traces import Trace, draw, load_trace, workload_of


@pytest.mark.parametrize(
    ("name", "prompt", "prompt_std", "output", "output_std"),
    [  # Table 4
        ("openr1", 96.0, 75.1, 12684.1, 8464.6),
        ("dolphin", 201.9, 563.0, 3926.2, 4216.0),
        ("openthoughts", 89.4, 66.7, 6366.7, 4662.9),
        ("longbench", 7703.9, 4285.5, 89.8, 213.7),
    ],
)
def test_drawn_traces_have_the_moments_of_table_4(
    name: str, prompt: float, prompt_std: float, output: float, output_std: float
) -> None:
    trace = draw(load_part(name, "trace"), 200_000, seed=1)
    assert trace.prompt.mean() == pytest.approx(prompt, rel=0.02)
    assert trace.prompt.std() == pytest.approx(prompt_std, rel=0.03)
    assert trace.output.mean() == pytest.approx(output, rel=0.03)
    assert trace.output.std() == pytest.approx(output_std, rel=0.04)
    assert min(trace.prompt.min(), trace.output.min()) >= 1


def test_the_law_decides_how_many_answers_are_one_token() -> None:
    # mean 89.8 and deviation 213.7 (Table 4): variance of the logarithm ln(1 + 5.66) = 1.90, so
    # the median is 89.8 e^-0.95 = 34.8; a Beta law of the same moments has 0.1 answers below 1
    beta, lognormal = (
        draw(load_part(name, "trace"), 100_000, seed=1).output
        for name in ("longbench", "longbench-lognormal")
    )
    assert np.median(lognormal) == pytest.approx(34.8, abs=0.7)
    assert np.mean(lognormal == 1) < 0.02  # ln 1.5 is 2.3 deviations below
    assert np.mean(beta == 1) > 0.4
    assert lognormal.mean() == pytest.approx(89.8, rel=0.06)  # cut at 2,048 tokens


def test_the_seed_decides_the_requests() -> None:
    same, other = load_trace("dolphin", seed=3), load_trace("dolphin", seed=4)
    assert np.array_equal(same.output, load_trace("dolphin", seed=3).output)
    assert not np.array_equal(same.output, other.output)


def test_a_weight_is_a_share_of_the_requests() -> None:
    prompt, output, known = np.array([10.0, 100.0]), np.array([2.0, 8.0]), np.array([3.0, 0.0])
    weighted = Trace("", prompt, output, known=known, weights=np.array([0.7, 0.3])).workload
    ten = [0] * 7 + [1] * 3
    repeated = Trace("", prompt[ten], output[ten], known=known[ten]).workload
    assert (weighted.prompt, weighted.output) == pytest.approx((repeated.prompt, repeated.output))
    assert weighted.spread
    assert repeated.spread
    assert weighted.spread.product == pytest.approx(repeated.spread.product)
    assert weighted.spread.context_square == pytest.approx(repeated.spread.context_square)
    lengths = (astuple(each.lengths) for each in (weighted.spread, repeated.spread))
    for one, other in zip(*lengths, strict=True):
        assert one == pytest.approx(other)


def test_moments_are_those_of_every_token_decoded() -> None:
    trace = Trace("two", np.array([10.0, 100.0]), np.array([2.0, 8.0]))
    # every token of every request, seen at the middle of its step
    contexts = [
        s + t + 0.5 for s, n in zip(trace.prompt, trace.output, strict=True) for t in range(int(n))
    ]
    work = trace.workload
    assert work.context == pytest.approx(np.mean(contexts))
    assert work.spread.context_square == pytest.approx(
        np.mean(np.square(contexts)) / np.mean(contexts) ** 2, rel=1e-3
    )
    assert work.longest == 108
    assert workload_of((trace, trace), np.array([0, 1])).context == pytest.approx(
        [work.context] * 2
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no column 'input_tokens'; it has none"),
        ("input_tokens,output_tokens\n", "holds no lines below a header"),
        ("input_tokens,out\n1,2\n", "has no column 'output_tokens'; it has input_tokens, out"),
        (
            "input_tokens,output_tokens\n5,6\n5,many\n",
            "line 3, output_tokens: 'many' must be a whole number",
        ),
        ("input_tokens,output_tokens\n-5,6\n", "line 2, input_tokens: '-5' must be a whole number"),
        ("input_tokens,output_tokens\n5\n", "line 2 has 1 cells for 2 columns"),
        ("input_tokens,output_tokens,input_tokens\n5,6,7\n", "a column is there twice"),
        (
            "input_tokens,output_tokens\n5,nan\n",
            "line 2, output_tokens: 'nan' must be a whole number",
        ),
    ],
)
def test_a_bad_csv_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load_trace(str(path))


def test_a_file_in_another_encoding_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not a CSV file"):
        load_trace(str(path))


def test_a_csv_keeps_its_requests(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        "\ufeffinput_tokens, output_tokens ,id\n5,6,a\n7,8,b\n", encoding="utf-8"
    )  # as spreadsheets write it
    with pytest.warns(NearkvWarning, match="'id' not"):
        trace = load_trace(str(path))
    assert trace.prompt.tolist() == [5, 7]
    assert trace.output.tolist() == [6, 8]


def test_published_formats_are_taken_for_their_lengths(tmp_path: Path) -> None:
    """As BurstGPT and Mooncake publish them; `reuse` reads the same files."""
    table = tmp_path / "burst.csv"
    table.write_text("Timestamp,Model,Request tokens,Response tokens\n35,a,17,2\n37,a,16,3\n")
    lines = tmp_path / "mooncake.jsonl"
    request = '"input_length": 1000, "output_length": 5, "hash_ids": [1, 2]}\n'
    lines.write_text(f'{{"timestamp": 0, {request}{{"timestamp": 500, {request}')
    burst, mooncake = load_trace(str(table)), load_trace(str(lines))
    assert burst.prompt.tolist() == [17, 16]
    assert burst.output.tolist() == [2, 3]
    assert burst.rate == pytest.approx(0.5)
    assert mooncake.prompt.tolist() == [1000, 1000]
    assert mooncake.rate == pytest.approx(2)


def test_what_a_cache_has_is_not_computed_but_attended_to() -> None:
    """Prompts of 100 and 300, of which 40 and 0 are known: contexts stay."""
    whole = Trace("t", np.array([100.0, 300.0]), np.array([8.0, 8.0]))
    known = replace(whole, known=np.array([40.0, 0.0]))
    assert known.workload.prompt == pytest.approx(180)
    assert known.workload.context == pytest.approx(whole.workload.context)
    assert known.workload.spread.prompt_square == pytest.approx((60**2 + 300**2) / 2 / 180**2)
