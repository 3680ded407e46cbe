"""Run the commands that README shows and write what they print: `make readme`."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
SHOWN = re.compile(r"(<!-- nearkv (.+?) -->\n\n)((?:\|.*\n)*)\n?")


def printed(command: str) -> str:
    """The output of a command."""
    nearkv = Path(sys.executable).with_name("nearkv")
    return subprocess.check_output([nearkv, *shlex.split(command)], text=True)


if __name__ == "__main__":
    text = SHOWN.sub(lambda shown: f"{shown[1]}{printed(shown[2])}\n", README.read_text())
    README.write_text(text)
