"""Turn rows into bytes of a file: CSV, JSON lines or Parquet, by way of Arrow.

The text is the one `nearkv.sweeps.evaluation.table` prints: whole numbers without a point, shortest
digits that read back as the same number, blanks (null) where there is none.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Collection, Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from nearkv.sweeps.evaluation.evaluate import Cell, Columns, Names, cells
from nearkv.sweeps.evaluation.table import plain
from nearkv.sweeps.jobs.plan import Kind, Piece, shape_of, unpacked

Column = Cell | NDArray[np.generic] | None

TYPES = {
    "text": pa.dictionary(pa.int32(), pa.string()),
    "flag": pa.bool_(),
    "whole": pa.int64(),
    "number": pa.float64(),
}


def encoded(packed: bytes, form: str, piece: Piece) -> bytes:
    """Evaluate a piece and write it down; what a worker does.

    Args:
        packed: as `Plan.packed` gives it.
        form: one of `ENCODERS`.
        piece: the rows.
    """
    return ENCODERS[form](table(packed, piece), piece.first == 0)


def table(packed: bytes, piece: Piece) -> pa.Table:
    """Evaluate a piece of a packed plan."""
    rows = unpacked(packed)
    batches = []
    for index, box in piece.boxes:
        columns = cells(rows.blocks[index], box, rows.kinds)
        in_order = {name: columns.get(name) for name in rows.kinds}
        batches.append(_batch(in_order, shape_of(box), rows.kinds, rows.full))
    return pa.Table.from_batches(batches).unify_dictionaries()


def table_of(columns: Columns) -> pa.Table:
    """A table in memory as Arrow."""
    kinds = {name: _kind(values) for name, values in columns.items()}
    shape = next(iter(columns.values())).shape
    return pa.Table.from_batches([_batch(columns, shape, kinds)])


def _kind(values: NDArray[np.generic]) -> Kind:
    if values.dtype.kind == "b":
        return "flag"
    if values.dtype.kind not in "fiu":
        return "text"
    whole = np.all(np.isfinite(values)) and np.all(values % 1 == 0)
    return "whole" if whole else "number"


def _batch(
    columns: Mapping[str, Column],
    shape: tuple[int, ...],
    kinds: Mapping[str, Kind],
    full: Collection[str] = (),
) -> pa.RecordBatch:
    arrays, fields = [], []
    for name, kind in kinds.items():
        arrays.append(_array(columns[name], shape, kind))
        # a column that says it has no blanks takes less time and no room for them in Parquet
        fields.append(pa.field(name, TYPES[kind], nullable=name not in full))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _array(cell: Column, shape: tuple[int, ...], kind: Kind) -> pa.Array:
    if cell is None:
        return pa.nulls(int(np.prod(shape)), TYPES[kind])
    if kind == "text":
        return _text_array(cell, shape)
    if kind == "number":
        return _number_array(np.asarray(cell, np.float64), shape)
    values = np.asarray(cell).astype(bool if kind == "flag" else np.int64)
    return pa.array(np.broadcast_to(values, shape).ravel())


def _text_array(cell: Column, shape: tuple[int, ...]) -> pa.Array:
    texts = cell if isinstance(cell, Names) else _names_of(np.asarray(cell))
    places = np.broadcast_to(texts.places.astype(np.int32), shape)
    return pa.DictionaryArray.from_arrays(places.ravel(), pa.array(texts.names, pa.string()))


def _number_array(numbers: NDArray[np.float64], shape: tuple[int, ...]) -> pa.Array:
    values = np.empty(shape)
    np.add(numbers, 0.0, out=values)  # spreads the cell, and makes -0 a 0
    blank = np.isnan(numbers)
    mask = np.broadcast_to(blank, shape).ravel() if np.any(blank) else None
    return pa.array(values.ravel(), mask=mask)


def _names_of(values: NDArray[np.generic]) -> Names:
    distinct, places = np.unique(values, return_inverse=True)
    texts = [plain(value) for value in distinct]
    names = tuple("" if text is None else str(text) for text in texts)
    return Names(places.reshape(values.shape), names)


def _csv(rows: pa.Table, first: bool) -> bytes:
    output = io.BytesIO()
    if first:
        header = io.StringIO()
        csv.writer(header, lineterminator="\n").writerow(rows.column_names)
        output.write(header.getvalue().encode())
    special = any(set(text) & set(',"\r\n') for text in _texts(rows))
    quoting = "needed" if special else "none"
    options = pa.csv.WriteOptions(include_header=False, quoting_style=quoting)
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
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        pieces.append(", " if pieces else "{")
        pieces.append(f"{json.dumps(name)}: ")
        pieces.append(_json_values(column))
    joined = pc.binary_join_element_wise(*pieces, "}\n", "")
    return b"".join(chunk.buffers()[2].to_pybytes() for chunk in joined.chunks)


def _json_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = pa.chunked_array([_json_texts(chunk) for chunk in column.chunks])
    elif column.type == TYPES["number"]:
        column = pc.if_else(pc.is_finite(column), column.cast(pa.string()), "null")
    return pc.fill_null(column.cast(pa.string()), "null")


def _json_texts(chunk: pa.DictionaryArray) -> pa.DictionaryArray:
    quoted = [json.dumps(text) for text in chunk.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(chunk.indices, pa.array(quoted, pa.string()))


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
