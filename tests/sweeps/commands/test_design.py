"""`nearkv design` as a user runs it: its machine, its proof, and what it refuses."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from support.command_line import invoke, printed, refusal, succeed

SMALL = ("--server", "workstation-2gpu,pcie-4gpu-server,dgx-spark-desktop")
ASKED = (
    "gpu,full-cache", *SMALL, "--model", "gpt-oss-20b", "--context", "16k",
    "--users", "4", "--output-tokens", "256",
)  # fmt: skip


def test_what_is_printed_of_a_machine_is_what_estimate_says_of_it(tmp_path: Path) -> None:
    file = tmp_path / "machine.toml"
    limits = ("--slo", "tpot_ms=50", "--budget", "60kUSD,3kW")
    text = succeed("design", *ASKED, *limits, "--machine-out", str(file), "--format", "json")
    assert {"count = 1", "years = 4"} <= {*file.read_text().splitlines()}
    best, *others = json.loads(text)
    assert best["system"] not in {row["system"] for row in others}
    again = json.loads(
        succeed(
            "estimate",
            best["system"],
            "--platform",
            str(file),
            "--model",
            "gpt-oss-20b",
            "--batch",
            "4",
            "--context",
            "16k",
            "--output-tokens",
            "256",
            "--format",
            "json",
        )
    )[0]
    assert best["tpot_ms"] <= 50
    shared = best.keys() & again.keys() - {"platform"}
    assert {"cost_usd", "usd_mtok", "throughput_tok_s", "power_w", "batch_run"} <= shared
    assert {name: best[name] for name in shared} == {name: again[name] for name in shared}


def test_gpus_are_split_as_the_limits_ask_and_the_command_says_how(tmp_path: Path) -> None:
    """One split over all GPUs reduces over PCIe in prompts and misses 10 s with them."""
    file = tmp_path / "split.toml"
    asked = ("gpu", "--server", "pcie-8gpu-server", "--model", "gpt-oss-120b", "--context", "64k")
    limits = ("--users", "16", "--output-tokens", "256", "--slo", "tpot_ms=66,ttft_s=10")
    text = succeed("design", *asked, *limits, "--machine-out", str(file))
    command = " ".join(text.split()).split("`")[1].split()
    assert command[:3] == ["nearkv", "estimate", "gpu"]
    (split,) = json.loads(succeed(*command[1:], "--format", "json"))
    unsplit = [word for word in command[1:] if "=" not in word and word != "--knob"]
    arriving = ["--users" if word == "--batch" else word for word in command[1:]]
    assert "without the knobs of its split (tp, pp, ...)" in " ".join(text.split())
    assert "take pp=1" in invoke(*arriving).stdout
    one_by_one = ["--users" if word == "--batch" else word for word in unsplit]
    assert json.loads(succeed(*one_by_one, "--format", "json"))[0]["status"] == "ok"
    (reduced,) = json.loads(succeed(*unsplit, "--knob", "tp=8", "--format", "json"))
    assert split["ttft_s"] <= 10 < reduced["ttft_s"]
    assert f"{split['tpot_ms']:.4g}" in text


@pytest.mark.parametrize("is_found", [True, False])
def test_ctrl_c_prints_the_best_so_far_and_how_many_are_left(
    is_found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 130 either way."""

    def press(done: int, machines: int) -> None:
        assert 0 < done <= machines
        raise KeyboardInterrupt

    monkeypatch.setattr("nearkv.sweeps.commands.design._progress", lambda: press)
    limit = "tpot_ms=50" if is_found else "tpot_ms=1"
    stopped = invoke("design", *ASKED, "--slo", limit)
    assert stopped.exit_code == 130
    said = " ".join((stopped.stdout if is_found else stopped.stderr).split())
    assert "Stopped with" in said
    assert "left of" in said


def test_every_machine_ends_in_one_way_and_the_count_says_which() -> None:
    text = " ".join(succeed("design", *ASKED, "--budget", "20kUSD").split())
    sentence = re.search(
        r"([\d,]+) machines: (.*?), not evaluated; ([\d,]+) evaluated: (.*?)\.", text
    )
    assert sentence
    machines, before, evaluated, after = sentence.groups()
    assert "over the budget" in before
    assert "without a price" in before
    assert "meet every limit" in after

    def total(words: str) -> int:
        return sum(int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?= )", words))

    assert total(after) == int(evaluated.replace(",", ""))
    assert total(before) + total(after) == int(machines.replace(",", ""))
    assert "Left out, as they have no price: " in text


