"""Design points as tables of Arrow, and written as CSV, JSON lines or Parquet.

Whole numbers stand without a point, others with the shortest digits that read back as the same
number; where a number is missing CSV is blank, JSON lines say null.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from nearkv.sweeps.evaluate.columns import Cell
from nearkv.sweeps.jobs.plan import ColumnKind, Piece, unpacked
from nearkv.sweeps.study.grid import shape_of
from nearkv.sweeps.tables.table import Categories, CellArray, is_number, is_whole, plain

TYPES = {
    "text": pa.dictionary(pa.int32(), pa.string()),
    "whole": pa.int64(),
    "number": pa.float64(),
}


def encoded(rows: pa.Table, form: str) -> bytes:
    """A table in memory as bytes of a form, as `piece_table` or `table_of` gives it."""
    file = io.BytesIO()
    WRITERS[form](rows, file, True)
    return file.getvalue()


def write_piece(packed: bytes, form: str, piece: Piece, file: IO[bytes]) -> None:
    """Evaluate a piece of a packed plan and write its rows, without holding their bytes."""
    WRITERS[form](piece_table(packed, piece), file, piece.first == 0)


def encoded_piece(packed: bytes, form: str, piece: Piece) -> bytes:
    """Evaluate a piece into bytes, which travel from a worker of another machine."""
    file = io.BytesIO()
    write_piece(packed, form, piece, file)
    return file.getvalue()


def piece_table(packed: bytes, piece: Piece) -> pa.Table:
    """Evaluate a piece of a packed plan into a table of Arrow."""
    rows = unpacked(packed)
    batches = []
    for index, box in piece.boxes:
        cells = rows.cells(index, box, tuple(rows.kinds))
        batches.append(_batch(cells, shape_of(box), rows.kinds))
    return pa.Table.from_batches(batches).unify_dictionaries()


def table_of(columns: Mapping[str, Sequence[Any] | CellArray]) -> pa.Table:
    """Columns in memory as a table of Arrow; their values may be of any type."""
    return pa.table({name: _column(values) for name, values in columns.items()})


def _column(values: Sequence[Any] | CellArray) -> pa.Array:
    """A column as numbers, where all that is not blank is one, or else as text."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiu":
        numbers = values.astype(float)
    else:
        cells = [plain(value) for value in values]
        stated = [cell for cell in cells if cell not in (None, "")]
        if not stated or not all(map(is_number, stated)):
            return pa.array(map(_text, cells), pa.string()).dictionary_encode()
        numbers = np.array([cell if is_number(cell) else np.nan for cell in cells], float)
    return _array(numbers, numbers.shape, "whole" if is_whole(numbers) else "number")


def _text(cell: object) -> str:
    if isinstance(cell, list):
        return " ".join(map(str, cell))
    return "" if cell is None else str(cell)


def _batch(
    cells: Mapping[str, Cell], shape: tuple[int, ...], kinds: Mapping[str, ColumnKind]
) -> pa.RecordBatch:
    arrays = {name: _array(cells[name], shape, kind) for name, kind in kinds.items()}
    return pa.RecordBatch.from_pydict(arrays)


def _array(cell: Cell, shape: tuple[int, ...], kind: ColumnKind) -> pa.Array:
    if isinstance(cell, Categories):
        places = np.broadcast_to(cell.places.astype(np.int32), shape).ravel()
        return pa.DictionaryArray.from_arrays(places, pa.array(cell.names, pa.string()))
    numbers = np.asarray(cell)
    blank = np.isnan(numbers)
    mask = np.broadcast_to(blank, shape).ravel() if np.any(blank) else None
    if kind == "whole":
        values = np.where(blank, 0, numbers).astype(np.int64)
        return pa.array(np.broadcast_to(values, shape).ravel(), mask=mask)
    spread = np.empty(shape)
    np.add(numbers, 0.0, out=spread)  # makes -0 a 0, too
    return pa.array(spread.ravel(), mask=mask)


def _write_csv(rows: pa.Table, file: IO[bytes], is_first: bool) -> None:
    if is_first:
        file.write((",".join(rows.column_names) + "\n").encode())
    start = file.tell()
    options = pa.csv.WriteOptions(include_header=False, quoting_style="none")
    try:
        pa.csv.write_csv(rows, file, options)
    except pa.ArrowInvalid:
        # a text holds a comma or a quote, and Arrow would put quotes around every text
        file.seek(start)
        file.truncate()
        cells = [pc.fill_null(_texts(column, _quoted), "") for column in rows.columns]
        between = ["", *[","] * (len(cells) - 1), "\n"]
        _write_joined(cells, between, file)


def _quoted(text: str) -> str:
    """A text as a cell of CSV."""
    doubled = text.replace('"', '""')
    return f'"{doubled}"' if set(text) & set(',"\r\n') else text


def _write_json_lines(rows: pa.Table, file: IO[bytes], is_first: bool) -> None:
    cells: list[pa.ChunkedArray] = []
    between: list[str] = []
    for name, values in zip(rows.column_names, rows.columns, strict=True):
        is_number = values.type == TYPES["number"]
        known = pc.if_else(pc.is_finite(values), values, None) if is_number else values
        cells.append(pc.fill_null(_texts(known, json.dumps), "null"))
        between.append(f"{', ' if between else '{'}{json.dumps(name)}: ")
    _write_joined(cells, [*between, "}\n"], file)


def _texts(column: pa.ChunkedArray, quoted: Callable[[str], str]) -> pa.ChunkedArray:
    """A column as text; a text that stands in many rows is quoted once."""
    if column.type != TYPES["text"]:
        return column.cast(pa.string())
    chunks = []
    for chunk in column.chunks:
        texts = pa.array(
            [quoted(text) for text in chunk.dictionary.to_pylist()], pa.string()
        )
        chunks.append(pa.DictionaryArray.from_arrays(chunk.indices, texts))
    return pa.chunked_array(chunks).cast(pa.string())


def _write_joined(
    cells: list[pa.ChunkedArray], between: list[str], file: IO[bytes]
) -> None:
    """Write rows of texts, with what stands before each cell and at the end."""
    pieces = [piece for pair in zip(between, cells, strict=False) for piece in pair]
    joined = pc.binary_join_element_wise(*pieces, between[-1], "")
    for chunk in joined.chunks:
        file.write(chunk.buffers()[2])  # the texts of all rows, one after the other


def _write_parquet(rows: pa.Table, file: IO[bytes], is_first: bool) -> None:
    # a dictionary of numbers that differ in every row costs time and saves no space
    axes = [field.name for field in rows.schema if field.type != TYPES["number"]]
    pa.parquet.write_table(rows, file, compression="lz4", use_dictionary=axes)


WRITERS: dict[str, Callable[[pa.Table, IO[bytes], bool], None]] = {
    "csv": _write_csv,
    "jsonl": _write_json_lines,
    "parquet": _write_parquet,
}
"""Writers of rows by form; the first rows have a header."""
