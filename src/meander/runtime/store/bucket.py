"""The calls that files in an object store take; `filesystem` makes something of them.

S3 and what speaks like it, Google's and Azure's are reached through `obstore` (the extra
`meander[s3]`), and not through Arrow: it has conditional writes, a file is one request, and one that
could not be written leaves nothing that anybody sees.

Credentials come from where the process runs: its environment (`AWS_ACCESS_KEY_ID`, …), or the role of
its host or pod. They are in no address, spec or log: an address with some is refused, and of what a
store answers only the code and the message are told.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import SplitResult, parse_qsl, urlsplit

import pyarrow as pa

from meander.errors import InputError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

SCHEMES: Final = frozenset({"s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss"})
OPTIONS: Final = ("endpoint", "region")
"""What an address may say behind a question mark."""
REQUEST_S_MAX: Final = 20.0
"""How long one request may take."""
CONNECT_S_MAX: Final = 5.0
RETRIES_MAX: Final = 5
"""How often a request is tried again before it has failed; whoever asked for it asks again later."""
RETRIES_S_MAX: Final = 10.0
PART_BYTES: Final = 8 * 2**20
"""Up to so many an object is put by one request, beyond in parts of so many."""
PARTS_AT_ONCE: Final = 4


class Entry(NamedTuple):
    """An object."""

    path: str
    size: int
    written_s: float
    """Seconds since 1970."""


class Bucket(Protocol):
    """Objects under a prefix, as one process sees them. Everything raises OSError."""

    def put(self, path: str, pieces: Iterable[bytes | pa.Buffer]) -> None:
        """Put an object, whole or not at all."""

    def put_new(self, path: str, data: bytes) -> bool | None:
        """Put an object unless there is one of that name; None: the store has no such thing."""

    def get(self, path: str, offset: int, length: int | None) -> bytes:
        """Read an object from an offset on, as far as there is something; None: to the end."""

    def entries(self, folder: str) -> list[Entry]:
        """List all objects whose names begin with the folder's."""

    def delete(self, paths: list[str]) -> None:
        """Delete objects, in any order; what is not there is no error."""


