"""Files that commands write beside their tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearkv.hardware.errors import InputError
from nearkv.sweeps.commands.writing import write_new


def test_a_device_is_no_file_that_exists() -> None:
    with pytest.raises(InputError, match="is a device or a pipe"):
        write_new(Path("/dev/full"), "{}")


def test_a_file_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "proof.json"
    write_new(file, "first")
    with pytest.raises(InputError, match="File exists"):
        write_new(file, "second")
    assert file.read_text() == "first"
