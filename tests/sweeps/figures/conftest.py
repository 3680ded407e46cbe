"""Figures of tests are drawn without a screen, and closed."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib as mpl
import pytest

mpl.use("agg")

from nearkv.sweeps.figures import style


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Every test closes the figures it opened."""
    yield
    style.load_pyplot().close("all")
