"""The report as one page of HTML that needs no other file, light and dark by the reader's choice."""

from __future__ import annotations

import base64
import html
import re

STYLE = """
:root { color-scheme: light dark; --ink: #24292f; --paper: #ffffff; --line: #d0d7de; --soft: #f6f8fa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #d0d7de; --paper: #0d1117; --line: #30363d; --soft: #161b22; }
}
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; font-size: 0.88rem;
        margin: 1rem 0; }
th, td { border: 1px solid var(--line); padding: 0.3rem 0.55rem; text-align: left;
         vertical-align: top; }
th { background: var(--soft); }
img { max-width: 100%; height: auto; }
code { background: var(--soft); padding: 0.1em 0.3em; border-radius: 4px; }
"""


def page(title: str, markdown: str, figures: dict[str, tuple[str, str]]) -> str:
    """Turn the report's Markdown into a page, with its figures inside.

    Args:
        title: of the page.
        markdown: headings, paragraphs, lists, tables and `<picture>` lines: what the report uses.
        figures: light and dark SVG by name.
    """
    body = "\n".join(_block(block, figures) for block in markdown.split("\n\n") if block.strip())
    return (
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n"
        '<meta name=viewport content="width=device-width">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n{body}\n</html>\n"
    )


def _block(block: str, figures: dict[str, tuple[str, str]]) -> str:
    """Render one block.

    >>> _block("## A *b*", {})
    '<h2>A <em>b</em></h2>'
    """
    lines = block.strip().splitlines()
    if heading := re.fullmatch(r"(#+) (.*)", lines[0]):
        level = len(heading.group(1))
        return f"<h{level}>{_inline(heading.group(2))}</h{level}>"
    if found := re.search(r'<picture data-figure="([^"]+)"', block):
        return _picture(found.group(1), figures)
    if lines[0].startswith("|"):
        return _table(lines)
    if lines[0].startswith("* "):
        items = re.split(r"^\* ", block.strip(), flags=re.MULTILINE)[1:]
        return "<ul>" + "".join(f"<li>{_inline(' '.join(i.split()))}</li>" for i in items) + "</ul>"
    return f"<p>{_inline(' '.join(lines))}</p>"


def _table(lines: list[str]) -> str:
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    head = "".join(f"<th>{_inline(cell)}</th>" for cell in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{_inline(cell)}</td>" for cell in row) + "</tr>" for row in rows[2:]
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _picture(name: str, figures: dict[str, tuple[str, str]]) -> str:
    light, dark = (
        "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
        for svg in figures[name]
    )
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img src="{light}" alt="{html.escape(name)}"></picture>'
    )


def _inline(text: str) -> str:
    """Render emphasis, code and links."""
    text = html.escape(text, quote=False)
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
    text = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text)
    text = re.sub(r"\*([^*]+)\*", r"<em>\1</em>", text)
    return re.sub(r"\[([^\]]+)\]\(([^)]+)\)", r'<a href="\2">\1</a>', text)
