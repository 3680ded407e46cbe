"""Figures as SVG for a page: bars and points say their value when a pointer rests on them."""

from __future__ import annotations

import io
import re
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from nearkv.sweeps.figures.style import SETTINGS, load_pyplot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_MARKS = 500
"""A figure with more bars or points than this has no texts to hover over."""


def svg_of(axes: Axes, name: str) -> str:
    """Return the figure of some axes, then closed, as one inline `<svg>` that says its values.

    Args:
        axes: what `nearkv.plot` drew.
        name: unique on the page; ids within the SVG begin with it.
    """
    import matplotlib as mpl

    texts = _mark_bars(axes, name) | _mark_points(axes, name)
    stream = io.StringIO()
    figure: Any = axes.figure
    with mpl.rc_context(SETTINGS | {"svg.hashsalt": name}):
        figure.savefig(stream, format="svg", metadata={"Date": None})
    load_pyplot().close(figure)
    svg = stream.getvalue()
    svg = svg[svg.index("<svg") :]
    for identifier, text in texts.items():
        opening = f'<g id="{identifier}">'
        svg = svg.replace(opening, f"{opening}<title>{escape(text)}</title>", 1)
    return _own_ids(svg, name)


def _mark_bars(axes: Axes, name: str) -> dict[str, str]:
    """Give every bar an id; return its text by id."""
    from matplotlib.container import BarContainer
    from matplotlib.patches import Rectangle

    texts: dict[str, str] = {}
    for group in axes.containers:
        if not isinstance(group, BarContainer):
            continue
        for bar in group:
            if isinstance(bar, Rectangle) and np.isfinite(bar.get_height()):
                identifier = f"{name}-bar-{len(texts)}"
                bar.set_gid(identifier)
                texts[identifier] = f"{group.get_label()}: {bar.get_height():.4g}"
    return texts


def _mark_points(axes: Axes, name: str) -> dict[str, str]:
    """Lay an invisible mark with an id over every point of a line; return its text by id."""
    texts: dict[str, str] = {}
    lines = [line for line in axes.lines if line.get_marker() not in ("None", "x")]
    points = []
    for line in lines:
        label = str(line.get_label())
        for x, y in np.asarray(line.get_xydata()):
            points.append((label, float(x), float(y)))
    if len(points) > MOST_MARKS:
        return texts
    for label, x, y in points:
        if np.isfinite(x) and np.isfinite(y):
            identifier = f"{name}-point-{len(texts)}"
            axes.scatter(x, y, s=40, alpha=0.0, gid=identifier)
            texts[identifier] = f"{label}: {y:.4g}"
    return texts


def _own_ids(svg: str, name: str) -> str:
    """Prefix the ids of shared definitions, so that two figures of a page do not meet."""
    foreign = rf"(?!{re.escape(name)}-)"
    svg = re.sub(f'id="{foreign}', f'id="{name}-', svg)
    return re.sub(rf'((?:href="|url\()#){foreign}', rf"\g<1>{name}-", svg)
