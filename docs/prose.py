"""Check that docstrings, headings and help texts name their subject first: none opens with a relative clause."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CODE = ("outcome_rl", "kernels", "experiments", "bench", "docs", "examples", "tests")
FRONTED = re.compile(r"(What|Of|Whose)\b(?! (is|are|does|do) .*\?)")


def openings() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of every docstring, help text and heading."""
    for path in (path for folder in CODE for path in sorted((ROOT / folder).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}", ast.get_docstring(node) or ""
            elif isinstance(node, ast.keyword) and node.arg == "help" and isinstance(node.value, ast.Constant):
                yield f"{path.relative_to(ROOT)}:{node.value.lineno}", str(node.value.value).capitalize()
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "experiments").glob("*/README.md")):
        for heading in re.findall(r"^#+ (.*)", path.read_text(), re.MULTILINE):
            yield str(path.relative_to(ROOT)), heading


if __name__ == "__main__":
    found = [f"{place}: {text.splitlines()[0]}" for place, text in openings() if FRONTED.match(text)]
    if found:
        sys.exit("\n".join([*found, "put the subject first, not What, Of or Whose"]))