def test_ctrl_c_while_machines_are_laid_out_says_that_nothing_was_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def press(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("nearkv.sweeps.explore.design.question.options_of", press)
    done = invoke("design", *ASKED)
    assert done.exit_code == 130
    assert done.stderr == "nearkv: stopped; nothing was written\n"


def test_a_machine_file_that_exists_is_refused_before_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "best.toml"
    file.write_text("")
    monkeypatch.setattr("nearkv.sweeps.api.design.design", None)
    assert "File exists" in refusal("design", *ASKED, "--machine-out", str(file))


def test_a_narrow_terminal_shows_the_price_and_the_times_and_what_was_asked() -> None:
    text = printed("design", *ASKED, "--budget", "60kUSD")
    first, *_ = text.split("\n---")
    workload = (
        "gpt-oss-20b, 16,384 tokens of context, 256 of output, 4 sequences, cost_usd <= 60,000"
    )
    assert workload in " ".join(first.split())
    assert {"server", "gpus", "system", "cost_usd", "ttft_s", "tpot_ms"} <= {*first.split()}
    assert "All sequences start at once" in text
    assert "rounds" not in text  # users must all be held at once
    assert "At context_tok" not in text  # all sizes are stated
    batch = ("design", "gpu", "--model", "gpt-oss-20b", "--server", "dgx-spark-desktop")
    unstated = printed(*batch, "--users", "16", "--context", "16k")
    assert "At output_tokens 64, as by default." in unstated
    assert "run in rounds of batch_run" in printed(*batch, "--batch", "4")


def test_machines_that_are_alike_tie() -> None:
    """Both systems run in the same housing."""
    asked = ("--server", "workstation-2gpu", "--model", "gpt-oss-20b", "--users", "4")
    text = succeed("design", "gpu,full-cache", *asked, "--minimize", "rack_units")
    assert "workstation-2gpu tie: rack_units 4." in " ".join(text.split())
    assert "wins" not in text


def test_prices_of_ones_own_decide(tmp_path: Path) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text("part,usd,low,high,date\ndgx-spark-desktop,50000,40000,60000,2026-11\n")
    asked = ("design", *ASKED, "--format", "json")
    assert json.loads(succeed(*asked))[0]["server"] == "dgx-spark-desktop"
    dear = json.loads(succeed(*asked, "--prices", str(prices)))
    assert dear[0]["server"] != "dgx-spark-desktop"


def test_rented_machines_stand_beside_bought_ones() -> None:
    rows = json.loads(
        succeed(
            "design",
            "gpu",
            "--server",
            "hgx-h100-server",
            "--model",
            "llama3.1-70b",
            "--users",
            "8",
            "--context",
            "8k",
            "--minimize",
            "usd_hour",
            "--rent",
            "--format",
            "json",
        )
    )
    assert rows[0]["acquired"] in ("bought", "rented")


def test_a_front_has_no_machine_that_another_dominates() -> None:
    front = json.loads(
        succeed("design", *ASKED, "--pareto", "cost_usd,throughput_tok_s", "--format", "json")
    )
    pairs = [(row["cost_usd"], -row["throughput_tok_s"]) for row in front]
    assert len(pairs) > 1
    for one in pairs:
        assert not any(
            other != one and other[0] <= one[0] and other[1] <= one[1] for other in pairs
        )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--budget", "100k"), "is no amount of a budget above zero"),
        (("--budget", "1kW,2kW"), "names 'power_cap_w' twice"),
        (("--slo", "colour=3"), "unknown column 'colour'"),
        (("--slo", "speedup:hilos>=2"), "compares with no other system"),
        (("--maximize", "joy"), "unknown column 'joy'"),
        (("--minimize", "cost_usd", "--maximize", "tpot_ms"), "give one of them"),
        (("--server", "hgx-h999"), "unknown server 'hgx-h999'"),
        (("--rent",), "compare by the hour alone"),
        (("--output-tokens", "64,128"), "not a list"),
        (("--knob", "tp=1,2"), "not a list"),
        (("--set", "precision.kv=fp8,int4"), "not a list"),
        (("--set", "precision.weight=fp8,int4"), "not a list"),
        (("--band", "0"), "asks for no draws"),
        (("--per-round", "2"), "--users all run at once"),
        (("--knob", "prefix=auto"), "it describes requests or the model"),
        (("--knob", "shared=auto"), "it describes requests or the model"),
        (("--knob", "accepted=auto"), "it describes requests or the model"),
        (("--set", "gpu.count=2"), "numbers that are no widths"),
        (("--prices", "none.csv"), "none.csv"),
        (("--pareto", "cost_usd"), "two or three different columns"),
        (("--pue", "0.5"), "--pue 0.5: must be at least 1"),
        (("--seconds", "nan"), "must be a number above 0"),
        (("--years", "0"), "--years 0"),
        (("--class", "chat:4k:256:0"), "must be a number above zero"),
        (("--class", "chat:4k:256:1", "--output-tokens", "64"), "leave out a study"),
    ],
)
def test_bad_input_gets_one_sentence(words: tuple[str, ...], sentence: str) -> None:
    asked = ["gpu", "--model", "gpt-oss-20b", "--users", "4"]
    if "--server" not in words:
        asked += ["--server", "dgx-spark-desktop"]
    assert sentence in refusal("design", *asked, *words)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--budget", "10USD"), "the nearest is"),
        (("--slo", "batch_run=1e12"), "where 1e+12 is asked (--slo)"),
        (("--knob", "tp=3"), "runs it with the knobs"),
        (("--seconds", "1e-9"), "allow more time"),
    ],
)
def test_what_no_machine_meets_ends_with_a_code_of_its_own(
    words: tuple[str, ...], sentence: str
) -> None:
    asked = ("gpu", "--model", "gpt-oss-20b", "--server", "dgx-spark-desktop")
    unmet = invoke("design", *asked, "--batch", "4", *words)
    assert unmet.exit_code == 3
    assert sentence in unmet.stderr
    assert len(unmet.stderr.splitlines()) == 1


