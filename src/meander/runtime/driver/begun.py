"""Where sources have begun that may begin at what is newest: settled once, for later runs, too.

A partition of which nothing is durable begins where it did when its source first began under its name.
In memory that lasts as long as the driver; in the checkpoint's folder, for all who go on from there:

    source/<lineage>/<name>.json     written before the first process of the source is started

A checkpoint that is made anew has another lineage: whatever was in the folder before does not count.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from meander.errors import DeployError
from meander.runtime.process.source import BegunSource, PartitionedSource, PlacedSource
from meander.runtime.store.filesystem import Files, open_files


class BegunPlaces:
    """Where the sources of one deployment have begun."""

    def __init__(self, folder: str | None = None, lineage: Callable[[], str] = str) -> None:
        """Look at nothing yet.

        Args:
            folder: of the checkpoint; None: there is none.
            lineage: tells what deployments that go on from one checkpoint have in common.
        """
        self._folder, self._lineage = folder, lineage
        self._files: Files | None = None
        self._known = dict[str, Any]()
        """By the source's name."""

    def begin(self, name: str, source: PartitionedSource) -> PartitionedSource:
        """Settle where a source begins, or give it as it has begun under its name before.

        Raises:
            InputError: if nobody can tell where its partitions are.
            DeployError: if the checkpoint's folder cannot be read or written.
        """
        if not isinstance(source, BegunSource):
            return source
        if not isinstance(source, PlacedSource):
            return source.begun()
        before = self._read(name)
        begun = source.begun() if before is None else source.placed(before)
        places = begun.places()
        if places is not None and places != before:
            self._write(name, places)
        return begun

    def _read(self, name: str) -> Any:
        """Give where one has begun; None: it has not."""
        files = self._open()
        if name in self._known or files is None:
            return self._known.get(name)
        try:
            found = files.read(self._path(name))
            return None if found is None else json.loads(found)
        except (OSError, ValueError) as error:
            raise self._away(name, error) from None

    def _write(self, name: str, places: Any) -> None:
        files = self._open()
        if files is not None:
            try:
                files.publish(self._path(name), json.dumps(places).encode())
            except OSError as error:
                raise self._away(name, error) from None
        self._known[name] = places

    def _open(self) -> Files | None:
        if self._files is None and self._folder is not None:
            self._files = open_files(self._folder)
        return self._files

    def _path(self, name: str) -> str:
        return f"source/{self._lineage()}/{quote(name, safe='')}.json"

    def _away(self, name: str, error: Exception) -> DeployError:
        return DeployError(
            f"where the source {name} begins is kept in {self._folder}, which cannot be used now: "
            f"{error}. Begin the source again when it can"
        )
