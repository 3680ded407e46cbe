"""A wheel and a source archive: each installs one name, which works from any folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
PACKAGES = ("hardware", "costmodel", "solvers", "sweeps")
COMPARE = [
    "compare",
    "flexgen-ssd",
    "hilos",
    "--model=opt-66b",
    "--context=64k",
    "--columns=system,speedup",
    "--format=csv",
]


def built(folder: Path, kind: str) -> Path:
    """A distribution built from a folder, by the build backend that pyproject.toml names."""
    target = folder / "dist"
    target.mkdir(exist_ok=True)
    code = f"from setuptools import build_meta; print(build_meta.build_{kind}('dist'))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return target / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of a checkout that go into a distribution, links included."""
    folder = tmp_path_factory.mktemp("checkout") / "nearkv"
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    folder.mkdir()
    for name in (*PACKAGES, "src"):
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=unwanted)
    for file in ROOT.iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(sources: Path) -> Path:
    """The wheel of the checkout."""
    return built(sources, "wheel")


@pytest.fixture(scope="module")
def rebuilt(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the source archive."""
    archive = built(sources, "sdist")
    folder = tmp_path_factory.mktemp("archive")
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")
    return built(next(folder.iterdir()), "wheel")


def checksums(wheel: Path) -> dict[str, int]:
    """Every file of a wheel, and the checksum of what it holds."""
    with zipfile.ZipFile(wheel) as content:
        return {file.filename: file.CRC for file in content.infolist()}


def test_a_wheel_holds_every_module_and_every_number(wheel: Path) -> None:
    expected = {f"nearkv/{file.name}" for file in (ROOT / "src/nearkv").glob("*.*")}
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*"):
            tracked = file.is_file() and file.suffix != ".pyc" and not file.name.startswith(".")
            if tracked:
                expected.add(f"nearkv/{file.relative_to(ROOT).as_posix()}")
    packaged = {name for name in checksums(wheel) if ".dist-info/" not in name}
    assert packaged == expected


def test_a_source_archive_builds_the_same_wheel(wheel: Path, rebuilt: Path) -> None:
    assert checksums(rebuilt) == checksums(wheel)


class Environment:
    """A virtual environment that sees what nearkv depends on, but no nearkv yet."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        self.bin = folder / "bin"
        self.site = next(folder.glob("lib/python*/site-packages"))
        outer = sysconfig.get_path("purelib")
        (self.site / "dependencies.pth").write_text(f"{outer}\n")

    def install(self, wheel: Path) -> set[str]:
        """Install a wheel; what site-packages gained."""
        before = set(os.listdir(self.site))
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python")]
        options = ["--quiet", "--no-deps", "--no-index", "--ignore-installed", "--no-compile"]
        subprocess.run([*pip, "install", *options, str(wheel)], check=True)
        return set(os.listdir(self.site)) - before

    def run(self, command: str, *arguments: str, folder: Path) -> str:
        """Output of a command that is run from a folder, with no path of this checkout."""
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        line = [str(self.bin / command), *arguments]
        done = subprocess.run(
            line, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the wheel, which is that of the archive, too."""
    environment = Environment(tmp_path_factory.mktemp("environment"))
    gained = environment.install(wheel)
    assert len(gained) == 2
    assert "nearkv" in gained
    assert any(name.startswith("nearkv-") and name.endswith(".dist-info") for name in gained)
    return environment


@pytest.fixture
def folder_of_a_user(tmp_path: Path) -> Path:
    """A folder whose own modules have the names of our folders."""
    for name in ("cli.py", "hardware.py", "costmodel.py", "solvers.py"):
        (tmp_path / name).write_text("raise RuntimeError('a module of the user')\n")
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "__init__.py").write_text("raise RuntimeError('of the user')\n")
    return tmp_path


def test_it_works_from_any_folder(
    installed: Environment, folder_of_a_user: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    answer = installed.run("nearkv", *COMPARE, folder=elsewhere)
    assert answer.splitlines()[0] == "system,speedup"
    assert len(answer.splitlines()) == 3
    assert installed.run("python", "-m", "nearkv", *COMPARE, folder=folder_of_a_user) == answer
    code = "import nearkv; print(nearkv.__file__, nearkv.__version__)"
    file, version = installed.run("python", "-c", code, folder=folder_of_a_user).split()
    assert Path(file).is_relative_to(installed.site)
    assert version
