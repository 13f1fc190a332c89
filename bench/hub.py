"""Write the folder of a Hub kernel, Python and Triton only, that Hugging Face's `kernels` loads.

    python bench/hub.py build/hub
    python -c "import kernels, pathlib; print(kernels.get_local_kernel(pathlib.Path('build/hub')).__all__)"

The folder holds the modules that the losses and log-probabilities import, with relative imports and operators in a
namespace of their own, so that several versions live in one process, beside the installed package. Upload it as a
repository of type `kernel`. On a CPU it runs the reference: the C++ library is not part of it.
"""

import ast
import base64
import json
import re
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

PACKAGE = "outcome_rl_kernels"
ROOT = Path(__file__).parents[1] / "kernels" / PACKAGE
BACKENDS = ("cpu", "cuda")  # the variants torch-cpu and torch-cuda, whose files are the same
EXPORTS = {
    "loss.api": ("linear_policy_loss", "loss_normalizer", "policy_loss"),
    "loss.chunked_logprob": ("ChunkedLogProbFunction",),
    "loss.logprobs": ("linear_logprobs",),
    "loss.types": ("Support",),
}
VERSION = 0  # by convention of the Hub: the interface may change


def sources() -> dict[str, str]:
    """Return path -> text of the exported modules and of all that they import."""
    found: dict[str, str] = {}
    waiting = [file for module in EXPORTS for file in _files_of(module)]
    waiting += sorted((ROOT / "loss" / "losses").glob("*.py"))  # these are imported by their names
    while waiting:
        file = waiting.pop()
        path = file.relative_to(ROOT).as_posix()
        if path not in found and path != "__init__.py":
            found[path] = file.read_text(encoding="utf-8")
            waiting += _imported(found[path])
    return found


def _imported(text: str) -> Iterator[Path]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            module = (node.module or "").removeprefix(PACKAGE).removeprefix(".")
            yield from _files_of(module)
            for alias in node.names:
                yield from _files_of(f"{module}.{alias.name}".removeprefix("."))


def _files_of(module: str) -> Iterator[Path]:
    """Yield the file of a module and the `__init__.py` of its packages; nothing for the name of a function."""
    path = ROOT.joinpath(*module.split("."))
    if (path / "__init__.py").is_file():
        yield path / "__init__.py"
    elif path.with_suffix(".py").is_file():
        yield path.with_suffix(".py")
        yield path.with_name("__init__.py")


def relative(path: str, text: str, namespace: str) -> str:
    """Return the text of a module with relative imports and with its operators in `namespace`."""
    dots = "." * len(Path(path).parts)
    text = re.sub(rf"from {PACKAGE}\b\.?", f"from {dots}", text)
    return text.replace("outcome_rl::", f"{namespace}::").replace("torch.ops.outcome_rl", f"torch.ops.{namespace}")


def write(out: Path) -> None:
    """Write `out/build/torch-BACKEND` for every backend."""
    files = sources()
    unique = sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:8]
    for backend in BACKENDS:
        namespace = f"_outcome_rl_{backend}_{unique}"
        texts = {path: relative(path, text, namespace) for path, text in files.items()}
        names = sorted(name for group in EXPORTS.values() for name in group)
        lines = [f"from .{module} import {', '.join(group)}" for module, group in EXPORTS.items()]
        texts["__init__.py"] = "\n".join([*lines, "", f"__all__ = {names!r}", ""])
        digests = {path: base64.b64encode(sha256(text.encode()).digest()).decode() for path, text in texts.items()}
        metadata = {
            "name": "outcome-rl",
            "id": namespace,
            "version": VERSION,
            "license": "apache-2.0",
            "python-depends": [],
            "backend": {"type": backend},
            "digest": {"algorithm": "sha256", "files": digests},
        }
        texts["metadata.json"] = json.dumps(metadata, indent=2, sort_keys=True) + "\n"
        for path, text in texts.items():
            file = out / "build" / f"torch-{backend}" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2 or Path(sys.argv[1], "build").exists():  # a file of before would not be in the digest
        sys.exit(f"usage: python {sys.argv[0]} FOLDER, with a folder that has no `build` yet")
    write(Path(sys.argv[1]))
