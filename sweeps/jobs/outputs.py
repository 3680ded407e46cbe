"""Path and form of an output, what it may not replace; outputs held in memory."""

from __future__ import annotations

import os
from pathlib import Path

from nearkv.hardware.errors import InputError, unknown
from nearkv.sweeps.evaluate.provenance import (
    as_json,
    check_writable,
    place_of,
    provenance,
    replacing,
    write_text,
)
from nearkv.sweeps.study.study import Study, blocks
from nearkv.sweeps.tables.table import counted

FORMS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
"""The form of a file of rows by its suffix."""
TEXTS = {".json": "json", ".md": "markdown", ".tex": "latex"}
"""The format of a file for readers by its suffix."""
_LONGEST_NAME = 255
"""Bytes that file systems allow a name [B]."""


def form_of(path: Path) -> str:
    """The form that a file's suffix asks for.

    Raises:
        InputError: the suffix is unknown, or there is none.
    """
    if path.suffix in FORMS:
        return FORMS[path.suffix]
    if path.is_dir():
        why = "is a folder; name a file in it"
    elif path.suffix:
        place = f"{path}: its suffix says what to write"
        raise unknown("form", path.suffix, [*FORMS, *TEXTS], place)
    else:
        why = "has no suffix that says what to write; name a file"
    raise InputError(f"{path}: {why} that ends in {', '.join([*FORMS, *TEXTS])}")


def provenance_path(path: Path) -> Path:
    """The file beside an output that says where its numbers come from."""
    return path.with_name(f"{path.name}.provenance.json")


def partial_path(path: Path) -> Path:
    """The folder beside an output in which it grows."""
    return path.with_name(f".{path.name}.partial")


def check_free(path: Path, dataset: bool, instead: str = "choose another name") -> None:
    """Refuse to replace what is not an output of the same form, or what its owner protects.

    Args:
        path: where an output will be.
        dataset: it is a folder of parts.
        instead: what to do about it.

    Raises:
        InputError: a folder has the name of a file, or a file that of a dataset; a folder holds
            other things; something may not be written; no provenance can be put beside it.
    """
    beside = provenance_path(path)
    if len(os.fsencode(beside.name)) > _LONGEST_NAME:
        long = "its name and that of the provenance beside it are too long"
        raise InputError(f"{path}: {long}; choose a shorter one")
    if beside.is_dir():
        in_the_way = f"is a folder, in the place of the provenance beside {path.name}"
        raise InputError(f"{beside}: {in_the_way}; {instead}")
    if beside.exists() and not _is_provenance(beside):
        theirs = "is no provenance that nearkv wrote, and would be replaced by one"
        raise InputError(f"{beside}: {theirs}; {instead}")
    if not path.exists():
        return
    if not os.access(path, os.R_OK | os.W_OK):
        raise InputError(
            f"{path}: exists and may not be written; {instead}, or change its mode"
        )
    if path.is_dir() != dataset:
        there = "folder" if path.is_dir() else "file"
        raise InputError(f"{path} is a {there} already; {instead}")
    for file in path.iterdir() if dataset else ():
        if not (file.name.startswith("part-") and file.suffix == ".parquet"):
            not_replaced = f"holds {file.name!r}, so it is no dataset to replace"
            raise InputError(f"{path}: {not_replaced}; {instead}")


def _is_provenance(path: Path) -> bool:
    """True if a file begins as the provenance of any output does."""
    begins = as_json({"nearkv": ""}).partition(":")[0].encode()
    with path.open("rb") as file:
        return file.read(len(begins)) == begins


def check_place(path: Path) -> Path:
    """Path at which a table can be written, checked before it is computed; see `place_of`.

    Raises:
        InputError: the form is unknown, something is in the way, or a sweep writes there.
    """
    place = place_of(path)
    if path.suffix not in TEXTS:
        form_of(path)
    check_free(place, dataset=False)
    check_writable(place)
    partial = partial_path(place)
    if partial.exists():
        busy = "a sweep is writing it, or was stopped"
        raise InputError(f"{place}: {busy}; wait for it, or delete {partial}")
    return place


def size_of(path: Path) -> int:
    """Bytes of an output, a file or a dataset [B]."""
    files = path.iterdir() if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


def write_content(content: bytes, rows: int, path: Path, study: Study | None) -> str:
    """Write encoded rows, and put beside them where their numbers come from.

    Rows that answer no study come with the version and the command alone.

    Returns:
        What was written, for the user.

    Raises:
        InputError: the file cannot be written.
    """
    place = check_place(path)  # once more: a sweep may have begun to write it meanwhile
    with replacing(place) as file:
        file.buffer.write(content)
        study_blocks = blocks(study) if study else []
        write_text(provenance_path(place), as_json(provenance(study_blocks)))
    return written(rows, place)


def written(rows: int, path: Path) -> str:
    """Say what was written."""
    return (
        f"wrote {counted(rows, 'row')} to {path}, and the sources of its numbers to "
        f"{provenance_path(path).name}"
    )
