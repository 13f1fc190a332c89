"""The wheel: its contents and its tags, with and without a C++ compiler, and its use with the core packages alone."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from hashlib import sha256
from pathlib import Path

import core_only
import pytest

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = "outcome_rl_kernels/_native.so"

needs_toolchain = pytest.mark.skipif(
    shutil.which("cmake") is None or not any(map(shutil.which, ("c++", "g++", "clang++"))),
    reason="building the native library needs cmake and a C++ compiler on the PATH",
)

pytest.importorskip("setuptools", "77", reason="builds without isolation, with the setuptools of this environment")


@pytest.fixture
def source(tmp_path):
    """The files that a checkout has, without anything that an earlier build left."""
    return copy_of_the_project(tmp_path)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A source after a native build, and what that left: (source, pip's result, wheel, names)."""
    source = copy_of_the_project(tmp_path_factory.mktemp("native"))
    (source / "kernels" / LIBRARY).write_bytes(b"an editable installation leaves it here")
    return source, *build_wheel(source, OUTCOME_RL_NATIVE="1")


def copy_of_the_project(folder):
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: no list of the files that belong to the project")
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    target = folder / "source"
    for name in filter(None, listing.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def build_wheel(source, **environment):
    """Return (pip's result, path of the wheel or None, names of the files in it)."""
    target = Path(tempfile.mkdtemp(dir=source.parent))
    command = [sys.executable, "-m", "pip", "wheel", ".", "-v", "--no-deps", "--no-build-isolation", "-w", target]
    inherited = {name: value for name, value in os.environ.items() if name not in ("CXX", "OUTCOME_RL_NATIVE")}
    done = subprocess.run(command, cwd=source, env=inherited | environment, capture_output=True, text=True)
    wheels = list(target.glob("*.whl"))
    if not wheels:
        return done, None, set()
    return done, wheels[0], set(zipfile.ZipFile(wheels[0]).namelist())


def check_packages(source, wheel, names):
    """Check that the wheel holds the two packages, whole, and nothing else: no experiments, no bench; return WHEEL."""
    top_level = {name.split("/")[0] for name in names}
    info = next(name for name in top_level if name.endswith(".dist-info"))
    assert top_level == {"outcome_rl", "outcome_rl_kernels", info}
    for parent, package in ((source, "outcome_rl"), (source / "kernels", "outcome_rl_kernels")):
        expected = {
            path.relative_to(parent).as_posix()
            for path in (parent / package).rglob("*.py*")
            if path.suffix in (".py", ".pyi")
        }
        assert expected | {f"{package}/py.typed"} <= names
    data = [*(source / "outcome_rl").rglob("*.yaml"), *(source / "outcome_rl").rglob("*.j2")]
    assert len(data) >= 7
    assert {path.relative_to(source).as_posix() for path in data} <= names
    return zipfile.ZipFile(wheel).read(f"{info}/WHEEL").decode()


def obstacle_of(folder):
    """Return why the package in this folder cannot use its native library; "None" if it can."""
    code = (
        f"import sys; sys.path.insert(0, {str(folder)!r})\n"
        "from outcome_rl_kernels import backends\n"
        "print(backends.__file__); print(backends.native_obstacle())"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    module, obstacle = ran.stdout.splitlines()
    assert module == str(folder / "outcome_rl_kernels/backends.py")
    return obstacle


@needs_toolchain
def test_with_a_compiler_the_wheel_is_native_and_runs(built, tmp_path):
    source, done, wheel, names = built
    assert done.returncode == 0, done.stderr
    metadata = check_packages(source, wheel, names)
    assert LIBRARY in names
    assert "-py3-none-" in wheel.name
    assert not wheel.name.endswith("-any.whl")
    assert "Root-Is-Purelib: false" in metadata

    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    assert obstacle_of(installed) == "None"
    (installed / f"{LIBRARY}.sha256").write_text("0" * 64)
    assert "_native.so was built from other sources" in obstacle_of(installed)

    code = f"import sys; sys.path.insert(0, {str(installed)!r})\n{core_only.USE_THE_CORE}"
    command, without_triton = [sys.executable, core_only.__file__, code], {"CORE_ONLY_PLATFORM": "darwin"}
    ran = subprocess.run(command, cwd=tmp_path, env=os.environ | without_triton, capture_output=True, text=True)
    assert ran.stdout == "done\n", ran.stderr


# GCC 11 knows no levels of x86-64; other compilers cannot clone functions at all.
@needs_toolchain
@pytest.mark.parametrize("unknown", ["arch=x86-64", "target_clones"])
def test_what_a_compiler_cannot_clone_for_is_left_out(tmp_path, unknown):
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))))
    limited = tmp_path / "limited-c++"
    limited.write_text(
        f"""#!/bin/sh
case "$*" in *{unknown}*) exit 1;; esac
for argument; do ! grep -qs {unknown} "$argument" || exit 1; done
exec {compiler} "$@" -O0
"""
    )
    limited.chmod(0o755)
    for command in (["cmake", "-S", ROOT, "-B", "build", "-DCMAKE_BUILD_TYPE=Release"], ["cmake", "--build", "build"]):
        environment = os.environ | {"CXX": str(limited)}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_without_a_compiler_the_wheel_is_pure_and_says_why_and_a_demanded_library_fails(source):
    done, wheel, names = build_wheel(source, CXX="/nonexistent/c++")
    assert done.returncode == 0, done.stderr
    metadata = check_packages(source, wheel, names)
    assert LIBRARY not in names
    assert wheel.name.endswith("-py3-none-any.whl")
    assert "Root-Is-Purelib: true" in metadata
    output = done.stdout + done.stderr
    assert 'building extension "outcome_rl_kernels._native" failed' in output
    assert "/nonexistent/c++" in output or "cannot run cmake" in output
    done, wheel, _ = build_wheel(source, CXX="/nonexistent/c++", OUTCOME_RL_NATIVE="1")
    assert done.returncode != 0
    assert wheel is None
    assert "/nonexistent/c++" in done.stdout + done.stderr


