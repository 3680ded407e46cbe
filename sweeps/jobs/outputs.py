"""Where an output is written, in which form, and what it may not replace."""

from __future__ import annotations

import os
from pathlib import Path

from nearkv.hardware.errors import InputError, unknown

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


def staging_path(path: Path) -> Path:
    """The folder beside an output in which it grows."""
    return path.with_name(f".{path.name}.partial")


def check_free(path: Path, dataset: bool, instead: str = "choose another name") -> None:
    """Refuse to replace what is not an output of the same kind, or what its owner protects.

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
    if not path.exists():
        return
    if not os.access(path, os.R_OK | os.W_OK):
        raise InputError(
            f"{path}: exists and may not be written; {instead}, or change its mode"
        )
    if path.is_dir() != dataset:
        kind = "folder" if path.is_dir() else "file"
        raise InputError(f"{path}: is a {kind} already; {instead}")
    if dataset:
        check_dataset(path, instead)


def check_dataset(folder: Path, instead: str) -> None:
    """Refuse to replace a folder that holds anything but parts of a dataset.

    Raises:
        InputError: it does.
    """
    for file in folder.iterdir():
        if not (file.name.startswith("part-") and file.suffix == ".parquet"):
            not_replaced = f"holds {file.name!r}, so it is no dataset to replace"
            raise InputError(f"{folder}: {not_replaced}; {instead}")


def size_of(path: Path) -> int:
    """Bytes of an output, a file or a dataset [B]."""
    files = path.iterdir() if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)
