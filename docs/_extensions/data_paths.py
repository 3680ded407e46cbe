"""The directive `{data-paths} SYSTEM ...`: which bytes pass which resource in a decode step.

It draws the time tree of a prediction: what happens one after the other stands side by side, what
happens at the same time stands on top of each other. Its arguments are those of `nearkv estimate`.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from docutils import nodes
from docutils.parsers.rst import Directive

import nearkv

if TYPE_CHECKING:
    from sphinx.application import Sphinx

WIDTH, HEIGHT, GAP, TITLE = 104, 34, 6, 14
"""Sizes of a leaf, gap between boxes, and height of a box's title [px]."""


@dataclass
class Box:
    """A span of the tree as it is drawn.

    Attributes:
        name: of the span.
        word: how its parts follow each other.
        text: of a leaf, its resource and what passes it.
        parts: spans within.
    """

    name: str
    word: str
    text: str
    parts: list[Box] = field(default_factory=list)

    @property
    def across(self) -> bool:
        """True if the parts stand side by side."""
        return self.word == "serial"

    @property
    def size(self) -> tuple[float, float]:
        """Width and height [px]."""
        if not self.parts:
            return WIDTH, HEIGHT
        widths, heights = zip(*(part.size for part in self.parts), strict=True)
        gaps = GAP * (len(self.parts) + 1)
        if self.across:
            return sum(widths) + gaps, max(heights) + TITLE + 2 * GAP
        return max(widths) + 2 * GAP, sum(heights) + TITLE + gaps

    def drawn(self, x: float, y: float) -> str:
        """Return the box and its parts as SVG, its upper left corner at a place."""
        width, height = self.size
        kind = "group" if self.parts else "leaf"
        texts = [self.name.replace("_", " "), *self.text.splitlines()]
        svg = f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="3"/>'
        for line, text in enumerate(texts):
            place = f'x="{x + 4}" y="{y + 11 + 10 * line}"'
            svg += f'<text {place} class="{"title" if line == 0 else "what"}">{escape(text)}</text>'
        x, y = x + GAP, y + TITLE + GAP
        for part in self.parts:
            svg += part.drawn(x, y)
            wide, high = part.size
            x, y = (x + wide + GAP, y) if self.across else (x, y + high + GAP)
        return svg


def boxes(rows: list[dict[str, Any]]) -> Box:
    """Return the decode step of a time tree, without spans that hold a single other."""
    made: dict[str, Box] = {}
    for row in rows:
        path = row["span"]
        if not path.startswith("decode") or not row["seconds"]:
            continue
        amount = f"{row['amount']:.3g} {row['unit']}" if row["word"] == "leaf" else ""
        text = f"{row['resource']}\n{amount}" if amount else ""
        above, _, name = path.rpartition("/")
        made[path] = Box(name, row["word"], text)
        if above in made:
            made[above].parts.append(made[path])
    return _simple(made["decode"])


def _simple(box: Box) -> Box:
    """Return a box without inner boxes that hold one part alone."""
    parts = [_simple(part) for part in box.parts]
    if len(parts) == 1:
        return parts[0]
    return Box(box.name, box.word, box.text, parts)


class DataPaths(Directive):
    """A drawing, and a sentence on what it shows."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Predict and draw."""
        system, *options = shlex.split(self.arguments[0])
        axes = dict(zip(options[::2], options[1::2], strict=True))
        given: dict[str, Any] = {
            name.removeprefix("--"): text for name, text in axes.items()
        }
        tree = nearkv.estimate(system, **given).tree
        box = boxes(tree)
        width, height = box.size
        label = f"Data paths of a decode step of {system}"
        size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        svg = f'<svg class="paths" role="img" aria-label="{label}" {size}>{box.drawn(0, 0)}</svg>'
        caption = (
            f"<p>All decode steps of <code>nearkv estimate {self.arguments[0]}</code>.</p>"
        )
        return [nodes.raw("", f'<div class="drawing">{svg}</div>{caption}', format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Offer the directive to Sphinx."""
    app.add_directive("data-paths", DataPaths)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
