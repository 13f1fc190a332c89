"""A result file names the code that it measured."""

import json
import subprocess
from pathlib import Path

import pytest

from bench import result_file


def test_a_result_file_has_what_is_needed_to_read_it(tmp_path: Path) -> None:
    path = result_file.write_result(tmp_path / "results", "some", {"rounds": 3}, {"a": 1.5})
    content = json.loads(path.read_text())
    assert path == tmp_path / "results" / "some.json"
    assert (content["config"], content["figures"]) == ({"rounds": 3}, {"a": 1.5})
    assert content["devices"][0].startswith("cpu: ")
    assert content["versions"]["torch"]
    assert content["commit"]
    assert content["date"]


def test_the_commit_of_a_checkout_tells_of_changes_but_not_of_new_result_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def git(*command: str) -> str:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
        return subprocess.run(
            ["git", *identity, *command], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    (tmp_path / "bench" / "results").mkdir(parents=True)
    (tmp_path / "bench" / "results" / "a.json").write_text("{}")
    (tmp_path / "code.py").write_text("x = 1\n")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    monkeypatch.setattr(result_file, "ROOT", tmp_path)
    head = git("rev-parse", "HEAD").strip()
    (tmp_path / "bench" / "results" / "a.json").write_text("[]")
    assert result_file.commit() == head
    (tmp_path / "code.py").write_text("x = 2\n")
    assert result_file.commit() == f"{head} with uncommitted changes"


@pytest.mark.parametrize("refused", [False, True])
def test_without_git_or_where_it_refuses_a_digest_names_the_sources(
    refused: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if refused:
        (tmp_path / ".git").write_text("gitdir: of another owner\n")  # git ends with an error
    package = tmp_path / "package"
    package.mkdir()
    (package / "a.py").write_text("x = 1\n")
    monkeypatch.setattr(result_file, "ROOT", tmp_path)
    monkeypatch.setattr(result_file, "PACKAGES", (package,))
    first = result_file.commit()
    assert first.startswith("unknown, sources ")
    assert result_file.commit() == first
    (package / "a.py").write_text("x = 2\n")
    assert result_file.commit() != first