def test_machines_that_share_classes_are_shown() -> None:
    classes = ("--class", "chat:4k:256:2", "--class", "docs:32k:256:0.05")
    asked = ("gpu", *SMALL, "--model", "gpt-oss-20b", *classes, "--budget", "60kUSD")
    text = " ".join(succeed("design", *asked).split())
    assert "chat 2 requests per second of 4,096 + 256 tokens" in text
    assert "that no other dominates needs less" in text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("part,usd\nrtx-9090,5\n", "unknown part 'rtx-9090'"),
        ("name,usd\nrtx-5090,5\n", "has no column 'part'"),
        ("part,usd,basis\nrtx-5090,5,lease\n", "unknown basis 'lease'"),
        ("part,usd,low,high\nrtx-5090,5,6,7\n", "must lie from low 6 to high 7"),
        ("part,usd\nrtx-5090,cheap\n", "is not a number"),
        ("part,usd\nrtx-5090,0\n", "above 0"),
        ("part,usd\nrtx-5090,5\nrtx-5090,6\n", "has a purchase price already"),
    ],
)
def test_a_price_list_is_checked(text: str, sentence: str, tmp_path: Path) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text(text)
    asked = ("design", "gpu", "--model", "gpt-oss-20b", *SMALL, "--prices", str(prices))
    assert sentence in refusal(*asked)


