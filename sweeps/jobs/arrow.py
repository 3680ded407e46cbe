"""Columns of design points as tables of Arrow."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearkv.sweeps.evaluate.evaluate import Cell, Columns, Names, cells
from nearkv.sweeps.jobs.plan import Kind, Piece, unpacked
from nearkv.sweeps.study.grid import shape_of
from nearkv.sweeps.tables.table import is_whole, plain

Array = NDArray[np.generic]
Column = Cell | Array | None
Shape = tuple[int, ...]

TYPES = {
    "text": pa.dictionary(pa.int32(), pa.string()),
    "flag": pa.bool_(),
    "whole": pa.int64(),
    "number": pa.float64(),
}


def table(packed: bytes, piece: Piece) -> pa.Table:
    """Evaluate a piece of a packed plan."""
    rows = unpacked(packed)
    batches = []
    for index, box in piece.boxes:
        columns = cells(rows.blocks[index], box, tuple(rows.kinds))
        batch = _batch(columns, shape_of(box), rows.kinds, rows.full)
        batches.append(batch)
    return pa.Table.from_batches(batches).unify_dictionaries()


def table_of(columns: Columns) -> pa.Table:
    """A table in memory as Arrow."""
    kinds = {}
    shape: Shape = ()
    for name, values in columns.items():
        kinds[name] = _kind(values)
        shape = values.shape
    batch = _batch(columns, shape, kinds)
    return pa.Table.from_batches([batch])


def _kind(values: Array) -> Kind:
    if values.dtype.kind == "b":
        return "flag"
    if values.dtype.kind not in "fiu":
        return "text"
    return "whole" if is_whole(values) else "number"


def _batch(
    columns: Mapping[str, Column],
    shape: Shape,
    kinds: Mapping[str, Kind],
    full: Collection[str] = (),
) -> pa.RecordBatch:
    arrays, fields = [], []
    for name, kind in kinds.items():
        array = _array(columns.get(name), shape, kind)
        arrays.append(array)
        # a column that says it has no blanks takes less time and no room for them in Parquet
        has_blanks = name not in full
        fields.append(pa.field(name, TYPES[kind], nullable=has_blanks))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _array(cell: Column, shape: Shape, kind: Kind) -> pa.Array:
    if cell is None:
        size = int(np.prod(shape))
        return pa.nulls(size, TYPES[kind])
    if kind == "text":
        return _text_array(cell, shape)
    values = np.asarray(cell)
    if kind == "number":
        return _number_array(values, shape)
    values = values.astype(bool if kind == "flag" else np.int64)
    return pa.array(np.broadcast_to(values, shape).ravel())


def _text_array(cell: Column, shape: Shape) -> pa.Array:
    texts = cell if isinstance(cell, Names) else _names_of(np.asarray(cell))
    places = texts.places.astype(np.int32)
    spread = np.broadcast_to(places, shape).ravel()
    names = pa.array(texts.names, pa.string())
    return pa.DictionaryArray.from_arrays(spread, names)


def _number_array(cell: Array, shape: Shape) -> pa.Array:
    numbers = cell.astype(np.float64, copy=False)
    values = np.empty(shape)
    np.add(numbers, 0.0, out=values)  # spreads the cell, and makes -0 a 0
    blank = np.isnan(numbers)
    mask = None
    if np.any(blank):
        mask = np.broadcast_to(blank, shape).ravel()
    return pa.array(values.ravel(), mask=mask)


def _names_of(values: Array) -> Names:
    distinct, places = np.unique(values, return_inverse=True)
    texts = [plain(value) for value in distinct]
    names = ["" if text is None else str(text) for text in texts]
    return Names(places.reshape(values.shape), tuple(names))
