"""A command imports and reads what it needs, and no more."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.systems import SYSTEMS
from typer.testing import CliRunner

from nearkv.cli import app
from nearkv.costmodel.model.registry import modules_naming
from nearkv.hardware.schema import source_names, sources

POINT = ["hilos", "--model", "opt-66b", "--context", "64k"]
IMPORTED = """
import sys
from nearkv.__main__ import main
sys.argv = ["nearkv", "estimate", *{point!r}]
try:
    main()
except SystemExit:
    print(*sys.modules)
"""


@pytest.mark.processes
def test_one_estimate_imports_one_system() -> None:
    """Other systems, solvers of programs, queues and other formats are left alone."""
    counts_branches = "COVERAGE_PROCESS_CONFIG"  # by modules of its own
    environment = {key: os.environ[key] for key in os.environ.keys() - {counts_branches}}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED.format(point=POINT)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    imported = done.stdout.splitlines()[-1].split()
    package = "nearkv.costmodel.systems."
    assert [name for name in imported if name.startswith(package)] == [f"{package}hilos"]
    idle = {"pandas", "scipy", "pulp", "pyarrow", "matplotlib"}
    assert not idle & set(imported)
    assert "nearkv.sweeps.simulate.play" not in imported


@pytest.mark.parametrize("system", SYSTEMS.values(), ids=lambda system: system.name)
def test_the_module_of_a_system_quotes_its_name(system: object) -> None:
    """So that it is found by reading modules, before any other is imported."""
    assert system.model.__module__ in modules_naming(system.name)  # type: ignore[attr-defined]


def test_heads_of_tables_are_the_keys_of_all_sources() -> None:
    assert source_names() == sources().keys()


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (["--seed", "x"], "whole number"),
        (["--seed", "-1"], "seed"),
        (["--samples", "1.5"], "whole number"),
    ],
)
def test_numbers_of_options_are_refused_in_words(words: list[str], refusal: str) -> None:
    outcome = CliRunner().invoke(app, ["estimate", *POINT, *words])
    assert outcome.exit_code == 2
    assert refusal in outcome.stderr
