"""Files that are complete or absent: atomic writes of files and folders, and their digests.

Contents are written under a scratch name in the same folder, forced to disk, and then renamed, so that a kill, a full
disk or a power failure leaves the old contents or the new ones. (The kernels' count snapshots do the same in
`counts/snapshot.py`: that package does not know this one, and loads torch, which `outcome-rl --help` does not.)
"""

import errno
import glob
import hashlib
import json
import os
import re
import shutil
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

MANIFEST = "MANIFEST"
_SCRATCH = ".unfinished-"
_DIRECT = re.compile(r"/dev/(?:stdout|stderr|fd/.*)|/proc/.*")
_ABANDONED_S = 86_400.0


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a scratch path to write; at the end it replaces `path`. After an error `path` is as it was.

    Missing parent folders are created. The scratch name has the suffix of `path`, and differs between processes and
    threads, so that several may write the same file. A symbolic link stays one. A device, a pipe or an open file, such
    as `/dev/stdout`, gets the contents appended.
    """
    path = Path(path)
    kind = stat.S_IFMT(path.stat().st_mode) if path.exists() else stat.S_IFREG
    if _DIRECT.fullmatch(str(path)) or kind not in (stat.S_IFREG, stat.S_IFDIR):
        with tempfile.TemporaryDirectory() as folder:
            yield (scratch := Path(folder) / path.name)
            with scratch.open("rb") as source, path.open("ab") as target:  # what is open keeps what it holds
                shutil.copyfileobj(source, target)
        return
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, "is a folder; name a file", str(path))
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = _scratch(path)
    try:
        yield scratch
        _sync(scratch)
        os.replace(scratch, path)
        _sync(path.parent)
    finally:
        scratch.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield an empty scratch folder to fill; at the end it becomes `path`. After an error there is no `path`.

    Missing parent folders are created.

    Raises:
        FileExistsError: `path` exists.
    """
    path = Path(path)
    if path.exists():
        raise FileExistsError(f"{path} exists, and nothing is overwritten; remove it or choose another folder")
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = _scratch(path)
    _remove(scratch)
    scratch.mkdir()
    try:
        yield scratch
        for inner in [*_inside(scratch), scratch]:
            _sync(inner)
        scratch.rename(path)
        _sync(path.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)  # it exists after an error


def _scratch(path: Path) -> Path:
    """Return a name next to a path, of this thread only; remove what processes that are gone have left.

    The name has a digest of the whole name and only the end of it, because a name may be as long as the system allows.
    """
    name = f"{_digest(path.name)}-{path.name[-30:]}"
    for leftover in path.parent.glob(f"{_SCRATCH}*-{glob.escape(name)}"):
        place, _, owner = leftover.name.removeprefix(_SCRATCH).partition("-")
        with suppress(OSError, ValueError):  # another process removes it, too
            if _is_abandoned(leftover, place, int(owner.partition("-")[0])):
                _remove(leftover)
    return path.with_name(f"{_SCRATCH}{_place()}-{os.getpid()}-{threading.get_native_id()}-{name}")


def _is_abandoned(leftover: Path, place: str, pid: int) -> bool:
    """Return whether the process that wrote a scratch file is gone; another machine's is after a day."""
    if place == _place():
        return not _is_running(pid)
    return time.time() - leftover.lstat().st_mtime > _ABANDONED_S


@lru_cache(maxsize=1)
def _place() -> str:
    """Return a name of this machine or container: another one numbers its processes anew."""
    processes = os.readlink("/proc/self/ns/pid") if os.path.exists("/proc/self/ns/pid") else ""
    return _digest(f"{socket.gethostname()} {processes}")


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


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


def fingerprint(folder: Path) -> str:
    """Return a digest of the weights in a folder: names, sizes, and 64 blocks of 4 KiB of each file, evenly spaced."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            for block in range(64):
                file.seek(size * block // 64)
                digest.update(file.read(4096))
    return digest.hexdigest()[:16]


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
    digest, _, content = manifest.read_bytes().partition(b"\n")
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


def is_missing_folder(name: str) -> bool:
    """Return whether a name can only be a local path, not `NAME` or `OWNER/NAME` of the hub, and that does not exist.

    `OWNER/NAME` is a local path if there is a folder `OWNER`.
    """
    owner, _, rest = name.partition("/")
    may_be_on_hub = name != "" and name[0] not in "/.~" and "/" not in rest and not (rest and Path(owner).is_dir())
    return not may_be_on_hub and not os.path.exists(name)  # "" is not the current folder here


def remove_folder(path: Path) -> None:
    """Delete a folder so that a kill cannot leave half of it under its name."""
    doomed = path.with_name(f"{_SCRATCH}{path.name}")
    path.rename(doomed)
    shutil.rmtree(doomed)


def remove_unfinished(folder: Path) -> None:
    """Delete the remains of killed processes in a folder; no other process may write there."""
    for leftover in folder.glob(f"{_SCRATCH}*"):
        _remove(leftover)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a UTF-8 file atomically."""
    with atomic_file(path) as scratch:
        scratch.write_text(text, encoding="utf-8")


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write a value as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    """Force a file or folder to disk, so that a rename never arrives before the contents that it names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
