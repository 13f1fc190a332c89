"""Files and folders that are complete or absent, and their digests; a file is written by the kernels' `whole_file`."""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outcome_rl.files.bounds import read_state_file
from outcome_rl_kernels.whole_files import SCRATCH, force, force_folder, remove, scratch_name, whole_file

MANIFEST = "MANIFEST"


@contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield an empty scratch folder to fill; at the end it becomes `path`. After an error there is no `path`.

    Missing parent folders are created.

    Raises:
        FileExistsError: `path` exists.
    """
    path = Path(path)
    if os.path.lexists(path):  # also a link to nothing, which would be followed
        raise FileExistsError(f"{path} exists, and nothing is overwritten; remove it or choose another folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    with scratch_name(path) as scratch:
        scratch.mkdir()
        yield scratch
        for inner in [*_inside(scratch), scratch]:
            if inner.is_dir():
                force_folder(inner)
            else:
                with inner.open("rb") as file:
                    force(file.fileno(), inner)
        scratch.rename(path)
        force_folder(path.parent)


def seal_folder(folder: Path) -> None:
    """Write `MANIFEST`: the SHA-256 of the lines below it, then size and SHA-256 of every other file in the folder.

    Call it last, inside `atomic_folder`.

    Raises:
        OSError: a file cannot be read, or is a link to a folder, whose files could not be checked.
    """
    entries = {
        name: {"size": (folder / name).stat().st_size, "sha256": _sha256(folder / name)} for name in _names(folder)
    }
    content = json.dumps(entries, indent=2).encode()
    (folder / MANIFEST).write_bytes(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)


def _names(folder: Path) -> list[str]:
    """Return the names of the files in a sealed folder, besides its manifest; a link to a folder counts as one."""
    paths = (path for path in _inside(folder) if path.is_symlink() or not path.is_dir())
    return [name for path in paths if (name := path.relative_to(folder).as_posix()) != MANIFEST]


def _inside(folder: Path) -> list[Path]:
    """Return the files and folders in a folder, sorted, but hidden ones, which libraries do not read.

    `Path.rglob` leaves out, in silence, what it cannot list.
    """

    def fail(error: OSError) -> None:
        raise error

    found = []
    for place, folders, files in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(place, name) for name in (*folders, *files) if not name.startswith(".")]
    return sorted(found)


def check_folder(folder: Path, part: str = "") -> None:
    """Check that the files of a folder are those that `seal_folder` listed, to the bit.

    Further files are refused, because libraries read whatever they find; hidden ones are ignored.

    Args:
        folder: the sealed folder.
        part: check only files whose names have this prefix, such as `model/`.

    Raises:
        FileNotFoundError, ValueError: a file is missing, has other contents, or was added; the message names it.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    manifest = folder / MANIFEST
    if not manifest.is_file():
        raise FileNotFoundError(f"{manifest} is missing: {folder} is incomplete, or was not saved by outcome_rl")
    digest, _, content = read_state_file(manifest).partition(b"\n")
    if hashlib.sha256(content).hexdigest().encode() != digest:
        raise ValueError(f"{manifest} is damaged: its contents do not match its SHA-256")
    entries = {name: entry for name, entry in _entries(content, manifest).items() if name.startswith(part)}
    if added := [name for name in _names(folder) if name.startswith(part) and name not in entries]:
        raise ValueError(f"{folder} has files that are not in {MANIFEST}: {', '.join(added)}. Move them elsewhere")
    for name, (size, digest_of_file) in entries.items():
        path = folder / name
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing")
        if path.stat().st_size != size:
            raise ValueError(f"{path} is damaged: it has {path.stat().st_size:,} bytes, not {size:,}")
        if _sha256(path) != digest_of_file:
            raise ValueError(f"{path} is damaged or of another step: its SHA-256 is not the one in {MANIFEST}")


def _entries(content: bytes, manifest: Path) -> dict[str, tuple[int, str]]:
    """Return name -> size and digest of the files in a manifest; the manifest's digest may be forged."""
    try:
        return {str(name): (int(entry["size"]), str(entry["sha256"])) for name, entry in json.loads(content).items()}
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{manifest} is damaged: it lists no files ({type(error).__name__})") from error


def lack_of_model(name: str) -> str:
    """Return why a name can be no model: it is no folder and cannot be of the hub, or a folder without config.json.

    `NAME` and `OWNER/NAME` may be of the hub; the latter is a local path if there is a folder `OWNER`.
    """
    owner, _, rest = name.partition("/")
    may_be_on_hub = name != "" and name[0] not in "/.~" and "/" not in rest and not (rest and Path(owner).is_dir())
    if not os.path.exists(name):  # "" is not the current folder here
        return "" if may_be_on_hub else "there is no such folder"
    return "" if Path(name, "config.json").is_file() else "config.json is missing"


def remove_folder(path: Path) -> None:
    """Delete a folder so that a kill cannot leave half of it under its name."""
    with scratch_name(path) as doomed:
        path.rename(doomed)


def remove_unfinished(folder: Path) -> None:
    """Delete the remains of killed processes in a folder; no other process may write there."""
    for leftover in folder.glob(f"{SCRATCH}*"):
        remove(leftover)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a UTF-8 file atomically."""
    with whole_file(path) as file:
        file.write(text.encode())


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write a value as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
