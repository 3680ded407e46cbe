"""Systems of one's own: registered from a file, carried to workers, refused in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command_line import refusal, succeed
from support.helpers import COMMAND
from support.systems import SYSTEMS

import nearkv
import nearkv.modelling
from nearkv.costmodel.model import registry
from nearkv.costmodel.model.plugins import Plugin
from nearkv.hardware.errors import InputError
from nearkv.sweeps.api.solve import measured_best
from nearkv.sweeps.jobs.plan import digest_of, plan, unpacked
from nearkv.sweeps.study.own_systems import load_plugins, new_system
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.validation.contracts import violations

HEAD = """\
from nearkv.modelling import Estimate, fits, gpu, over_layers, serial, system

def read(hw, llm, work, rate=1.0):
    step = over_layers(llm, lambda layer: rate * gpu(hw).read(layer.kv_bytes(work.batch, 1)))
    return Estimate(step, step, fits(gpu=(1.0, gpu(hw).memory)), work, work.batch)

"""
REGISTERED = '@system("mine", platform="hilos-a100", owns=("gpu",))\ndef mine(hw, llm, work):\n'


@pytest.fixture(autouse=True)
def own_registry() -> Iterator[None]:
    """Forget after each test the systems that it registers."""
    before = registry.systems()
    yield
    registry._SYSTEMS.clear()
    registry._SYSTEMS.update(before)


def write(folder: Path, body: str, name: str = "mine.py") -> str:
    file = folder / name
    file.write_text(HEAD + body)
    return str(file)


def system_that(returns: str) -> str:
    return f"{REGISTERED}    {returns}\n"


GOOD = system_that("return read(hw, llm, work)")


def test_a_system_of_a_file_is_a_system_like_any_other(tmp_path: Path) -> None:
    """16 x 64 layers x 2 x 9216 elements of 2 B over 0.82 x 1.555 TB/s."""
    table = nearkv.compare("hilos,mine", "opt-66b", plugin=write(tmp_path, GOOD))
    step = table.set_index("system").loc["mine", "step_ms"]
    assert step == pytest.approx(1e3 * 16 * 64 * 2 * 9216 * 2 / (0.82 * 1555e9))


def test_a_paper_measured_nothing_of_a_variant_of_a_file(tmp_path: Path) -> None:
    body = """\
from nearkv.modelling import find_system

@system("mine", variant_of="hilos")
def mine(hw, llm, work, **knobs):
    return find_system("hilos")(hw, llm, work, knobs)