@needs_toolchain
def test_a_pure_wheel_on_demand_drops_what_an_earlier_build_left(built):
    source, *_ = built
    done, wheel, names = build_wheel(source, OUTCOME_RL_NATIVE="0")
    assert done.returncode == 0, done.stderr
    assert LIBRARY not in names
    assert wheel.name.endswith("-py3-none-any.whl")


@needs_toolchain
def test_an_editable_installation_has_the_library_beside_the_code(source):
    library, gone, compiler = source / "kernels" / LIBRARY, source / "gone", source / "watching-c++"
    library.write_bytes(b"that of another environment, which runs meanwhile")
    real_compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))))
    compiler.write_text(f'#!/bin/sh\n[ -f "{library}" ] || touch "{gone}"\nexec {real_compiler} "$@"\n')
    compiler.chmod(0o755)
    code = "from setuptools.build_meta import build_editable; build_editable('wheels')"
    for mode, present in (("1", True), ("0", False)):
        environment = os.environ | {"OUTCOME_RL_NATIVE": mode, "CXX": str(compiler)}
        done = subprocess.run([sys.executable, "-c", code], cwd=source, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert library.is_file() == present
        assert not gone.exists()
        if present:
            assert obstacle_of(source / "kernels") == "None"
            with (source / "kernels/csrc/support.cpp").open("a") as file:
                file.write("// changed after the library was built\n")
            assert "_native.so was built from other sources" in obstacle_of(source / "kernels")


def build_sdist(source, umask=0o022):
    code = "from setuptools.build_meta import build_sdist; print(build_sdist('sdist'))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, umask=umask)
    assert done.returncode == 0, done.stderr
    return source / "sdist" / done.stdout.split()[-1]


def test_the_sdist_holds_what_the_native_build_needs_and_no_tests(source):
    with tarfile.open(build_sdist(source)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    csrc = {path.relative_to(source).as_posix() for path in (source / "kernels/csrc").iterdir()}
    assert {"CMakeLists.txt", "setup.py", "pyproject.toml", *csrc} <= names
    assert csrc
    assert not [name for name in names if name.startswith("tests")]


def test_two_sdists_of_the_same_files_are_equal(source):
    first = sha256(build_sdist(source).read_bytes()).hexdigest()  # a difference of two archives would fill the screen
    for path in source.rglob("*.py"):
        os.utime(path, (1e9, 1e9))
    assert sha256(build_sdist(source, umask=0o077).read_bytes()).hexdigest() == first


def test_an_unknown_mode_is_refused():
    command, environment = [sys.executable, "setup.py", "--name"], os.environ | {"OUTCOME_RL_NATIVE": "yes"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    assert "OUTCOME_RL_NATIVE must be auto, 0 or 1, got 'yes'" in done.stderr


def test_workflows_name_actions_by_commit_and_a_release_its_tools_by_hash() -> None:
    """A release is built by what a maintainer has looked at, whatever a tag or an index says later."""
    folder = ROOT / ".github"
    for path in (folder / "workflows").glob("*.yml"):
        text = path.read_text(encoding="utf-8")
        assert [name for name in re.findall(r"uses: (\S+)", text) if not re.fullmatch(r"\S+@[0-9a-f]{40}", name)] == []
    installs = re.findall(r"pip install .*", (folder / "workflows" / "release.yml").read_text(encoding="utf-8"))
    assert {*installs} == {
        "pip install --require-hashes --only-binary :all: --requirement .github/release-requirements.txt"
    }
    tools = (folder / "release-requirements.txt").read_text(encoding="utf-8").splitlines()
    assert [
        line for line in tools if line[0] != "#" and not re.search(r"==\S+( --hash=sha256:[0-9a-f]{64})+$", line)
    ] == []
