"""Files are whole or not there."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcome_rl.files.atomic import (
    atomic_folder,
    check_folder,
    lack_of_model,
    remove_unfinished,
    seal_folder,
    write_json,
    write_text,
)


@settings(deadline=None)  # it writes files
@given(name=st.sampled_from(["b", "inner/a", "inner/empty", "MANIFEST"]), data=st.data())
def test_every_damage_of_a_sealed_folder_is_named(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("sealed")
    fill(folder, "contents")
    (folder / "inner" / "empty").touch()
    seal_folder(folder)
    check_folder(folder)
    whole = (folder / name).read_bytes()
    damaged = data.draw(
        st.binary(max_size=20)
        | st.integers(0, max(0, len(whole) - 1)).map(lambda size: whole[:size])
        | st.integers(0, max(0, 8 * len(whole) - 1)).map(lambda bit: flipped(whole, bit))
    )
    if damaged == whole:
        return
    (folder / name).write_bytes(damaged)
    with pytest.raises(ValueError, match=f"{name} is damaged"):
        check_folder(folder)
    if name != "MANIFEST":
        check_folder(folder, "b" if name != "b" else "inner/")
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"{name} is missing"):
        check_folder(folder)
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*typo"):
        check_folder(folder / "typo")


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    if changed:
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_a_folder_without_a_model_is_told_from_a_name_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "config.json").touch()
    absent = ["", ".no", "./no", "../no", "/no", "~/no", "a/b/c", "runs/no", "runs/one/no", "a/b/"]
    assert {lack_of_model(name) for name in absent} == {"there is no such folder"}
    assert {lack_of_model(name) for name in ("runs", "./runs", ".", "..")} == {"config.json is missing"}
    assert {lack_of_model(name) for name in ("runs/one", str(tmp_path / "runs" / "one"), "gpt2", "Qwen/Qwen2")} == {""}


def test_values_come_back(tmp_path: Path) -> None:
    write_json(tmp_path / "a" / "b.json", {"x": [1, "é"]})  # the folder is created
    assert json.loads((tmp_path / "a" / "b.json").read_text()) == {"x": [1, "é"]}
    write_text(tmp_path / "a" / "b.json", "é\n")
    assert (tmp_path / "a" / "b.json").read_bytes() == "é\n".encode()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b.json"]


def fill(folder: Path, text: str) -> None:
    (folder / "inner").mkdir()
    (folder / "inner" / "a").write_text(text)
    (folder / "b").write_text(text)


def content(folder: Path) -> str:
    """The text of a folder that `fill` wrote, which must be whole."""
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) == ["b", "inner", "inner/a"]
    (text,) = {(folder / "inner" / "a").read_text(), (folder / "b").read_text()}
    return text


def watched(monkeypatch: pytest.MonkeyPatch, state: Callable[[], str]) -> list[str]:
    """Record a state before each call that changes the disk: a kill would leave it."""
    seen = []

    def recording(call: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*arguments: Any, **options: Any) -> Any:
            seen.append(state())
            return call(*arguments, **options)

        return recorded

    for module, name in ((os, "fsync"), (Path, "rename"), (shutil, "rmtree")):
        monkeypatch.setattr(module, name, recording(getattr(module, name)))
    return seen


def test_a_kill_leaves_no_folder_or_the_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watched(monkeypatch, lambda: content(tmp_path / "x") if (tmp_path / "x").exists() else "")
    with atomic_folder(tmp_path / "x") as scratch:
        fill(scratch, "new")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert len(seen) >= 6
    assert {*seen} == {"", "new"}
    assert seen == sorted(seen)  # the new one stays


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    fill(tmp_path / "x", "old")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")  # which would be made there
    for name in ("x", "link"):
        with pytest.raises(FileExistsError, match="exists, and nothing is overwritten"), atomic_folder(tmp_path / name):
            raise AssertionError
    assert content(tmp_path / "x") == "old"
    assert not (tmp_path / "nothing").exists()


def fill_in_part(folder: Path) -> None:
    fill(folder, "new")
    (folder / "missing" / "file").touch()


def test_an_error_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_folder(tmp_path / "x") as scratch:
        fill_in_part(scratch)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_listed_is_not_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was sealed as one without files, and then refused for ever."""
    (tmp_path / "file").write_text("content")

    def refuse(path: object) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PermissionError):
        seal_folder(tmp_path)
    assert not (tmp_path / "MANIFEST").exists()


