"""Turn rows into bytes of a file: CSV, JSON lines or Parquet, by way of Arrow.

The text is the one `nearkv.sweeps.tables.table` prints: whole numbers without a point, shortest
digits that read back as the same number, blanks (null) where there is none.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from nearkv.sweeps.jobs.arrow import TYPES, table
from nearkv.sweeps.jobs.plan import Piece

SPECIAL = ',"\r\n'
"""Characters that put a cell of CSV into quotes."""


def encoded(packed: bytes, form: str, piece: Piece) -> bytes:
    """Evaluate a piece and write it down; what a worker does.

    Args:
        packed: as `Plan.packed` gives it.
        form: one of `ENCODERS`.
        piece: the rows.
    """
    rows = table(packed, piece)
    return ENCODERS[form](rows, piece.first == 0)


def _csv(rows: pa.Table, first: bool) -> bytes:
    output = io.BytesIO()
    if first:
        header = io.StringIO()
        csv.writer(header, lineterminator="\n").writerow(rows.column_names)
        output.write(header.getvalue().encode())
    rows = _flags_as_text(rows)
    if any(set(SPECIAL) & set(text) for text in _texts(rows)):
        output.write(_quoted_csv(rows))
    else:
        options = pa.csv.WriteOptions(include_header=False, quoting_style="none")
        pa.csv.write_csv(rows, output, options)
    return output.getvalue()


def _texts(rows: pa.Table) -> Iterable[str]:
    for column in rows.columns:
        if pa.types.is_dictionary(column.type):
            yield from column.chunk(0).dictionary.to_pylist()


def _quoted_csv(rows: pa.Table) -> bytes:
    """Rows of which some text needs quotes; Arrow's writer would quote every text then."""
    pieces: list[pa.ChunkedArray | str] = []
    for column in rows.columns:
        pieces.append("," if pieces else "")
        pieces.append(_cells(column, _quoted).cast(pa.string()).fill_null(""))
    return _joined(pieces, "\n")


def _quoted(text: str) -> str:
    """A text as a cell of CSV."""
    if not set(SPECIAL) & set(text):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def _flags_as_text(rows: pa.Table) -> pa.Table:
    for index, field in enumerate(rows.schema):
        if field.type == TYPES["flag"]:
            words = pc.if_else(rows.column(index), "True", "False")
            rows = rows.set_column(index, field.name, words)
    return rows


def _json_lines(rows: pa.Table, _: bool) -> bytes:
    pieces: list[pa.ChunkedArray | str] = []
    for name in rows.column_names:
        pieces.append(", " if pieces else "{")
        pieces.append(f"{json.dumps(name)}: ")
        pieces.append(_json_values(rows.column(name)))
    return _joined(pieces, "}\n")


def _json_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if column.type == TYPES["number"]:
        finite = pc.is_finite(column)
        column = pc.if_else(finite, column.cast(pa.string()), "null")
    return pc.fill_null(_cells(column, json.dumps).cast(pa.string()), "null")


def _cells(column: pa.ChunkedArray, quoted: Callable[[str], str]) -> pa.ChunkedArray:
    """A column whose texts are quoted; a text that stands in many rows is quoted once."""
    if not pa.types.is_dictionary(column.type):
        return column
    chunks = []
    for chunk in column.chunks:
        texts = [quoted(text) for text in chunk.dictionary.to_pylist()]
        names = pa.array(texts, pa.string())
        chunks.append(pa.DictionaryArray.from_arrays(chunk.indices, names))
    return pa.chunked_array(chunks)


def _joined(pieces: list[pa.ChunkedArray | str], end: str) -> bytes:
    """Rows whose cells and what stands between them are joined."""
    joined = pc.binary_join_element_wise(*pieces, end, "")
    texts = [chunk.buffers()[2] for chunk in joined.chunks]
    return b"".join(text.to_pybytes() for text in texts)


def _parquet(rows: pa.Table, _: bool) -> bytes:
    axes = [field.name for field in rows.schema if field.type != TYPES["number"]]
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(
        rows,
        sink,
        compression="lz4",
        row_group_size=len(rows),
        write_batch_size=len(rows),
        use_dictionary=axes,
        write_statistics=axes,  # ranges of what varies in every row would spare a reader nothing
    )
    content: bytes = sink.getvalue().to_pybytes()
    return content


ENCODERS: dict[str, Callable[[pa.Table, bool], bytes]] = {
    "csv": _csv,
    "jsonl": _json_lines,
    "parquet": _parquet,
}
