"""Every figure: widths of a paper, embedded text, one sentence without the library."""

from __future__ import annotations

import re
import zlib
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest
from support.command_line import refusal, succeed
from support.figures import TABLE

from nearkv.hardware.errors import InputError
from nearkv.sweeps.figures import plot, style


def shown_text(pdf: bytes) -> str:
    """Letters that a reader of a PDF can select: what its pages show with TJ."""
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.S)
    pages = []
    for stream in streams:
        with suppress(zlib.error):
            pages.append(zlib.decompress(stream).decode("latin-1"))
    arrays = re.findall(r"\[(.*?)\]\s*TJ", "\n".join(pages), re.S)
    strings = [re.findall(r"\(((?:\\.|[^\\()])*)\)", array, re.S) for array in arrays]
    return re.sub(r"\\(.)", r"\1", "\n".join("".join(parts) for parts in strings)).replace("\0", "")


@pytest.mark.parametrize("width", ["column", "page"])
def test_a_figure_has_the_width_of_a_paper(width: str) -> None:
    figure = plot.bars(TABLE, "decode_tok_s", width=width).figure
    assert figure.get_figwidth() == {"column": 3.33, "page": 7.0}[width]  # type: ignore[union-attr]


@pytest.mark.slow
def test_a_pdf_embeds_its_fonts_as_text(tmp_path: Path) -> None:
    """Type 42 (TrueType), no Type 3; a figure of 60 bars is smaller than 100 kB."""
    wide = pd.DataFrame(
        {
            "system": [f"s{i % 6}" for i in range(60)],
            "context_tok": [1024 * (1 + i // 6) for i in range(60)],
            "decode_tok_s": [1.0 + i for i in range(60)],
        }
    )
    file = tmp_path / "bars.pdf"
    plot.save(plot.bars(wide, "decode_tok_s").figure, file)  # type: ignore[arg-type]
    content = file.read_bytes()
    assert re.search(rb"/FontFile2\b", content)
    assert b"/Subtype /Type3" not in content
    assert len(content) < 100_000
    assert b"/ToUnicode" in content
    assert "Decode (tok/s)" in shown_text(content)
    assert not list(tmp_path.glob("*.partial"))


def test_an_svg_keeps_its_text(tmp_path: Path) -> None:
    file = tmp_path / "bars.svg"
    plot.save(plot.bars(TABLE, "decode_tok_s").figure, file)  # type: ignore[arg-type]
    assert "Decode (tok/s)" in file.read_text()


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.pdf, \.svg, \.png"):
        style.check_format(tmp_path / "a.gif")


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without the extra."""
    import builtins

    real = builtins.__import__

    def without(name: str, *rest: object, **kwargs: object) -> object:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)


@pytest.mark.parametrize(
    "words",
    [
        ["compare", "hilos", "--model", "opt-30b", "-o", "a.pdf"],
        ["plot", "bars", "-", "-o", "a.pdf"],
        ["figure", "inf2-fig10"],
        ["report", "--system", "hilos", "--model", "opt-30b", "-o", "a.html"],
    ],
    ids=lambda words: words[0],
)
@pytest.mark.usefixtures("without_library")
def test_without_the_library_one_sentence_names_the_extra(words: list[str]) -> None:
    assert "nearkv[plot]" in refusal(*words, text="system\na\n")


@pytest.mark.usefixtures("without_library")
def test_charts_and_lists_need_no_library() -> None:
    assert "█" in succeed("compare", "hilos", "--model", "opt-30b", "--chart")
    assert "hilos-fig10" in succeed("figure")


def test_dollars_in_a_name_are_no_formula(tmp_path: Path) -> None:
    """Names are the user's; the numbers of a logarithmic axis stay numbers beside them."""
    rows = [
        {"system": system, "context_tok": context, "step_ms": context / 4 * (1 + place)}
        for place, system in enumerate(["hilos", r"$\frac$"])
        for context in (1_024, 16_384, 262_144)
    ]
    table = pd.DataFrame(rows)
    drawn = {
        "lines.svg": plot.lines(table, "step_ms"),
        "bars.svg": plot.bars(table, "step_ms", log=True),
    }
    for name, axes in drawn.items():
        style.save(axes.figure, tmp_path / name)  # type: ignore[arg-type]
        text = (tmp_path / name).read_text()
        assert r"$\frac$" in text
        assert "mathdefault" not in text