def test_an_axis_beside_a_study_or_a_batch_beside_users_is_refused(tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text('systems = ["gpu"]\nmodel = ["gpt-oss-20b"]\nbatch = [4]\ncontext = ["8k"]\n')
    for option in (("--context", "32k"), ("--batch", "8"), ("--knob", "tp=1")):
        assert "give them there" in refusal("design", str(study), *SMALL, *option)
    assert "leave out --batch" in refusal("design", *ASKED, "--batch", "3")


def test_widths_may_be_set_and_the_command_repeats_them(tmp_path: Path) -> None:
    """8.03 billion weights and 4 x 24,640 tokens of 131,072 bytes are 29.0 GB: two cards of 24.

    Eight bits take half of it, and one card.
    """
    file = tmp_path / "best.toml"
    model = ("--model", "llama3.1-8b", "--context", "24k", "--users", "4")
    asked = ("design", "gpu", "--server", "workstation-2gpu", *model)
    as_json = ("--format", "json")
    eight = ("--set", "precision.weight=fp8", "--set", "precision.kv=fp8")
    (wide,) = json.loads(succeed(*asked, *as_json))
    (narrow,) = json.loads(succeed(*asked, *eight, *as_json, "--machine-out", str(file)))
    assert wide["gpus"].startswith("2 x")
    assert narrow["gpus"].startswith("1 x")
    text = " ".join(succeed(*asked, *eight).split())
    command = text.split("`")[1].replace("best.toml", str(file)).split()
    (again,) = json.loads(succeed(*command[1:], *as_json))
    assert again["tpot_ms"] == narrow["tpot_ms"]
    assert again["cost_usd"] == narrow["cost_usd"]


def test_a_system_without_a_row_is_named_with_what_it_misses() -> None:
    words = ("--model", "llama3.1-8b", "--context", "8k", "--users", "4", "--budget", "20kUSD")
    limits = ("--slo", "tpot_ms=30,ttft_s=2")
    text = " ".join(succeed("design", "gpu,h2m2,l3", *words, *limits).split())
    assert "No machine meets every limit with h2m2 on h2m2-server: ttft_s " in text
    assert "where 2 is allowed (--slo)" in text
    assert "No machine within the budget runs l3." in text
    unmet = invoke("design", "h2m2", *words, *limits)
    assert "all 4 prompts start at once, where `nearkv compare h2m2 ... --users 4`" in unmet.stderr
    assert "--installable leaves no system" in refusal("design", "h2m2", "--installable", *words)


def test_a_system_without_the_column_that_is_made_best_is_not_said_to_exceed_the_budget() -> None:
    """On system gpu nothing is written to flash, so none wears out."""
    words = ("--server", "hilos-server", "--model", "llama3.1-8b", "--batch", "4")
    best = ("--context", "16k", "--maximize", "endurance_requests")
    text = " ".join(succeed("design", "gpu,hilos", *words, *best).split())
    assert "gpu has no row: of its machines 10 have no endurance_requests, 1 are short" in text
    assert "within the budget runs" not in text


def test_a_limit_of_the_engine_is_no_shortage_of_memory() -> None:
    """llama.cpp runs four sequences at once unless told otherwise; memory holds eight."""
    asked = ("design", "gpu", "--server", "workstation-2gpu", "--model", "llama3.1-8b")
    words = (*asked, "--context", "4k", "--users", "8")
    unmet = invoke(*words).stderr
    assert "batch_run 4 where 8 is asked (--users); the engine runs no more at once" in unmet
    assert "--knob sequences=0" in unmet
    (row,) = json.loads(succeed(*words, "--knob", "sequences=0", "--format", "json"))
    assert row["batch_run"] == 8
    grid = succeed(*words, "--best-per", "system", "--format", "json", code=3)
    assert "miss batch_run >= 8, as memory or the engine (--knob sequences)" in grid


def test_a_dash_under_a_usual_column_says_why() -> None:
    """No drive of a Strix Halo states the power it draws at rest, which cpu-only owns."""
    words = ("--server", "strix-halo-desktop", "--model", "llama3.1-8b", "--users", "1")
    text = " ".join(succeed("design", "gpu,cpu-only", *words, "--context", "4k").split())
    assert "cpu-only runs at 1 design point without usd_mtok; the platform states no terms" in text
    assert "gpu runs at 1 design point without" not in text


def test_a_machine_without_a_price_says_so() -> None:
    """An L4 takes least power, and no dated price of one was found."""
    words = ("--server", "workstation-2gpu", "--model", "llama3.1-8b", "--users", "1")
    asked = (*words, "--context", "4k", "--minimize", "power_w", "--columns", "gpus,usd_mtok")
    text = " ".join(succeed("design", "gpu", *asked).split())
    assert "gpu runs at 1 design point without usd_mtok; a part of it states no price" in text


def test_installable_names_no_server_that_nobody_sells(tmp_path: Path) -> None:
    """A single B200 stands in hbf-server alone, which H3 imagines; boards of eight are sold."""
    words = ("--model", "llama3.1-70b", "--context", "8k", "--users", "2", "--format", "csv")
    asked = ("design", "gpu", "--server", "hbf-server,hgx-b200-server", *words)
    assert "gpu,hbf-server" in " ".join(succeed(*asked, "--columns", "system,server").split())
    sold = succeed(*asked, "--columns", "system,server", "--installable")
    assert "gpu,hgx-b200-server" in sold
    none = refusal("design", "gpu", "--server", "hbf-server", *words, "--installable")
    assert "--installable leaves no server: nobody sells hbf-server" in none
    study = tmp_path / "both.toml"
    study.write_text('systems = ["gpu", "h2m2"]\nmodel = "llama3.1-8b"\ncontext = "8k"\n')
    servers = ("--server", "h2m2-server,pcie-4gpu-server")
    rows = succeed("design", str(study), *servers, "--installable", "--format", "json")
    assert [row["server"] for row in json.loads(rows)] == ["pcie-4gpu-server"]


def test_a_grid_is_shown_and_its_borders_are_written(tmp_path: Path) -> None:
    file, borders = tmp_path / "map.csv", tmp_path / "borders.csv"
    asked = ("h2m2,gpu", "--server", "h2m2-server,mac-studio-desktop", "--model", "llama3.1-70b")
    grid = ("--context", "8k,64k", "--batch", "64", "--best-per", "technology", "--band", "90")
    out = ("--per-round", "64", "-o", str(file), "--borders", str(borders))
    text = succeed("design", *asked, *grid, "--budget", "20kUSD", *out)
    assert "Within 20,000 USD: of 2 cells LPDDR beside HBM 1, GPU memory 1." in text
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert [row["technology"] for row in rows[:2]] == ["LPDDR beside HBM", "GPU memory"]
    assert {row["budget_usd"] for row in rows} == {"20000"}
    assert sum(float(row["best_share"]) for row in rows[:2]) == 1
    (edge,) = csv.DictReader(borders.read_text().splitlines())
    assert 8192 < int(edge["below"]) < 65536
    assert not list(tmp_path.glob(".*"))


def test_a_grid_without_borders_is_drawn_with_its_file_of_none(tmp_path: Path) -> None:
    file, borders, figure = (tmp_path / name for name in ("map.csv", "none.csv", "map.svg"))
    asked = ("h2m2,gpu", "--server", "h2m2-server,mac-studio-desktop", "--model", "llama3.1-70b")
    grid = ("--context", "8k,16k", "--users", "8", "--best-per", "technology")
    out = ("-o", str(file), "--borders", str(borders))
    succeed("design", *asked, *grid, "--budget", "20kUSD", *out)
    (header,) = csv.reader(borders.read_text().splitlines())
    assert {"along", "from", "to", "below", "above"} <= {*header}
    succeed("plot", "map", str(file), "--boundaries", str(borders), "-o", str(figure))
    assert "exact borders" not in figure.read_text()
    assert "has no rows" in refusal("plot", "map", str(borders), "-o", str(tmp_path / "no.svg"))


def test_a_cell_that_no_machine_serves_is_told_of_by_no_name() -> None:
    asked = ("h2m2", "--server", "h2m2-server", "--model", "llama3.1-70b", "--budget", "20kUSD")
    grid = ("--context", "8k,512k", "--users", "8", "--columns", "context_tok,technology")
    assert "None" not in succeed("design", *asked, *grid)


def test_a_grid_without_a_machine_prints_its_rows_and_writes_no_machine(tmp_path: Path) -> None:
    asked = ("design", "h2m2", "--server", "h2m2-server", "--model", "llama3.1-70b")
    grid = (*asked, "--budget", "1kUSD", "--context", "8k,16k")
    assert "no machine is within the budget" in " ".join(succeed(*grid).split())
    file = str(tmp_path / "best.toml")
    assert "first row has no machine" in refusal(*grid, "--machine-out", file)


def test_a_grid_that_was_stopped_goes_on_and_ends_in_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, whole = tmp_path / "map.csv", tmp_path / "whole.csv"
    asked = ("design", "h2m2,gpu", "--server", "h2m2-server,mac-studio-desktop")
    grid = (*asked, "--model", "llama3.1-70b", "--context", "8k,16k,32k", "--budget", "20kUSD")
    succeed(*grid, "-o", str(whole))

    def press(done: int, workloads: int) -> None:
        assert workloads == 3
        if done == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("nearkv.sweeps.commands.design._progress", lambda: press)
        stopped = invoke(*grid, "-o", str(file))
    assert stopped.exit_code == 130
    assert "2 answers are safe" in " ".join(stopped.stderr.split())
    assert not file.exists()
    assert "--resume" in refusal(*grid, "-o", str(file))
    assert "of another study" in refusal(*grid, "--batch", "4", "-o", str(file), "--resume")
    succeed(*grid, "-o", str(file), "--resume")
    assert file.read_bytes() == whole.read_bytes()


def test_users_are_refused_by_their_own_option() -> None:
    asked = ("design", "gpu", "--model", "gpt-oss-20b", "--users", "0")
    assert "--users: '0' must be a whole number, 1 or more" in refusal(*asked)


def test_a_single_search_is_not_resumed(tmp_path: Path) -> None:
    asked = ("design", "gpu", "--server", "mac-studio-desktop", "--model", "llama3.1-8b")
    file = tmp_path / "best.csv"
    assert "this question is one search" in refusal(*asked, "-o", str(file), "--resume")


def test_a_grid_refuses_what_it_could_not_finish_or_would_write_over(tmp_path: Path) -> None:
    asked = ("design", "gpu", "--server", "mac-studio-desktop", "--model", "llama3.1-8b")
    assert "more than the 10,000" in refusal(*asked, "--context", "8k:1M:+1", "--batch", "1:9:+1")
    assert "from 1 to 99" in refusal(*asked, "--context", "8k,16k", "--band", "nan")
    file = str(tmp_path / "map.csv")
    both = ("--budget", "20kUSD", "--context", "8k,16k", "--borders", file, "-o", file)
    assert "-o writes that file, too" in refusal(*asked, *both)
    assert not list(tmp_path.iterdir())
