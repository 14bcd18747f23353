"""What MkDocs needs to build the docs as they are: pages of the root, links to them, blocks of code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "ARCHITECTURE.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")
CHANGES = (
    (r"\]\(\.\./", "]("),  # from docs/ to the root: all pages lie side by side here
    (r"\]\(docs/", "]("),  # and back
    (r"\[([^\]]*)\]\(examples/\)", r"`\1`"),  # a folder of the repository is no page
    (r"(?m)^(\s*```\w+) notest$", r"\1"),  # a word for the tests alone
)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the root."""
    for name in PAGES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Have links lead to where pages are on the site, and blocks of code be what they are."""
    for before, after in CHANGES:
        markdown = re.sub(before, after, markdown)
    return markdown
