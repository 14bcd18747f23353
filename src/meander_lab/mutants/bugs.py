"""Bugs as values: what the source would say if one that was mended were still there."""

from __future__ import annotations

from types import CodeType
from typing import NamedTuple

from meander.errors import InputError
from meander_lab.mutants.mutate import source_of


class Edit(NamedTuple):
    """One place of the source, and what stood there."""

    module: str
    before: str
    """As it is now: found once in the module."""
    after: str
    """With the bug."""


class Bug(NamedTuple):
    """A bug that can be put back."""

    name: str
    edits: tuple[Edit, ...]

    def __str__(self) -> str:
        return self.name

    def codes(self) -> dict[str, CodeType]:
        """Give the modules with the bug.

        Raises:
            InputError: if the source has changed, and the bug does not fit it any more.
        """
        texts: dict[str, str] = {}
        for module, before, after in self.edits:
            text = texts.get(module) or source_of(module).read_text(encoding="utf-8")
            if text.count(before) != 1:
                raise InputError(f"{self.name}: {module} has {text.count(before)} times {before!r}")
            texts[module] = text.replace(before, after)
        return {m: compile(text, str(source_of(m)), "exec") for m, text in texts.items()}