def test_unfinished_files_and_folders_are_removed(tmp_path: Path) -> None:
    for name in (".unfinished-folder", "folder"):
        (tmp_path / name).mkdir()
    for name in (".unfinished-file", "file"):
        (tmp_path / name).touch()
    remove_unfinished(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


# Kind of a file or folder -> how it is made, from its path and a folder elsewhere.
HARMLESS: dict[str, Callable[[Path, Path], object]] = {
    "empty folder": lambda path, _: path.mkdir(),
    "hidden file": lambda path, _: path.with_name(f".{path.name}").touch(),
    "hidden link": lambda path, far: path.with_name(f".{path.name}").symlink_to(far),
    "hidden folder": lambda path, _: write_text(path.with_name(f".{path.name}") / "file", "x"),
}
FILES: dict[str, Callable[[Path, Path], object]] = {
    "file": lambda path, _: path.touch(),
    "file in a folder": lambda path, _: write_text(path / "file", "x"),
    "link to a file": lambda path, far: path.symlink_to(far / "file"),
}
LINKS: dict[str, Callable[[Path, Path], object]] = {
    "link to a folder": lambda path, far: path.symlink_to(far),
    "link to nothing": lambda path, far: path.symlink_to(far / "nothing"),
}


@settings(deadline=None)  # it writes files
@given(
    own=st.lists(st.sampled_from([*HARMLESS, *FILES])),
    kind=st.sampled_from([*HARMLESS, *FILES, *LINKS]),
    place=st.sampled_from([".", "inner"]),
)
def test_a_sealed_folder_holds_what_was_sealed(
    own: list[str], kind: str, place: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, far = tmp_path_factory.mktemp("sealed"), tmp_path_factory.mktemp("far")
    (far / "file").write_text("x")
    fill(folder, "contents")
    makers = HARMLESS | FILES | LINKS
    for number, one in enumerate(own):
        makers[one](folder / ("inner" if number % 2 else ".") / f"own-{number}", far)
    seal_folder(folder)
    for part in ("", "inner/", "b"):
        check_folder(folder, part)
    makers[kind](folder / place / "added", far)
    for part in ("", f"{place}/".removeprefix("./")):
        if kind in HARMLESS:
            check_folder(folder, part)
        else:
            with pytest.raises(ValueError, match=r"not in MANIFEST: (inner/)?added(/file)?\. Move"):
                check_folder(folder, part)
    check_folder(folder, "b")  # of other parts further files are ignored


@pytest.mark.parametrize("kind", LINKS)
def test_a_folder_with_a_link_that_holds_no_file_is_not_sealed(kind: str, tmp_path: Path) -> None:
    """It would be refused for ever."""
    LINKS[kind](tmp_path / "link", tmp_path.parent)
    with pytest.raises(OSError, match="link"):
        seal_folder(tmp_path)
    assert not (tmp_path / "MANIFEST").exists()


@pytest.mark.parametrize("content", [b"null", b"[]", b"3", b'{"a": 1}', b'{"a": {"size": []}}', b"[" * 10**5, b"\xff"])
def test_a_forged_manifest_is_refused(content: bytes, tmp_path: Path) -> None:
    digest = hashlib.sha256(content).hexdigest().encode()
    (tmp_path / "MANIFEST").write_bytes(digest + b"\n" + content)
    with pytest.raises(ValueError, match="MANIFEST is damaged"):
        check_folder(tmp_path)