"""
    load_plugins([write(tmp_path, body)])
    assert {*measured_best(("hilos", "mine"), "alpha")} == {"hilos"}


def test_a_changed_file_replaces_its_systems(tmp_path: Path) -> None:
    def step_ms() -> float:
        point = nearkv.estimate("mine", "opt-66b", plugin=str(tmp_path / "mine.py"))
        return float(point["step_ms"])

    write(tmp_path, GOOD)
    before = step_ms()
    assert step_ms() == before
    write(tmp_path, system_that("return read(hw, llm, work, rate=2.0)"))
    assert step_ms() == pytest.approx(2 * before)


def test_a_system_travels_with_the_text_of_its_file(tmp_path: Path) -> None:
    """Another process, which has never seen the file, evaluates it all the same."""
    file = Path(write(tmp_path, GOOD))
    load_plugins([str(file)])
    packed = plan(Study(("mine",), ("opt-66b",))).packed()
    file.unlink()
    registry._SYSTEMS.pop("mine")
    assert unpacked.__wrapped__(packed).blocks[0].system.name == "mine"


def test_another_text_is_another_sweep(tmp_path: Path) -> None:
    def key(text: str) -> str:
        file = write(tmp_path, text)
        rows = plan(Study(("mine",), ("opt-66b",), plugins=(file,)))
        return digest_of(rows.blocks)

    first = key(GOOD)
    assert key(GOOD) == first
    assert key(f"{GOOD}\n# a remark\n") != first


def changed(field: str) -> str:
    """A system whose answer has one field of its own."""
    return system_that(
        "from dataclasses import replace\n"
        "    from nearkv.costmodel.algebra.span import Leaf\n"
        "    from nearkv.modelling import serial\n"
        f"    own = read(hw, llm, work)\n    return replace(own, {field})"
    )


HOSTILE = {
    "def": ("mine.py:7: does not run", "SyntaxError"),
    "1 / 0": ("mine.py:7: does not run", "ZeroDivisionError: division by zero"),
    "import nowhere": ("mine.py:7", "No module named 'nowhere'"),
    "raise SystemExit(3)": ("mine.py:7", "SystemExit: 3"),
    "def f(): f()\nf()": ("mine.py", "RecursionError"),
    "x = 1": ("registers no system", "nearkv systems new"),
    GOOD.replace('"mine"', '"hilos"'): ("mine.py:7", "system 'hilos' exists already"),
    GOOD.replace(", work)", ", work, *, beta)", 1): ("mine.py:7", "arguments ['beta']"),
    GOOD.replace("hilos-a100", "nowhere"): ("unknown platform 'nowhere'",),
    system_that("return 3"): ("must return an Estimate, not int",),
    system_that("return None"): ("must return an Estimate, not NoneType",),
    system_that("return hw.tpu"): ("has no 'tpu'",),
    system_that("return undefined"): ("mine.py:9: system 'mine' fails", "NameError"),
    system_that("return read(hw, llm, work, rate=-1.0)"): (
        "in prefill, gpu.hbm (gpu.hbm), repetitions of -64",
        "not negative",
    ),
    system_that("return read(hw, llm, work, rate=float('nan'))"): ("repetitions of nan",),
    system_that("return Estimate(1.0, 1.0, fits(), work, 1.0)"): ("prefill that is no span",),
    system_that("return serial(a=1.0)"): (
        "mine.py:9",
        "a is no span, but float; a leaf is port(amount)",
    ),
    system_that(
        "import dataclasses\n    return dataclasses.replace(read(hw, llm, work), fits=fits())"
    ): ("checks no memory",),
    system_that("return read(hw, llm, work, rate=0.0)"): ("takes 0 s for a step",),
    system_that("return read(hw, llm, work, rate=1 + 1j)"): ("repetitions of (64+64j)",),
    system_that("import numpy as np\n    return read(hw, llm, work, rate=np.ones(7))"): (
        "repetitions of shape (7,), which does not go with one design point",
    ),
    changed("columns={'step_ms': 5.0}"): (
        "'step_ms' in columns, which is a column of every system",
    ),
    changed("columns={'=1+1': 5.0}"): ("'=1+1' in columns",),
    changed("fits=fits(gpu=('1', '2'))"): ("a need of gpu of ",),
    changed("fits=fits(gpu=(float('nan'), 1.0))"): ("a need of gpu of nan",),
    changed("fits=fits(gpu=({'weights': 3.0, 'X': -1.0}, 4.0))"): ("a need of gpu for X of -1",),
    changed("batch_run=-1.0"): ("a batch_run of -1",),
    changed("step=serial(all=own.step, less=-0.1 * own.step)"): (
        "in step, less (gpu.hbm), repetitions of -6.4",
    ),
    changed("step=Leaf('expander.dram', 'read', 1.0, 1.0, 'B')"): (
        "names a resource 'expander.dram'",
        "the role that is charged, one of chassis",
    ),
    system_that("raise SystemExit"): ("system 'mine' fails (SystemExit)",),
    system_that("return llm.head_sze"): ("no attribute 'head_sze'; did you mean 'head_size'?)",),
    system_that("raise AttributeError('own')"): ("fails (AttributeError: own); correct",),
}


@pytest.mark.parametrize(("body", "words"), HOSTILE.items())
def test_a_hostile_file_gets_one_sentence(
    tmp_path: Path, body: str, words: tuple[str, ...]
) -> None:
    with pytest.raises(InputError) as caught:
        nearkv.estimate("mine", "opt-66b", plugin=write(tmp_path, body))
    sentence = str(caught.value)
    assert "\n" not in sentence
    for word in words:
        assert word in sentence, sentence
    assert registry.systems().keys() - SYSTEMS.keys() <= {"mine"}


def test_what_goes_wrong_at_no_sequences_is_told_as_such(tmp_path: Path) -> None:
    """A division by the batch in a solved system: not that its amounts are not affine."""
    body = """\
from nearkv.modelling import Knob

@system("mine", platform="hilos-a100", owns=("gpu",), knobs={"alpha": Knob("a share")})
def mine(hw, llm, work, *, alpha):
    import numpy as np
    share = (1 + alpha) * np.divide(work.batch, work.batch)
    step = over_layers(llm, lambda layer: gpu(hw).read(share * layer.kv_bytes(work.batch, 1)))
    return Estimate(step, step, fits(gpu=(1.0, gpu(hw).memory)), work, work.batch)
