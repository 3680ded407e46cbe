"""Turn rows into bytes of a file: CSV, JSON lines or Parquet, by way of Arrow.

The text is the one `nearkv.sweeps.evaluation.table` prints: whole numbers without a point, shortest digits that read back
as the same number, blanks (null) where there is none.
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
from nearkv.sweeps.jobs.plan import Kind, Piece, unpacked

TYPES = {
    "text": pa.dictionary(pa.int32(), pa.string()),
    "flag": pa.bool_(),
    "whole": pa.int64(),
    "number": pa.float64(),
}


def encoded(plan: bytes, form: str, piece: Piece) -> bytes:
    """Evaluate a piece of a packed plan and write it down; what a worker does.

    Args:
        plan: as `Plan.packed` gives it.
        form: one of `ENCODERS`.
        piece: the rows.
    """
    return ENCODERS[form](table(plan, piece), piece.first == 0)


def table(plan: bytes, piece: Piece) -> pa.Table:
    """Evaluate a piece of a packed plan."""
    rows, pieces = unpacked(plan), []
    for place, box in piece.boxes:
        shape = tuple(part.stop - part.start for part in box)
        found = cells(rows.laid[place], box, rows.kinds)
        pieces.append(
            _batch({name: found.get(name) for name in rows.kinds}, shape, rows.kinds, rows.full)
        )
    return pa.Table.from_batches(pieces).unify_dictionaries()


def table_of(columns: Columns) -> pa.Table:
    """A table in memory as Arrow."""
    kinds = {name: _kind(values) for name, values in columns.items()}
    return pa.Table.from_batches([_batch(columns, next(iter(columns.values())).shape, kinds)])


def _kind(values: NDArray[np.generic]) -> Kind:
    if values.dtype.kind not in "fiu":
        return "flag" if values.dtype.kind == "b" else "text"
    return "whole" if np.all(np.isfinite(values)) and np.all(values % 1 == 0) else "number"


def _batch(
    found: Mapping[str, Cell | NDArray[np.generic] | None],
    shape: tuple[int, ...],
    kinds: Mapping[str, Kind],
    full: Collection[str] = (),
) -> pa.RecordBatch:
    arrays = [_array(found[name], shape, kind) for name, kind in kinds.items()]
    # a column that says it has no blanks takes less time and no room for them in Parquet
    fields = [
        pa.field(name, TYPES[kind], nullable=name not in full) for name, kind in kinds.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _array(cell: Cell | NDArray[np.generic] | None, shape: tuple[int, ...], kind: Kind) -> pa.Array:
    rows = int(np.prod(shape))
    if cell is None:
        return pa.nulls(rows, TYPES[kind])
    if kind == "text":
        named = cell if isinstance(cell, Names) else _named(np.asarray(cell))
        places = np.broadcast_to(named.places.astype(np.int32), shape).ravel()
        return pa.DictionaryArray.from_arrays(places, pa.array(named.names, pa.string()))
    if kind != "number":
        return pa.array(
            np.broadcast_to(
                np.asarray(cell).astype(bool if kind == "flag" else np.int64), shape
            ).ravel()
        )
    numbers = np.asarray(cell, np.float64)
    values, blank = np.empty(shape), np.isnan(numbers)
    np.add(numbers, 0.0, out=values)  # spreads the cell, and makes -0 a 0
    return pa.array(
        values.ravel(), mask=np.broadcast_to(blank, shape).ravel() if np.any(blank) else None
    )


def _named(values: NDArray[np.generic]) -> Names:
    distinct, places = np.unique(values, return_inverse=True)
    names = ("" if plain(value) is None else str(plain(value)) for value in distinct)
    return Names(places.reshape(values.shape), tuple(names))


def _csv(rows: pa.Table, first: bool) -> bytes:
    text = io.BytesIO()
    if first:
        header = io.StringIO()
        csv.writer(header, lineterminator="\n").writerow(rows.column_names)
        text.write(header.getvalue().encode())
    special = any(set(name) & set(',"\r\n') for name in _texts(rows))
    options = pa.csv.WriteOptions(
        include_header=False, quoting_style="needed" if special else "none"
    )
    pa.csv.write_csv(_flags_as_text(rows, "False", "True"), text, options)
    return text.getvalue()


def _texts(rows: pa.Table) -> Iterable[str]:
    for column in rows.columns:
        if pa.types.is_dictionary(column.type):
            yield from column.chunk(0).dictionary.to_pylist()


def _flags_as_text(rows: pa.Table, no: str, yes: str) -> pa.Table:
    for place, field in enumerate(rows.schema):
        if field.type == TYPES["flag"]:
            words = pc.if_else(rows.column(place), yes, no)
            rows = rows.set_column(place, field.name, words)
    return rows


def _json_lines(rows: pa.Table, _: bool) -> bytes:
    cells_: list[pa.ChunkedArray | str] = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        cells_ += ["{" if not cells_ else ", ", f"{json.dumps(name)}: ", _json_values(column)]
    joined = pc.binary_join_element_wise(*cells_, "}\n", "")
    return b"".join(chunk.buffers()[2].to_pybytes() for chunk in joined.chunks)


def _json_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        quoted = [
            pa.array([json.dumps(text) for text in c.dictionary.to_pylist()], pa.string())
            for c in column.chunks
        ]
        pairs = zip(column.chunks, quoted, strict=True)
        column = pa.chunked_array(
            [pa.DictionaryArray.from_arrays(c.indices, names) for c, names in pairs]
        )
    elif column.type == TYPES["number"]:
        column = pc.if_else(pc.is_finite(column), column.cast(pa.string()), "null")
    return pc.fill_null(column.cast(pa.string()), "null")


def _parquet(rows: pa.Table, _: bool) -> bytes:
    axes = [field.name for field in rows.schema if field.type != TYPES["number"]]
    sink = pa.BufferOutputStream()
    layout = {"compression": "lz4", "row_group_size": len(rows), "write_batch_size": len(rows)}
    # ranges of what varies in every row would spare a reader nothing
    pa.parquet.write_table(rows, sink, use_dictionary=axes, write_statistics=axes, **layout)
    content: bytes = sink.getvalue().to_pybytes()
    return content


ENCODERS: dict[str, Callable[[pa.Table, bool], bytes]] = {
    "csv": _csv,
    "jsonl": _json_lines,
    "parquet": _parquet,
}
