"""What the README shows is what the commands print."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()
SHOWN = re.findall(r"<!-- nearkv (.+?) -->\n\n(.+?)(?:\n\n|\Z)", README, re.S)


def test_the_readme_shows_something() -> None:
    assert len(SHOWN) == 2


@pytest.mark.parametrize(
    ("command", "text"), SHOWN, ids=[command.split()[0] for command, _ in SHOWN]
)
def test_the_readme_shows_what_the_command_prints(command: str, text: str) -> None:
    nearkv = Path(sys.executable).with_name("nearkv")
    done = subprocess.run(
        [nearkv, *shlex.split(command)], capture_output=True, text=True, check=True
    )
    assert [line.rstrip() for line in done.stdout.splitlines()] == [
        line.removeprefix("    ").rstrip() for line in text.splitlines()
    ]