"""
    load_plugins([write(tmp_path, body)])
    (sentence,) = violations(registry.find_system("mine"), models=("opt-30b",))
    assert "in prefill, gpu.hbm (gpu.hbm), an amount of nan for a batch of 0" in sentence


def test_a_study_runs_no_plugin_that_its_reader_does_not_name(tmp_path: Path) -> None:
    """A study is data; whoever evaluates it says what may run."""
    plugin = write(tmp_path, GOOD + f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    study = tmp_path / "study.toml"
    study.write_text(f"systems = ['mine']\nmodel = ['opt-30b']\nplugin = ['{plugin}']\n")
    advice = f"runs as a program; allow it by --plugin {plugin}"
    assert advice in refusal("pareto", str(study))
    assert advice in refusal("sweep", str(study), "-o", str(tmp_path / "a.csv"))
    with pytest.raises(InputError, match="allow it by --plugin"):
        nearkv.sweep(str(study))
    assert not (tmp_path / "ran").exists()
    succeed("sweep", str(study), "--plugin", plugin, "--format", "csv")
    assert (tmp_path / "ran").exists()
    assert len(nearkv.sweep(str(study), plugin=plugin)) == 1


def test_one_text_in_two_files_is_refused(tmp_path: Path) -> None:
    one, other = write(tmp_path, GOOD), write(tmp_path, GOOD, "other.py")
    with pytest.raises(InputError, match=r"mine\.py and --plugin .*other\.py are one text"):
        load_plugins([one, other])


def test_what_is_no_plugin_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe")
    (tmp_path / "large.py").write_bytes(b"#" * (2 << 20))
    for name, word in (
        ("bytes.py", "not a text in UTF-8"),
        ("large.py", "larger than 1 MiB"),
        ("none.py", "No such file"),
        ("mine.toml", "a file of Python"),
    ):
        with pytest.raises(InputError, match=word):
            load_plugins([str(tmp_path / name)])


def test_the_contracts_name_what_a_system_breaks(tmp_path: Path) -> None:
    """A time that falls with more memory bandwidth's inverse is caught, and so is a constant."""
    broken = "return read(hw, llm, work, rate=hw.gpu.memory)"
    load_plugins([write(tmp_path, system_that(broken))])
    sentences = violations(registry.find_system("mine"), models=("opt-30b",))
    assert "is slower with more of gpu.memory" in sentences
    assert "has no docstring; its first line is what `nearkv systems` shows" in sentences


BROKEN = {
    GOOD.replace('("gpu",)', '("gpu", "tpu")'): "owns 'tpu', which is no role of a platform",
    GOOD.replace("owns=", 'cite="nobody", owns='): "cites 'nobody', which is no source",
    system_that("return hw.tpu"): "has no 'tpu'",
    system_that("return read(hw, llm, work, 1 / (1 + work.batch) ** 2)"): "with more sequences",
    system_that("import numpy as np\n    return read(hw, llm, work, np.ones(1))"): "by arrays",
    system_that(
        "import numpy as np\n    return read(hw, llm, work, 2 - 1 / (1 + np.max(work.batch)))"
    ): "there in a grid",
    system_that(
        "from dataclasses import replace\n"
        "    return read(hw, llm, replace(work, batch=work.batch + 1))"
    ): "for a step of no sequences",
}


@pytest.mark.parametrize(("body", "words"), BROKEN.items())
def test_each_broken_contract_has_its_sentence(tmp_path: Path, body: str, words: str) -> None:
    load_plugins([write(tmp_path, body)])
    sentences = violations(registry.find_system("mine"), models=("opt-30b",))
    assert [sentence for sentence in sentences if words in sentence], sentences


def test_a_system_of_no_model_has_no_contract_to_keep(tmp_path: Path) -> None:
    load_plugins([write(tmp_path, GOOD)])
    sentences = violations(registry.find_system("mine"), models=("deepseek-v3.2",))
    assert sentences[-1] == "models none of deepseek-v3.2; name its attention in attends"


def test_the_list_of_modelling_is_documented() -> None:
    """Every name stands in the table and in the example, which a test runs."""
    page = (Path(__file__).parents[3] / "docs" / "own.md").read_text()
    table, _, example = page.partition("Each of them, with numbers")
    for name in nearkv.modelling.__all__:
        assert f"`{name}`" in table, name
        assert hasattr(nearkv.modelling, name)
        assert name in example or name in ("LLM", "Machine", "load_plugins", "system"), name


def test_a_new_system_works_as_it_is_and_keeps_the_contracts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file, text in new_system("my-cache").items():
        Path(file).write_text(text)
    names: dict[str, object] = {}
    exec(Path("test_my_cache.py").read_text(), names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()  # type: ignore[operator]
    with pytest.raises(InputError, match="small letters"):
        new_system("My System")


@pytest.mark.processes
def test_an_installed_package_registers_its_systems(tmp_path: Path) -> None:
    """By an entry point; where another package does not load, a sentence says which."""
    write(tmp_path, GOOD, "my_package.py")
    write(tmp_path, "1 / 0", "broken_package.py")
    info = tmp_path / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    points = "[nearkv.systems]\nmine = my_package\n"
    (info / "entry_points.txt").write_text(points)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    words = ["--system", "mine", "--model", "opt-66b", "--jobs", "2", "-o", "out.csv"]
    done = subprocess.run(
        [COMMAND, "sweep", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.csv").read_text().splitlines()[1].startswith("mine,")
    (info / "entry_points.txt").write_text(f"{points}broken = broken_package\n")
    done = subprocess.run(
        [COMMAND, "systems"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "broken = 'broken_package' does not load (ZeroDivisionError" in done.stderr


def test_a_plugin_that_fails_leaves_the_module_that_ran_before() -> None:
    good, bad = Plugin("mine.py", "WORTH = 5"), Plugin("mine.py", "1 / 0")
    good.run()
    try:
        with pytest.raises(InputError, match=r"mine\.py"):
            bad.run()
        assert sys.modules["nearkv_plugin_mine"].WORTH == 5
    finally:
        del sys.modules["nearkv_plugin_mine"]
