"""The Python interface: what the command line prints, as pandas tables."""

from __future__ import annotations

import doctest
import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import nearkv
from nearkv.cli import app
from nearkv.hardware.errors import InputError
from nearkv.sweeps import api
from nearkv.sweeps.api.tables import findings_of
from nearkv.sweeps.commands.files import encoded
from nearkv.sweeps.study.sizes import Amount

PUBLIC = """
estimate compare sweep solve pareto sensitivity reuse validate coverage calibrate systems models
platforms parts columns load_model load_platform Study Estimate Prediction Fit Span Leaf serial
overlap pipeline plot stream Fits fits Knob system NearkvError InputError NearkvWarning
__version__
Axes design
"""
API_MODULES = [f"{api.__name__}.{module.name}" for module in pkgutil.iter_modules(api.__path__)]


def printed(*words: str) -> str:
    """Standard output of a command."""
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.stdout


def as_csv(table: pd.DataFrame) -> str:
    return encoded(findings_of(table), "", "csv").decode()


def test_public_names_are_these_and_all_load() -> None:
    assert set(nearkv.__all__) == set(PUBLIC.split())
    for name in nearkv.__all__:
        assert getattr(nearkv, name) is not None
    with pytest.raises(AttributeError, match="estimat"):
        _ = nearkv.estimat


def test_arguments_beyond_the_first_two_are_given_by_name() -> None:
    for name in nearkv.__all__:
        function = getattr(nearkv, name)
        if inspect.isfunction(function):
            kinds = [each.kind for each in inspect.signature(function).parameters.values()]
            assert inspect.Parameter.POSITIONAL_ONLY not in kinds, name
            assert kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD) <= 2, name


def test_no_public_name_is_hidden_by_a_module() -> None:
    """Importing a submodule sets its name in the package, which must not replace a function."""
    for module in pkgutil.walk_packages(nearkv.__path__, "nearkv."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    folders = {module.name for module in pkgutil.iter_modules(nearkv.__path__)}
    assert {"costmodel", "sweeps", "cli"} <= folders
    assert not folders & set(nearkv.__all__)
    assert nearkv.sweep(systems="hilos", model="opt-66b").shape[0] == 1
    varied = nearkv.sweep("hilos-fig10", systems="hilos", context="16k", platform="hilos-h100")
    assert set(varied["platform"]) == {"hilos-h100"}
    assert set(varied["context_tok"]) == {16_384}
    assert set(varied["model"]) == {"opt-30b", "opt-66b", "opt-175b"}


def test_importing_loads_the_standard_library_alone() -> None:
    code = (
        "import sys, nearkv; outside = {name.split('.')[0] for name in sys.modules}; "
        "print(sorted(outside - set(sys.stdlib_module_names) - {'nearkv', '__main__'}))"
    )
    command = [sys.executable, "-S", "-c", code]
    source = str(Path(nearkv.__file__).parent.parent)
    process = subprocess.run(command, capture_output=True, env={"PYTHONPATH": source}, check=True)
    assert process.stdout.decode().strip() == "[]"


@pytest.mark.parametrize("name", [*API_MODULES, "nearkv"])
@pytest.mark.slow
def test_examples_run(name: str) -> None:
    module = importlib.import_module(name)
    names = {key: getattr(nearkv, key) for key in nearkv.__all__}
    outcome = doctest.testmod(module, extraglobs=names, raise_on_error=False)
    assert not outcome.failed


@pytest.mark.slow
def test_every_public_function_has_an_example_that_runs() -> None:
    questions = PUBLIC.split()[:15]
    questions.remove("coverage")  # half a minute: test_coverage.py asks what it asks
    for name in questions:
        assert ">>>" in (getattr(nearkv, name).__doc__ or ""), name


POINT = {"model": "opt-66b,opt-175b", "context": "16k,128k"}
OPTIONS = ("--model", "opt-66b,opt-175b", "--context", "16k,128k")


@pytest.mark.slow
def test_a_comparison_is_the_bytes_of_the_command_line() -> None:
    table = nearkv.compare(["flexgen-dram", "hilos"], empty=True, **POINT)  # type: ignore[arg-type]
    assert as_csv(table) == printed("compare", "flexgen-dram", "hilos", *OPTIONS, "--format", "csv")


@pytest.mark.parametrize(
    ("question", "system"), [("alpha", "hilos"), ("spill", "hilos"), ("batch", "flexgen-dram")]
)
@pytest.mark.slow
def test_an_answer_is_the_bytes_of_the_command_line(question: str, system: str) -> None:
    table = nearkv.solve(question, systems=system, **POINT)
    words = ("solve", question, "--system", system, *OPTIONS, "--format", "csv")
    assert as_csv(table) == printed(*words)


@pytest.mark.slow
def test_a_sweep_and_a_front_are_the_bytes_of_the_command_line() -> None:
    words = ("--system", "hilos", *OPTIONS, "--set", "csd.count=4,8")
    counts = {"csd.count": [4, 8]}
    table = nearkv.sweep(systems="hilos", sets=counts, empty=True, **POINT)  # type: ignore[arg-type]
    assert as_csv(table) == printed("sweep", *words, "--format", "csv")
    front = nearkv.pareto(systems="hilos", sets=counts, empty=True, **POINT)  # type: ignore[arg-type]
    assert as_csv(front) == printed("pareto", *words, "--format", "csv")


@pytest.mark.parametrize("name", ["systems", "models"])
def test_a_catalogue_is_the_bytes_of_the_command_line(name: str) -> None:
    assert as_csv(getattr(nearkv, name)()) == printed(name, "--format", "csv")


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        ("64k", (65536,)),
        (1024, (1024,)),
        (1e15, (10**15,)),
        ([1024, "2k"], (1024, 2048)),
        (range(1, 4), (1, 2, 3)),
        (np.array([8, 16]), (8, 16)),
        ("1k:4k:x2", (1024, 2048, 4096)),
    ],
)
def test_arguments_take_what_people_pass(value: object, tokens: tuple[float, ...]) -> None:
    assert nearkv.Study("hilos", "opt-66b", context=value).context == tokens


