"""Writing new KV rows to flash inside the devices: committed at once, or buffered and spilled.

HILOS sec. 4.3; INF² sec. 4.2 describes the same two ways with its own page and layout.

Symbols: b batch, c spill interval, d head size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.span import Port, Real, Span, serial
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import choice
from nearkv.costmodel.model.resources import Csd

WRITEBACK = choice(
    "commit every KV entry in the step, or spill pages in the background",
    ("naive", "delayed"),
    default=1,
)


def head_rows(llm: LLM, b: Real, kv_share: Real, x_share: Real) -> Real:
    """Head-sized rows a new token adds to one layer: K and V rows, and X rows in K's layout [1].

    Args:
        kv_share, x_share: shares of the batch whose K and V, and whose X, go to flash [1].
    """
    kv_rows = kv_share * 2 * llm.kv_heads
    x_rows = x_share * llm.hidden / llm.head_size
    return b * (kv_rows + x_rows)


def row_bytes(llm: LLM) -> Real:
    """One token's K, or V, of one head [B]."""
    return llm.head_size * llm.kv_width


def rows_per_page(llm: LLM, page: Real) -> Real:
    """Rows of one head that share a flash page; never less than one [1]."""
    return np.maximum(np.floor(page / row_bytes(llm)), 1.0)


def pages_per_row(llm: LLM, page: Real) -> Real:
    """Flash pages one row of one head takes; never less than one [1]."""
    return np.ceil(row_bytes(llm) / page)


@dataclass(frozen=True)
class Writeback:
    """Transfer of one layer's new rows to flash.

    Attributes:
        llm, device: what runs and where its rows go.
        rows: head-sized rows that a step adds [1].
        delayed: 0 where each is committed in the step, 1 where pages are spilled in the background.
        interval: steps between spills, c [1].
    """

    llm: LLM
    device: Csd
    rows: Real
    delayed: Real
    interval: Real

    def in_step(self) -> Span:
        """Every row committed in the step, in pages of its own (HILOS fig. 6a, INF² fig. 5a)."""
        pages = (1 - self.delayed) * self.rows * pages_per_row(self.llm, self.device.page)
        return self._write(pages, pages, "whole pages for each row")

    def in_background(self, output: Real) -> Span:
        """Every c steps each head writes ceil(c / rows a page) pages (HILOS fig. 6b, INF² fig. 5b).

        While a request runs, that load is steady. Rows still buffered when it ends are never
        written: c floor(n/c) of n tokens are.

        Args:
            output: tokens that a request generates, n [1].
        """
        c, page = self.interval, self.device.page
        row_pages = np.ceil(c / rows_per_page(self.llm, page)) * pages_per_row(
            self.llm, page
        )
        pages = self.delayed * self.rows * row_pages / c
        written = c * np.floor(output / c) / output
        return self._write(pages, written * pages, "whole pages")

    def _write(self, commits: Real, pages: Real, eq: str) -> Span:
        return serial(
            commit=self.device.commit(commits, "one commit a page"),
            program=self.device.write(pages * self.device.page, eq),
        )


def mean_buffered_rows(c: Real) -> Real:
    """Rows in a buffer that is emptied every c steps, on average over them, (c + 1) / 2 [1]."""
    return (c + 1) / 2


def mean_buffered_pages(c: Real, m: Real) -> Real:
    """Pages those rows fill when m share one: the mean of ceil(i / m) over i = 1 ... c [1]."""
    full: Real = np.floor(c / m)
    in_full = m * full * (full + 1) / 2
    last = (c - m * full) * (full + 1)
    return (in_full + last) / c


def stage_pages(llm: LLM, near: Real, c: Real, devices: Csd, to_device: Port) -> Span:
    """Buffered V rows and partial scores go to the kernels, page by page (HILOS sec. 4.3, 7.3).

    The CPU has used the K rows. The host issues one transfer after another, which is what makes a
    large c lose (sec. 7.3).
    """
    heads = near * llm.kv_heads
    row_pages = pages_per_row(llm, devices.page)
    pages = mean_buffered_pages(c, rows_per_page(llm, devices.page)) * row_pages
    row = row_bytes(llm) + llm.group * llm.activation_width
    buffered = mean_buffered_rows(c) * heads * row
    return serial(
        issue=devices.stage(
            2 * heads * pages, "a transfer and its wait a page of a head's buffer"
        ),
        send=to_device(buffered, "V rows and Q K^T scalars"),
    )


def stage_sequences(llm: LLM, near: Real, c: Real, devices: Csd, to_device: Port) -> Span:
    """Rows not yet spilled go to the kernels, one buffer a sequence (INF² sec. 4.2, 7.1).

    A sequence's heads share a device. The newest row is not among them: the exchange has just
    brought it (eq. 3). The host issues one transfer after another.
    """
    older = (mean_buffered_rows(c) - 1) * llm.kv_bytes(near, 1)
    return serial(
        issue=devices.stage(near, "one transfer a sequence"),
        send=to_device(older, "K and V rows again"),
    )
