"""The directive `{prints} COMMAND`: what a command prints, run while the site is built."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from docutils.parsers.rst import Directive

if TYPE_CHECKING:
    from sphinx.application import Sphinx

WIDTH = "80"
"""Characters of a line."""


class Prints(Directive):
    """A block of text."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Run the command and return what it prints."""
        nearkv = Path(sys.executable).with_name("nearkv")
        command = [nearkv, *shlex.split(self.arguments[0])]
        text = subprocess.check_output(
            command, text=True, env={**os.environ, "COLUMNS": WIDTH}
        )
        return [nodes.literal_block(text, text, language="text")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Offer the directive to Sphinx."""
    app.add_directive("prints", Prints)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