def open_bucket(where: str, *, conditional: bool = True) -> StoreBucket:
    """Give the objects at an address such as `s3://bucket/prefix?endpoint=http://host:port`.

    Args:
        where: the address.
        conditional: whether to use conditional writes, if the store has them.

    Raises:
        InputError: for an address that says too much or too little, or without the package for it.
    """
    parts = urlsplit(where)
    if "@" in parts.netloc and parts.scheme in ("s3", "s3a", "gs"):
        raise InputError(
            f"an address with credentials would be in logs: write {parts.scheme}://bucket/folder, and "
            "put them into the environment of the driver and of all nodes (AWS_ACCESS_KEY_ID, …)"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise InputError(
            f"the address of a checkpoint cannot say {', '.join(unknown)}: {' and '.join(OPTIONS)} "
            "can be said there, everything else is taken from the environment"
        )
    return StoreBucket(_open(parts, options), conditional=conditional)


def _open(parts: SplitResult, options: Any) -> ObjectStore:
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError:
        raise InputError(
            f"checkpoints at {parts.scheme}: need the package obstore where the driver and the nodes "
            'run: pip install "meander[s3]"'
        ) from None
    endpoint = options.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL", "")
    url = f"{parts.scheme}://{parts.netloc}{parts.path}"
    try:
        opened: ObjectStore = from_url(
            url,
            config=options or None,
            client_options={
                "timeout": timedelta(seconds=REQUEST_S_MAX),
                "connect_timeout": timedelta(seconds=CONNECT_S_MAX),
                "allow_http": endpoint.startswith("http://"),
            },
            retry_config={
                "max_retries": RETRIES_MAX,
                "retry_timeout": timedelta(seconds=RETRIES_S_MAX),
            },
        )
    except (BaseError, ValueError, OSError) as error:
        raise InputError(f"{url!r} cannot be opened as an object store: {told(error)}") from None
    return opened


class StoreBucket:
    """Objects in a store that `obstore` knows."""

    def __init__(self, store: ObjectStore, *, conditional: bool = True) -> None:
        """Use a store, with or without its conditional writes."""
        self._store, self._conditional = store, conditional

    def put(self, path: str, pieces: Iterable[bytes | pa.Buffer]) -> None:
        """Put in one request, or in parts."""
        left, first, size = iter(pieces), list[bytes | pa.Buffer](), 0
        for piece in left:
            first.append(piece)
            size += len(piece)
            if size > PART_BYTES:
                break
        with _translated():
            if size <= PART_BYTES:
                self._store.put(path, b"".join(first), use_multipart=False)
                return
            self._store.put(
                path,
                (memoryview(piece).cast("B") for piece in chain(first, left)),
                use_multipart=True,
                chunk_size=PART_BYTES,
                max_concurrency=PARTS_AT_ONCE,
            )

    def put_new(self, path: str, data: bytes) -> bool | None:
        """Put with `If-None-Match: *`."""
        from obstore.exceptions import AlreadyExistsError, NotSupportedError

        if not self._conditional:
            return None
        try:
            with _translated(AlreadyExistsError, NotSupportedError):
                self._store.put(path, data, mode="create")
        except AlreadyExistsError:
            return False
        except (NotSupportedError, NotImplementedError):
            return None
        return True

    def get(self, path: str, offset: int, length: int | None) -> bytes:
        """Get a range."""
        from obstore.exceptions import BaseError

        try:
            with _translated(BaseError):
                if length is not None:
                    return bytes(self._store.get_range(path, start=offset, length=length))
                options: Any = {"range": {"offset": offset}} if offset else None
                return bytes(self._store.get(path, options=options).bytes())
        except BaseError as error:
            if _beyond(error):
                return b""
            raise OSError(told(error)) from None

    def entries(self, folder: str) -> list[Entry]:
        """List, page after page."""
        with _translated():
            found = self._store.list(folder or None).collect()
        return [
            Entry(meta["path"], meta["size"], meta["last_modified"].timestamp()) for meta in found
        ]

    def delete(self, paths: list[str]) -> None:
        """Delete many with one request, where the store can."""
        with _translated():
            try:
                self._store.delete(paths)
            except FileNotFoundError:  # some stores say so, and leave off there
                for path in paths:
                    with suppress(FileNotFoundError):
                        self._store.delete(path)


@contextmanager
def _translated(*but: type[Exception]) -> Iterator[None]:
    """Raise OSError for whatever a store cannot do, but for some."""
    from obstore.exceptions import BaseError

    try:
        yield
    except but:
        raise
    except FileNotFoundError as error:
        raise FileNotFoundError(told(error)) from None
    except BaseError as error:
        raise OSError(told(error)) from None


def _beyond(error: Exception) -> bool:
    """Whether there is nothing in a range."""
    return _answered(error).startswith("416") or "Wanted range starting at" in str(error)


_STATUS = re.compile(r"status code: (\d{3}[^:<\n]*)")
_CODE = re.compile(r"<Code>([^<]*)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_BELOW = re.compile(r'message: "([^"]+)"')


def told(error: Exception) -> str:
    r"""Describe what a store has answered, without all that it repeats of the request.

    >>> told(OSError("GET http://s3/b in 2ms - Server returned non-2xx status code: 403 Forbidden: "
    ...     "<Error><Code>Denied</Code><Message>No.</Message><AWSAccessKeyId>AKIA</AWSAccessKeyId>"))
    'the store answered 403 Forbidden: Denied: No.'
    >>> told(OSError('GET http://s3/b failed\n\nDebug source: … message: "refused"'))
    'GET http://s3/b failed: refused'
    """
    text = str(error)
    if status := _answered(error):
        found = [match[1] for match in (_CODE.search(text), _MESSAGE.search(text)) if match]
        return ": ".join([f"the store answered {status}", *found])
    line, _, debug = text.partition("\n")
    below = _BELOW.search(debug)
    return f"{line.strip()}: {below[1]}" if below else line.strip()


def _answered(error: Exception) -> str:
    """Give the status of an answer; empty: there was none."""
    status = _STATUS.search(str(error))
    return status[1].strip() if status else ""
