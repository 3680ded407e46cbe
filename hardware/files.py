"""Open files, the user's and the catalogue's: the one place where text comes in."""

from __future__ import annotations

import csv
import io
import os
import stat
import sys
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nearkv.hardware.errors import InputError, a_few, echo, holds, unknown, warn, words_of

FileTable = Mapping[str, Any]
"""A table of a TOML or JSON file."""
_TYPE_WORDS = {dict: "a table", str: "a name", int: "a whole number", float: "a number"}
_LARGEST_INTEGER = int(sys.float_info.max)


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Read a TOML file.

    Args:
        path: the file.
        what: what it should be, used in errors.

    Raises:
        InputError: unreadable, too large to be a specification, not TOML, or an integer in it is
            larger than any number.
    """
    try:
        table = tomllib.loads(read_text(path, what))
        check_integers(table, str(path))
    except (ValueError, RecursionError) as problem:
        # not UTF-8 or TOML, a number of more than 4,300 digits, or tables nested too deeply
        sentence = f"{path}: not a valid TOML file ({problem}); correct it there"
        raise InputError(sentence) from None
    return table


def check_integers(entry: object, where: str) -> None:
    """Refuse integers beyond the range of floating-point numbers.

    Args:
        entry: a value of a file, with all that it contains.
        where: the file, then tables and key, used in errors.

    Raises:
        InputError: an integer is too large.
    """
    if isinstance(entry, dict):
        for key, value in entry.items():
            check_integers(value, f"{where}: {key}")
    elif isinstance(entry, list):
        for value in entry:
            check_integers(value, where)
    elif isinstance(entry, int) and abs(entry) > _LARGEST_INTEGER:
        digits = len(str(abs(entry)))
        raise InputError(f"{where}: an integer of {digits} digits is too large; correct it")


def check_types(
    table: FileTable, types: Mapping[str, type], where: str, lists: Collection[str] = ()
) -> None:
    """Refuse values of another type than their key takes.

    Args:
        table: of the file.
        types: key -> type of its value; whole numbers are numbers, too.
        where: the file, used in errors.
        lists: keys that may have a list of such values instead.

    Raises:
        InputError: naming the key and its value.
    """
    for key, kind in types.items():
        value = table.get(key, kind())
        values = value if key in lists and isinstance(value, list) else [value]
        allowed = (kind, int) if kind is float else (kind,)
        if not all(type(each) in allowed for each in values):
            form = f"{_TYPE_WORDS[kind]}{', or a list' if key in lists else ''}"
            raise InputError(f"{where}: {key} = {echo(repr(value))} must be {form}")


def read_text(
    path: Path,
    what: str,
    most: int = 1 << 20,
    advice: str = "check the path",
    encoding: str = "utf-8",
) -> str:
    """Read a text file of the user's: the one place that opens what a path names.

    It must be a regular file of bounded size. A pipe would be waited for, and a device such as
    /dev/zero never ends.

    Args:
        path: the file.
        what: what it should be, used in errors.
        most: largest size [B].
        advice: what to do about a larger one, used in errors.
        encoding: of the text.

    Raises:
        InputError: not a regular file, unreadable or too large.
        ValueError: not in this encoding.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{path} is not a regular file; a {what} must be a plain file")
        if status.st_size > most:
            size = f"{most >> 20} MiB"
            raise InputError(f"{path}: larger than {size}, which no {what} is; {advice}")
        return path.read_text(encoding=encoding)
    except OSError as problem:
        raise InputError(
            f"{path}: cannot be read ({problem.strerror}); check the path and its permissions"
        ) from None


def read_rows(
    path: Path,
    what: str,
    needed: Sequence[str],
    most: int = 1 << 22,
    advice: str = "split it",
) -> tuple[list[str], list[tuple[str, dict[str, str]]]]:
    """Read a CSV file of the user's.

    Args:
        path: the file.
        what: what it should be, used in errors.
        needed: columns that it must have.
        most: largest size [B].
        advice: what to do about a larger one, used in errors.

    Returns:
        Its header; and of each line that is not blank its address, and its cells by column.

    Raises:
        InputError: no such file, no CSV, too large, a column missing or there twice, or lines of
            another length than the header.
    """
    text = _spreadsheet_text(path, what, most, advice)
    try:
        table = csv.reader(io.StringIO(text), strict=True)
        header = [name.strip() for name in next(table, [])]
        numbered = [(table.line_num, [cell.strip() for cell in row]) for row in table]
    except csv.Error as problem:
        raise InputError(f"{path}: not a CSV file ({problem}); correct it there") from None
    for name in needed:
        if name not in header:
            listed = a_few(header, like=name)
            raise InputError(f"{path} has no column {name!r}; it has {listed}")
    if len(set(header)) < len(header):
        listed = a_few(header)
        raise InputError(f"{path}: a column is there twice; its columns are {listed}")
    lines = []
    for number, cells in numbered:
        where = f"{path}, line {number}"
        if not any(cells):
            continue
        if len(cells) != len(header):
            counts = f"{len(cells)} cells for {len(header)} columns"
            raise InputError(f"{where} has {counts}; correct it there")
        lines.append((where, dict(zip(header, cells, strict=True))))
    if not lines:
        raise InputError(f"{path} holds no lines below a header; write CSV, one a row")
    return header, lines


