"""The report as one page of HTML that needs no other file, light and dark by the reader's choice."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from pathlib import Path

import jinja2
from markdown_it import MarkdownIt
from markupsafe import Markup

PAGE = Path(__file__).with_name("page.html.jinja")


def page(
    title: str, markdown: str, figures: dict[str, tuple[str, str]], marks: Mapping[str, str]
) -> str:
    """Turn the report's Markdown into a page, with its figures inside.

    Args:
        title: of the page.
        markdown: with a figure's two files named in it as `figures/NAME-light.svg` and `…-dark.svg`.
        figures: light and dark SVG by name.
        marks: characters that are drawn as dots, and their colours: not every font has them.
    """
    body = MarkdownIt("commonmark").enable("table").render(markdown)
    body = re.sub(r"figures/([\w-]+)-(light|dark)\.svg", lambda m: _data(figures, m), body)
    for mark, color in marks.items():
        body = body.replace(mark, f'<span class=mark style="background: {color}"></span>')
    template = jinja2.Environment(autoescape=True).from_string(PAGE.read_text(encoding="utf-8"))
    return template.render(title=title, body=Markup(body))


def _data(figures: dict[str, tuple[str, str]], file: re.Match[str]) -> str:
    """Give the address that is the figure itself."""
    svg = figures[file[1]][file[2] == "dark"]
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
