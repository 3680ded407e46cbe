"""What a paper states of a figure in words, drawn beside what we predict."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nearkv.sweeps.figures.style import colour
from nearkv.sweeps.validation.claims import Claim, load, papers
from nearkv.sweeps.validation.prediction import predict

LONGEST = 52
"""Characters of a line of a statement; it has two at most."""

MARKERS = {"at_most": "<", "at_least": ">"}
"""A bound points to the side where the prediction may lie."""

LINE_HEIGHT, AXIS_HEIGHT, KEY_HEIGHT = 0.24, 0.5, 0.3
"""Heights of a statement, around those of one unit, and of the legend [inch]."""

RANGE = "#BBDDF4"
"""Colour of a bar between the lowest and the highest prediction."""

YES_OR_NO = ("bool", "boolean")


@dataclass(frozen=True)
class Statement:
    """A number that the paper prints, and ours.

    Attributes:
        text: what is stated, in words.
        unit: of both.
        bound: exact, approx, at_most, at_least or range.
        stated: lowest and highest number.
        predicted: lowest and highest number.
    """

    text: str
    unit: str
    bound: str
    stated: tuple[float, float]
    predicted: tuple[float, float]


def statements_of(paper: str, study: str) -> list[Statement]:
    """Return the numbers that a paper states of a figure.

    Args:
        paper: whose.
        study: name of its study, which ends in the figure's: `hilos-fig10`, `inf2-fig15a`.
    """
    label = study.partition("-fig")[2]
    rows = []
    for claim in load(paper) if label and paper in papers() else ():
        if is_about(claim, label) and claim.metric and claim.unit not in YES_OR_NO:
            low, high = map(float, predict(claim))
            stated = (float(claim.low), float(claim.high))
            text = f"{claim.claim} [{claim.id}]"
            rows.append(Statement(text, claim.unit, claim.bound, stated, (low, high)))
    return rows


def is_about(claim: Claim, label: str) -> bool:
    """Return whether a claim's address names a figure, or a panel of it.

    >>> is_about(Claim("", "s6.3; Fig10a", "", "", "", "", "", ""), "10")
    True
    >>> is_about(Claim("", "s6.3; Fig10a", "", "", "", "", "", ""), "1")
    False
    """
    panel = "" if label[-1:].isalpha() else "[a-z]?"
    return bool(re.search(rf"\bFig\.? ?{label}{panel}(?![0-9a-z])", claim.where))


def draw_statements(room: Any, statements: Sequence[Statement]) -> None:
    """Draw a bar for each prediction and a mark for what is stated, one axis a unit.

    Args:
        room: a figure or a part of one.
        statements: what is drawn, top down.
    """
    groups = _by_unit(statements)
    heights = [LINE_HEIGHT * len(group) for group in groups.values()]
    drawn = room.subplots(len(groups), 1, height_ratios=heights, squeeze=False)[:, 0]
    for axes, (unit, group) in zip(drawn, groups.items(), strict=True):
        _draw_group(axes, unit, group[::-1])
    handles, labels = drawn[0].get_legend_handles_labels()
    entries = dict(zip(labels, handles, strict=True))
    room.legend(
        entries.values(), entries, loc="outside upper right", ncols=3, frameon=False
    )


def height_of(statements: Sequence[Statement]) -> float:
    """Return the height that statements need [inch]."""
    axes = AXIS_HEIGHT * len(_by_unit(statements))
    return KEY_HEIGHT + axes + LINE_HEIGHT * len(statements)


def _by_unit(statements: Sequence[Statement]) -> dict[str, list[Statement]]:
    """Return the statements of every unit, in order."""
    groups: dict[str, list[Statement]] = {}
    for statement in statements:
        groups.setdefault(statement.unit, []).append(statement)
    return groups


def _draw_group(axes: Any, unit: str, group: Sequence[Statement]) -> None:
    """Draw the statements of one unit, the first of them at the bottom."""
    for place, row in enumerate(group):
        low, high = row.predicted
        axes.barh(place, low, 0.6, color=colour(4), label="predicted")
        if low < high:
            label = "predicted, up to"
            axes.barh(place, high - low, 0.6, left=low, color=RANGE, label=label)
        marker = MARKERS.get(row.bound, "D")
        axes.plot(
            row.stated,
            [place, place],
            marker=marker,
            color="black",
            markersize=4,
            linewidth=1.0,
            label="stated",
        )
    axes.set_ylim(-0.6, len(group) - 0.4)
    axes.set_yticks(range(len(group)), [_wrapped(row.text) for row in group], fontsize=6)
    axes.set_xlabel(f"Stated and predicted ({unit})")
    axes.set_xlim(left=0)


def _wrapped(text: str) -> str:
    """Return a statement in two lines at most."""
    words, _, name = text.rpartition(" [")
    shortened = textwrap.shorten(words, 2 * LONGEST - 16 - len(name), placeholder=" ...")
    return "\n".join(textwrap.wrap(f"{shortened} [{name}", LONGEST))
