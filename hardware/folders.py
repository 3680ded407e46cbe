"""Folders of specification files: their owners register folders, all names are looked up here."""

import os
from collections.abc import Iterable
from pathlib import Path

from nearkv.hardware.errors import InputError, holds, unknown, warn, words_of
from nearkv.hardware.files import read_toml

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
