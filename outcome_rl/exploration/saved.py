"""Saved states of an `Explorer`: the folder that holds one, and the checks of what is read from it."""

import gc
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NotRequired, TypedDict, TypeVar

from outcome_rl.declared import check_types
from outcome_rl.exploration.config import ExplorationConfig
from outcome_rl.exploration.older import upgraded
from outcome_rl.files import MANIFEST, atomic_folder, check_folder, seal_folder, standing
from outcome_rl.outcomes.keys import NO_ANSWER, question_key
from outcome_rl.settings import needing_user
from outcome_rl_kernels.counts.reference import CountEntries
from outcome_rl_kernels.counts.snapshot import write_snapshot

COUNTS_FILE, STATE_FILE = "counts.safetensors", "state.json"
FILES = (MANIFEST, STATE_FILE, COUNTS_FILE)
FIX = "Continue from another checkpoint, or start with new counts"
_FUNCTION = "function "  # a saved setting that was a function
MAX_READS = 10  # of a folder that another process replaces meanwhile
_FORMAT, _FORMER_FORMAT = "outcome_rl exploration 2", "outcome_rl exploration 1"
_OF_SYSTEM = (".DS_Store", ".nfs", ".unfinished-")
T = TypeVar("T")


class _State(TypedDict):
    """A saved state, without the counts."""

    texts: dict[str, list[int | str]]  # question id -> key, text, key, text, ... of its outcomes, oldest first
    golds: dict[str, str]
    batches: int
    id_source: str
    former: NotRequired[bool]  # an older version has written it, see `older`


class StateInMemory(_State):
    """`Explorer.state_dict`."""

    counts: dict[str, Any]


class _StateInFile(_State):
    format: str
    config: dict[str, Any]


def check_state(name: str, state: Any, declared: type) -> None:
    """Raise a ValueError unless a state has the entries and types of a declared class."""
    try:
        check_types("it", [state], declared)
    except ValueError as error:
        raise ValueError(f"{name} is damaged or not an exploration state: {error}. {FIX}") from error


def texts_of(state: Mapping[str, Any]) -> dict[str, dict[int, str]]:
    """Return the texts of a checked state: question id -> key -> text.

    Raises:
        ValueError: they are no pairs of a key and a text.
    """
    texts: dict[str, dict[int, str]] = {}
    for question_id, flat in state["texts"].items():
        keys, values = flat[::2], flat[1::2]
        if len(keys) != len(values) or not ({*map(type, keys)} <= {int} and {*map(type, values)} <= {str}):
            raise ValueError(
                f"the exploration state is damaged: the texts of question {question_id!r} must be pairs of a key and a "
                f"text; got {flat!r:.80}. {FIX}"
            )
        texts[question_id] = dict(zip(keys, values, strict=True))
    return texts


def is_whole(entries: CountEntries, texts: Mapping[str, Mapping[int, str]]) -> bool:
    """Return whether the counts are those of the questions with texts, and each outcome has one."""
    key_of = {question_id: question_key(question_id) for question_id in texts if question_id.strip()}
    named = {(key_of.get(question_id), key) for question_id, of_key in texts.items() for key in (*of_key, NO_ANSWER)}
    counted = {*zip(entries.question_keys.tolist(), entries.outcome_keys.tolist(), strict=True)}
    return counted <= named and {question for question, _ in counted} == {question for question, _ in named}


def check_replaceable(folder: Path) -> None:
    """Check that a folder may be replaced: it does not exist, or holds only a saved state and files of the system."""
    try:  # one look, because another writer may move the folder at any time
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise FileExistsError(f"{folder} is a file; save into a folder") from None
    if others := {name for name in names if not name.startswith(_OF_SYSTEM)} - {*FILES}:
        raise FileExistsError(
            f"{folder} holds other files, such as {min(others)!r}, which would be lost; save into a folder of its own, "
            f"such as {folder / 'exploration'}"
        )


def write_state(folder: Path, config: ExplorationConfig, state: dict[str, Any]) -> None:
    """Write a `state_dict` and its settings into a folder atomically."""
    counts = state["counts"]
    entries = CountEntries(*(counts[name].cpu() for name in CountEntries._fields))
    rest = {name: value for name, value in state.items() if name != "counts"}
    settings = {
        name: f"{_FUNCTION}{getattr(value, '__qualname__', type(value).__name__)}" if callable(value) else value
        for name, value in vars(config).items()
    }
    with atomic_folder(folder, replace=True) as scratch:
        write_snapshot(scratch / COUNTS_FILE, entries, counts["rule"])
        content = json.dumps({"format": _FORMAT, "config": settings, **rest}, sort_keys=True)
        (scratch / STATE_FILE).write_text(content, encoding="utf-8")
        seal_folder(scratch)


def check_functions(folder: Path, settings: dict[str, Any]) -> None:
    """Raise a ValueError where a saved setting was a function or names one: a folder gives data, never code."""
    missing = {name: value for name, value in settings.items() if str(value).startswith(_FUNCTION)}
    missing |= needing_user(ExplorationConfig, settings)
    if missing:
        values = ", ".join(f"{name} = {value!r}" for name, value in missing.items())
        given = ", ".join(f"{name}=..." for name in missing)
        raise ValueError(
            f"{folder} was saved with {values}. A folder gives data, and no functions: pass {given} to load"
        )


def read_state(folder: Path) -> dict[str, Any]:
    """Return the settings and the state without the counts, checked.

    Raises:
        FileNotFoundError: the folder lacks a file.
        ValueError: a file is damaged or foreign.
    """
    if not any((folder / name).exists() for name in FILES):
        raise FileNotFoundError(f"{folder} holds no exploration state. {FIX}")
    try:
        check_folder(folder, closed="")
    except (FileNotFoundError, ValueError) as error:
        raise type(error)(f"{error}. {FIX}") from error
    path = folder / STATE_FILE
    try:
        state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}. {FIX}") from error
    if isinstance(state, dict) and state.get("format") == _FORMER_FORMAT:
        state = upgraded(str(path), state) | {"format": _FORMAT}
    check_state(str(path), state, _StateInFile)
    if state["format"] != _FORMAT:
        raise ValueError(f"{path} must have the format {_FORMAT!r}; got {state['format']!r}. {FIX}")
    return state


def read_unreplaced(folder: Path, read: Callable[[Path], T], discard: Callable[[T], None]) -> T:
    """Return what `read` makes of a folder, read again while another process replaces the folder meanwhile.

    `read` gets the place where the folder stands, which is another one after a kill between two renames.

    Raises:
        FileNotFoundError, ValueError: as `read` does, or the folder was replaced every time.
    """
    for attempt in range(1, MAX_READS + 1):
        seal = _seal(folder)
        try:
            result = read(standing(folder))
        except Exception as error:  # a file that shrinks while it is read has errors of its own
            moved = isinstance(error, FileNotFoundError)  # perhaps, between two renames, and put back since
            if _seal(folder) == seal and (not moved or attempt == MAX_READS):
                raise
            continue
        if _seal(folder) == seal:
            return result
        discard(result)
    raise ValueError(f"{folder} was replaced again and again while it was read. Load a copy of it")


def _seal(folder: Path) -> tuple[int, int] | None:
    """Return inode and time of the manifest, which change when another process replaces the state; None without one."""
    with suppress(FileNotFoundError, NotADirectoryError):
        manifest = (standing(folder) / MANIFEST).stat()
        return manifest.st_ino, manifest.st_mtime_ns
    return None


@contextmanager
def paused_garbage_collection() -> Iterator[None]:
    """Pause garbage collection: while millions of objects are created, it takes most of the time and frees none."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