def _spreadsheet_text(path: Path, what: str, most: int, advice: str) -> str:
    try:
        text = read_text(path, what, most, advice, encoding="utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:  # as in UTF-16 without a mark
        raise InputError(f"{path}: not a CSV file in UTF-8; save it as one")
    return text


# --- folders of specification files: their owners register them, names are looked up here ---------

_folders: dict[str, list[Path]] = {}


def register_folder(what: str, owner: str, folder: str) -> None:
    """Add a folder of specification files to a catalogue.

    Args:
        what: the catalogue: `part`, `platform`, `model` or `trace`.
        owner: `__file__` of the package that keeps the folder.
        folder: its name beside that file.
    """
    path = Path(owner).parent / folder
    registered = _folders.setdefault(what, [])
    if path not in registered:
        registered.append(path)


def _files(what: str) -> dict[str, Path]:
    if what not in _folders:
        raise InputError(
            f"no folder of {what} files is known; import the package that owns one"
        )
    return _toml_files(_folders[what])


def _toml_files(folders: Iterable[Path]) -> dict[str, Path]:
    """Files by name; of two with one name, that of the first folder."""
    files: dict[str, Path] = {}
    for folder in folders:
        for path in folder.glob("*.toml"):
            files.setdefault(path.stem, path)
    return files


def _own_folders(what: str) -> list[Path]:
    """Folder in which a user may keep files of a catalogue, whether or not there are any."""
    listed = os.environ.get("NEARKV_PATH", "").split(os.pathsep)
    folders = [Path(folder) for folder in listed if folder]
    return [folder / f"{what}s" for folder in [*folders, Path(), user_folder()]]


def user_folder() -> Path:
    """The user's own folder of specification files, which need not exist."""
    config = os.environ.get("XDG_CONFIG_HOME", "") or Path("~/.config").expanduser()
    return Path(config) / "nearkv"


def is_known(what: str, name: str) -> bool:
    """True if a name is in a catalogue, or among the user's own files of it."""
    folders = [*_own_folders(what), *_folders.get(what, [])]
    return _first_file(folders, name) is not None


def has_own(what: str) -> bool:
    """True if the user has a folder of his own for files of a catalogue."""
    return any(map(os.path.isdir, _own_folders(what)))


def names(what: str) -> list[str]:
    """Sorted names of a catalogue: `part`, `platform`, `model` or `trace`."""
    return sorted(_files(what))


def path_of(what: str, name: str) -> Path:
    """The file of a name, or the user's own file where `name` ends in .toml.

    A name is looked for in the folders `parts`, `platforms`, `models` or `traces` of each entry of
    `NEARKV_PATH`, of the working folder and of `user_folder`, and then in the catalogue.

    Raises:
        InputError: no such name or file.
    """
    path = Path(name) if name.endswith(".toml") else _file_of(what, name)
    if not path.exists():
        raise InputError(f"{what} file {name!r} does not exist; check the path")
    return path


def check_exists(what: str, name: str, where: str) -> None:
    """Refuse a name or a file that does not exist, where another file names it.

    Raises:
        InputError: it does not.
    """
    try:
        path_of(what, name)
    except InputError as problem:
        raise InputError(f"{where}: {problem}") from None


def _file_of(what: str, name: str) -> Path:
    """The file of a name: the user's own where there is one."""
    own = _first_file(_own_folders(what), name)
    catalogued = _first_file(_folders.get(what, []), name)
    if own and catalogued:
        warn(f"{own} stands in for the {what} {name!r} of the catalogue")
    file = own or catalogued
    if not file:
        raise unknown(what, name, _files(what) | _toml_files(_own_folders(what)))
    return file


def _first_file(folders: Iterable[Path], name: str) -> Path | None:
    """The file of a name in the first folder that has one; a path is not a name."""
    if name != Path(name).name:
        return None
    files = (folder / f"{name}.toml" for folder in folders)
    # false, not an error, for a name too long
    return next((file for file in files if os.path.isfile(file)), None)


def model_like(name: str) -> str:
    """The catalogue's model of a hub's name, as `meta-llama/Llama-2-7b-hf`.

    Raises:
        InputError: not in the catalogue; says where to save its config.json, or names models of
            its family and size.
    """
    if "/" not in name:
        raise _unknown_model(name)
    for known in names("model"):
        hub = str(read_toml(path_of("model", known), "model").get("hub", ""))
        if hub.lower() == name.lower():
            return known
    place = f"{name.rpartition('/')[2]}/config.json"
    beside = "with hf_quant_config.json beside it where there is one"
    advice = f"save its config.json as {place}, {beside}, and give --model {place}"
    raise InputError(f"model {name!r} is not in the catalogue; {advice}")


def _unknown_model(name: str) -> InputError:
    """The error for an unknown model, with a hint that keeps its size and version."""
    known = names("model")
    numbers = [word for word in words_of(name) if word[0].isdigit()]
    near = [model for model in known if holds(numbers, words_of(model))]
    return unknown("model", name, known, near=near)


register_folder("part", __file__, "parts")
register_folder("platform", __file__, "platforms")
register_folder("part", __file__, "servers")
register_folder("server", __file__, "servers")
