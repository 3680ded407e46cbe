"""Writing new KV rows to flash inside the devices: committed at once, or buffered and spilled (HILOS sec. 4.3).

INF² sec. 4.2 describes the same two ways with its own page and layout.

Symbols: b batch, c spill interval, d head size.
"""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.compose import serial
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.resources import Csd
from nearkv.costmodel.span import Port, Real, Span


def head_rows(llm: LLM, b: Real, kv_share: Real, x_share: Real) -> Real:
    """Head-sized rows a new token adds to one layer: K and V rows, and X rows in K's layout [1].

    Args:
        kv_share, x_share: shares of the batch whose K and V, and whose X, go to flash [1].
    """
    return b * (kv_share * 2 * llm.kv_heads + x_share * llm.hidden / llm.head_size)


def rows_per_page(llm: LLM, dev: Csd) -> Real:
    """Rows of one head that share a flash page; never less than one [1]."""
    return np.maximum(np.floor(dev.page / (llm.head_size * llm.kv_width)), 1.0)


def pages_per_row(llm: LLM, dev: Csd) -> Real:
    """Flash pages one row of one head takes; never less than one [1]."""
    return np.ceil(llm.head_size * llm.kv_width / dev.page)


def write_naively(llm: LLM, rows: Real, writeback: Real, dev: Csd) -> Span:
    """Every row is committed inside the step, each in pages of its own (HILOS fig. 6a, INF² fig. 5a).

    Args:
        rows: new rows of one layer [1].
        writeback: 0 naive, 1 delayed.
    """
    now = (1 - writeback) * rows * pages_per_row(llm, dev)
    return serial(
        commit=dev.commit(now, "one commit a page"),
        program=dev.write(now * dev.page, "whole pages for each row"),
    )


def spill(llm: LLM, rows: Real, c: Real, writeback: Real, output: Real, dev: Csd) -> Span:
    """Every c steps each head writes ceil(c / rows a page) pages, in the background (HILOS fig. 6b, INF² fig. 5b).

    While a request runs, that load is steady. Rows still buffered when it ends are never written:
    c floor(n/c) of n tokens are.
    """
    pages = writeback * rows * np.ceil(c / rows_per_page(llm, dev)) * pages_per_row(llm, dev) / c
    kept = c * np.floor(output / c) / output
    return serial(
        commit=dev.commit(pages, "one commit a page"),
        program=dev.write(kept * pages * dev.page, "whole pages"),
    )


def stage_buffers(
    transfers: Real, buffered: Real, dev: Csd, to_device: Port, transfer_is: str, buffered_is: str
) -> Span:
    """Buffered rows go to the accelerators again each step, before the kernel can start.

    The host issues one transfer after another, which is what makes a large c lose (HILOS sec. 7.3).

    Args:
        transfers: transfers of one layer [1].
        buffered: bytes of all buffers, on average over an interval [B].
        to_device: the link they cross.
        transfer_is, buffered_is: what they are, for readers.
    """
    return serial(issue=dev.stage(transfers, transfer_is), send=to_device(buffered, buffered_is))


def mean_buffered_rows(c: Real) -> Real:
    """Rows in a buffer that is emptied every c steps, on average over them, (c + 1) / 2 [1]."""
    return (c + 1) / 2


def mean_buffered_pages(c: Real, m: Real) -> Real:
    """Pages those rows fill when m share one: the mean of ceil(i / m) over i = 1 ... c [1]."""
    full: Real = np.floor(c / m)
    return (m * full * (full + 1) / 2 + (c - m * full) * (full + 1)) / c