def pure(value: float) -> Amount:
    """A number without a unit; how it was written does not make it another."""
    return Amount(value, "1", "")


def test_a_study_holds_numbers_and_names(tmp_path: Path) -> None:
    """Text, numbers and lists are read when they come in; what is read already stays."""
    study = nearkv.Study(
        ["hilos"],
        tmp_path / "config.json",
        sets={"csd.p2p_read": "3GB/s,4.5GB/s", "csd.count": [4, 8]},
        knobs={"alpha": "auto,0:1:+0.5", "weights": "paper"},
    )
    assert study.models == (str(tmp_path / "config.json"),)
    rates = (Amount(3e9, "B/s", ""), Amount(4.5e9, "B/s", ""))
    assert study.sets == {"csd.p2p_read": rates, "csd.count": (pure(4), pure(8))}
    shares = ("auto", pure(0), pure(0.5), pure(1))
    assert study.knobs == {"alpha": shares, "weights": ("paper",)}
    assert study.but(context="32k") == study


def test_objects_stand_for_names() -> None:
    """A machine changed in Python is the machine changed by --set."""
    machine = nearkv.load_platform("hilos-a100").override("csd.count", 4)
    model = nearkv.load_model("opt-66b")
    changed = nearkv.estimate("hilos", model, platform=machine)
    named = nearkv.estimate("hilos", "opt-66b", sets={"csd.count": 4})
    assert changed["step_ms"] == named["step_ms"]
    assert changed["platform"] == "hilos-a100"


@pytest.mark.slow
def test_tables_of_a_point_agree_with_its_columns() -> None:
    point = nearkv.estimate("hilos", "opt-66b", batch=16, context="64k")
    assert point.breakdown()["seconds"].sum() == pytest.approx(point["total_s"])
    assert point.breakdown("step")["share"].sum() == pytest.approx(1.0)
    busy = point.busy()
    assert (busy["share"] <= 1 + 1e-12).all()
    tree = point.explain()
    assert tree["seconds"][0] == pytest.approx(point["total_s"])
    flash = point.traffic("step").query("resource == 'csd.flash' and verb == 'read'")
    assert flash["amount"].item() > 0
    assert "step_ms" in point._repr_html_()
    assert "hilos opt-66b" in repr(point)


def test_an_infeasible_point_is_an_answer_with_empty_tables() -> None:
    point = nearkv.estimate("flexgen-dram", "opt-175b", context="128k")
    assert point.status == "infeasible"
    assert point["reason"] == "host memory is short"
    assert point.lifted_by == "host.memory = 659 GB or host.count = 2 would do."
    for memory, status in (("659GB", "ok"), ("640GB", "infeasible")):
        with_more = {"host.memory": memory}
        more = nearkv.estimate("flexgen-dram", "opt-175b", context="128k", sets=with_more)
        assert more.status == status
    both = nearkv.estimate("h2m2", "gpt3-175b", batch=32, context="8k")
    assert both.lifted_by == "lpddr.memory = 702 GB or lpddr.count = 2 would do."
    assert point.breakdown().empty
    assert point.traffic().empty
    assert point.explain().empty


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: nearkv.compare("hylos", "opt-66b"),
            "unknown system 'hylos'; did you mean 'hilos'",
        ),
        (lambda: nearkv.solve("alfa", "opt-66b"), "unknown question 'alfa'; did you mean 'alpha'"),
        (lambda: nearkv.solve("alpha", "opt-66b", vary="csd.count"), "unknown argument 'vary'"),
        (lambda: nearkv.solve("hardware", "opt-66b"), "required argument: 'vary'"),
        (nearkv.sweep, "give a study, or systems and a model"),
        (lambda: nearkv.estimate("hilos", "opt-66b", context=[1, 2]), "one design point"),
        (lambda: nearkv.estimate("hilos", object()), "model=<object"),  # type: ignore[arg-type]
        (
            lambda: nearkv.compare("hilos", "opt-66b", contxt=1),  # type: ignore[call-arg]
            "did you mean 'context'",
        ),
        (lambda: nearkv.compare("hilos", "opt-66b", context=[]), "has no value"),
        (nearkv.calibrate, "either measurements or claims"),
    ],
)
def test_bad_input_is_one_sentence(call: object, message: str) -> None:
    with pytest.raises(nearkv.InputError) as problem:
        call()  # type: ignore[operator]
    assert message in str(problem.value)
    assert "\n" not in str(problem.value)


