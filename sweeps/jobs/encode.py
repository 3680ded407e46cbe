"""Turn rows into bytes of a file: CSV, JSON lines or Parquet, by way of Arrow.

The text is the one `nearkv.sweeps.evaluation.table` prints: whole numbers without a point, shortest
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
    special = any(set(',"\r\n') & set(text) for text in _texts(rows))
    options = pa.csv.WriteOptions(
        include_header=False,
        quoting_style="needed" if special else "none",
    )
    pa.csv.write_csv(_flags_as_text(rows), output, options)
    return output.getvalue()


def _texts(rows: pa.Table) -> Iterable[str]:
    for column in rows.columns:
        if pa.types.is_dictionary(column.type):
            yield from column.chunk(0).dictionary.to_pylist()


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
    joined = pc.binary_join_element_wise(*pieces, "}\n", "")
    texts = [chunk.buffers()[2] for chunk in joined.chunks]
    return b"".join(text.to_pybytes() for text in texts)


def _json_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        quoted = [_json_texts(chunk) for chunk in column.chunks]
        column = pa.chunked_array(quoted)
    elif column.type == TYPES["number"]:
        finite = pc.is_finite(column)
        column = pc.if_else(finite, column.cast(pa.string()), "null")
    return pc.fill_null(column.cast(pa.string()), "null")


def _json_texts(chunk: pa.DictionaryArray) -> pa.DictionaryArray:
    texts = chunk.dictionary.to_pylist()
    quoted = [json.dumps(text) for text in texts]
    names = pa.array(quoted, pa.string())
    return pa.DictionaryArray.from_arrays(chunk.indices, names)


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
