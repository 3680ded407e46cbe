"""A terminal of 80 columns in place of standard output, and what was printed on it."""

from __future__ import annotations

import os
import pty
import re
import sys
import threading

import pytest

COLOUR = re.compile(r"\x1b\[\d*m")


class Screen:
    """A pseudo-terminal in place of standard output."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.received = b""
        self.leader, follower = pty.openpty()
        self.file = os.fdopen(follower, "w")
        self.reader = threading.Thread(target=self._read)
        self.reader.start()
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("LINES", "24")
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setattr(sys, "stdout", self.file)

    def _read(self) -> None:
        try:
            while piece := os.read(self.leader, 4096):
                self.received += piece
        except OSError:  # the other end is closed
            pass

    def text(self) -> str:
        """All that was printed, without colours."""
        self.file.close()
        self.reader.join(10)
        os.close(self.leader)
        return COLOUR.sub("", self.received.decode().replace("\r\n", "\n"))
