"""Builds the optional native library with CMake; everything else about the package is in pyproject.toml.

The environment variable OUTCOME_RL_NATIVE decides at build time:
    auto (default)   build it, or else say why not and install without it
    1                build it, or else fail
    0                do not build it
"""

import gzip
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist
from setuptools.errors import CompileError

ROOT = Path(__file__).resolve().parent
MODE = os.environ.get("OUTCOME_RL_NATIVE", "auto")
if MODE not in ("auto", "0", "1"):
    raise SystemExit(f"OUTCOME_RL_NATIVE must be auto, 0 or 1, got {MODE!r}")


class CMakeBuild(build_ext):
    """Runs CMake; setuptools turns the failure of an optional extension into a warning."""

    def run(self) -> None:
        # A library of an earlier build must not pass for the result of this one.
        for stale in self.get_outputs():
            Path(stale).unlink(missing_ok=True)
            Path(f"{stale}.sha256").unlink(missing_ok=True)
        # In an editable installation, from where the result is built to its place beside the code. Other processes may
        # be about to load the library there, so it is replaced at once, and not removed before the build.
        places, is_editable = self.get_output_mapping(), self.inplace
        self.inplace = False
        try:
            super().run()
        finally:
            self.inplace = is_editable
            for built, place in places.items():
                if Path(built).exists():
                    Path(shutil.copy(built, f"{place}.new")).replace(place)
                else:
                    Path(place).unlink(missing_ok=True)

    def build_extension(self, ext: Extension) -> None:
        library = Path(self.get_ext_fullpath(ext.name)).resolve()
        if MODE == "0":
            raise CompileError("not wanted: OUTCOME_RL_NATIVE=0")
        build = Path(self.build_temp).resolve() / "native"
        shutil.rmtree(build, ignore_errors=True)  # its cache may name a compiler or a CMake that is gone
        self._run("cmake", "-S", ROOT, "-B", build, "-DCMAKE_BUILD_TYPE=Release")
        self._run("cmake", "--build", build, "--config", "Release", "--parallel")
        self._run("cmake", "--install", build, "--config", "Release", "--prefix", library.parent)

    def get_ext_filename(self, fullname: str) -> str:
        # ctypes opens the library by path: its name carries no Python version.
        return os.path.join(*fullname.split(".")) + ".so"

    def _run(self, *command: str | Path) -> None:
        try:
            done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except OSError as error:
            raise CompileError(f"cannot run {command[0]}: {error}") from error
        if done.returncode != 0:
            raise CompileError(f"{' '.join(map(str, command))} failed:\n{done.stdout}")


class NativeWheel(bdist_wheel):
    """Tags the wheel by what was built: py3-none-<platform> with the native library, py3-none-any without."""

    def run(self) -> None:
        self.run_command("build_ext")
        built = self.get_finalized_command("build_ext").get_outputs()
        if not all(map(os.path.exists, built)):
            self.distribution.ext_modules = None
            self.root_is_pure = True
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        _, _, platform = super().get_tag()
        return "py3", "none", platform


class ReproducibleSdist(sdist):
    """Writes the same bytes from the same files: their times, owners and the umask do not matter."""

    def make_archive(self, base_name: str, format: str, root_dir: object = None, base_dir: str = "", **_: str) -> str:
        if format != "gztar":
            return super().make_archive(base_name, format, root_dir, base_dir)
        epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))  # 1980: zip, too, holds no earlier time

        def normalised(entry: tarfile.TarInfo) -> tarfile.TarInfo:
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = epoch, 0, 0, "", ""
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            return entry

        archive = f"{base_name}.tar.gz"
        Path(archive).parent.mkdir(parents=True, exist_ok=True)
        with (
            open(archive, "wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            tar.add(base_dir, filter=normalised)  # in the order of names
        return archive


setup(
    # `depends` puts the sources into the sdist.
    ext_modules=[
        Extension(
            "outcome_rl_kernels._native",
            sources=[],
            depends=["CMakeLists.txt", *(str(path.relative_to(ROOT)) for path in (ROOT / "kernels/csrc").iterdir())],
            optional=MODE != "1",
        )
    ],
    cmdclass={"build_ext": CMakeBuild, "bdist_wheel": NativeWheel, "sdist": ReproducibleSdist},
)