@pytest.mark.slow
def test_a_fit_is_saved_as_a_platform(tmp_path: Path) -> None:
    fit = nearkv.calibrate(claims="hilos", factors=["derate.pcie"])
    fit.save(tmp_path / "fitted.toml")
    point = nearkv.estimate("hilos", "opt-66b", platform=tmp_path / "fitted.toml")
    assert point.status == "ok"
    assert len(fit.residuals) > len(fit.factors)
    assert fit.summary


@pytest.mark.slow
def test_paired_axes_and_limits_are_taken() -> None:
    """As on the command line: `--zip` goes value by value, `--slo` bounds a batch."""
    pairs = nearkv.compare(
        "flexgen-ssd", model="opt-30b", zip={"context": ["1k", "2k"], "output_tokens": [4, 8]}
    )
    assert pairs[["context_tok", "output_tokens"]].to_numpy().tolist() == [[1024, 4], [2048, 8]]
    with pytest.raises(nearkv.InputError, match="2 of context, 1 of output_tokens"):
        nearkv.compare("hilos", model="opt-30b", zip={"context": [1, 2], "output_tokens": 4})
    most = nearkv.solve("batch", "gpt-89b", systems="l3", context=6000, slo="tpot_ms=50")
    assert most["tpot_ms"][0] <= 50


def test_a_table_knows_its_units_and_where_its_numbers_come_from() -> None:
    table = nearkv.compare("hilos", "opt-66b", context=[1024, 2048])
    assert table.attrs["units"]["step_ms"] == "ms"
    sources = json.loads(table.attrs["provenance"])
    assert sources["axes"]["context_tok"] == [1024, 2048]
    assert "hilos-a100" in sources["platforms"]


def test_dtypes_depend_on_columns_and_not_on_values() -> None:
    one = nearkv.compare("hilos", "opt-66b", context="64k", sets={"csd.count": 4})
    two = nearkv.compare("hilos", "opt-66b", context="64k", sets={"csd.count": [4, 5]})
    assert one.dtypes.to_dict() == two.dtypes.to_dict()
    assert one["short_gb"].dtype == float
    assert one["context_tok"].dtype == int


def test_columns_without_a_number_are_left_out_unless_asked_for() -> None:
    kept = nearkv.compare("h2m2", "gpt3-175b", context="1k", empty=True)
    shown = nearkv.compare("h2m2", "gpt3-175b", context="1k")
    assert set(kept) - set(shown) == {name for name in kept if kept[name].isna().all()} != set()


def test_an_unknown_column_of_a_prediction_is_answered_with_a_near_one() -> None:
    prediction = nearkv.estimate("hilos", model="opt-30b", context="1k")
    with pytest.raises(nearkv.InputError, match="unknown column 'step_s'; did you mean 'step_ms'"):
        prediction["step_s"]


def test_no_multiple_of_a_memory_without_room_is_advised() -> None:
    """What HillInfer's host pins leaves no byte for weights of this size."""
    point = nearkv.estimate("hillinfer", "llama3.1-405b", context="128k")
    assert point.status == "infeasible"
    assert point.lifted_by == ""


def test_a_placement_without_a_prompt_is_refused() -> None:
    with pytest.raises(nearkv.InputError, match="--context 0: the linear program"):
        nearkv.solve("placement", "opt-30b", context=0)


@pytest.mark.parametrize(
    ("name", "stated", "nearest"),
    [
        ("design", {"systems": "gpu", "server": "x"}, "servers"),
        ("reuse", {"tiers": "dram", "prefixes": "1k"}, "prefix"),
    ],
)
def test_an_argument_that_does_not_exist_is_refused_with_the_nearest(
    name: str, stated: dict[str, Any], nearest: str
) -> None:
    with pytest.raises(InputError, match=f"unknown argument .*{nearest}"):
        getattr(nearkv, name)(model="gpt-oss-20b", **stated)
