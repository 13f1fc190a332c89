"""Hook of mkdocs: pages that lie outside docs/, links between the files of the repository, and formulas.

README.md and the other pages of the repository are read by GitHub where they are, so links are relative to files. In
the site a link to another page leads to that page, and a link to source code leads to the repository if
`OUTCOME_RL_REPO_URL` names one. Formulas become MathML while the site is built, so that a browser shows them without a
script and without a network.
"""

import re
from html import unescape
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
# File in the repository -> page of the site.
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "RELEASE.md": "project/release.md",
    "SECURITY.md": "project/security.md",
    "CODE_OF_CONDUCT.md": "project/code_of_conduct.md",
    "bench/results/README.md": "bench/results.md",
    "bench/results/losses.md": "bench/losses.md",
    "bench/results/outcomes.md": "bench/outcomes.md",
    "bench/results/steps.md": "bench/steps.md",
    "experiments/claims.md": "experiments/claims.md",
    "experiments/paper/README.md": "experiments/paper.md",
    "experiments/paper/eight-gpus.md": "experiments/eight-gpus.md",
    "experiments/mechanism/README.md": "experiments/mechanism.md",
    "experiments/bandits/README.md": "experiments/bandits.md",
    "experiments/smollm2/README.md": "experiments/smollm2.md",
    "examples/verl/README.md": "examples/verl.md",
}
# A line or code before a list: Python-Markdown takes both for one paragraph unless an empty line parts them.
LIST = re.compile(r"^((?![ \t]|[-*] |\d+\. ).*\S.*|)\n(?=[-*] )", re.MULTILINE)
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that lie outside docs/, and the images beside them."""
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
        for image in (ROOT / source).parent.glob("*/*.png") if "/" in source else ():
            files.append(File.generated(config, image.relative_to(ROOT).as_posix(), abs_src_path=str(image)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn links between files into links between pages, and begin lists where GitHub does, outside code blocks."""
    here = {site: source for source, site in OUTSIDE.items()}.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def rewrite(match: re.Match[str]) -> str:
        bang, text, target = match.groups()
        path, hash_, anchor = target.partition("#")
        if not path or "://" in path or path.startswith("mailto:"):
            return match[0]
        source = normpath(str(PurePosixPath(here).parent / path))
        uri = OUTSIDE.get(source, source.removeprefix("docs/"))
        if files.get_file_from_path(uri) is not None:
            return f"{bang}[{text}]({relpath(uri, PurePosixPath(page.file.src_uri).parent)}{hash_}{anchor})"
        if not (ROOT / source).exists():
            return match[0]  # mkdocs reports it
        if config.repo_url:
            return f"[{text}]({config.repo_url.rstrip('/')}/blob/main/{source}{hash_}{anchor})"
        if source.endswith(text.strip("`")):
            return f"`{source}`"
        return text if source in text else f"{text} (`{source}`)"

    parts = re.split(r"(^```.*?^```)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else LIST.sub(r"\1\n\n", LINK.sub(rewrite, part)) for part in parts)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Replace the LaTeX of each formula, as arithmatex left it, by MathML."""

    def mathml(match: re.Match[str]) -> str:
        tag, formula = match.groups()
        display = "block" if tag == "div" else "inline"
        return f'<{tag} class="formula">{convert(unescape(formula), display=display)}</{tag}>'

    return FORMULA.sub(mathml, html)
