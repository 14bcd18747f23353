"""Ask a schema registry for the schema of a number: once, and never with secrets in what is said.

`GET <registry>/schemas/ids/<number>`, as Confluent's has it, and others (Apicurio, Karapace, Redpanda)
have it, too. A redirect is not followed: credentials go to the host that was named, and to no other.
"""

from __future__ import annotations

import base64
import json
import ssl
from dataclasses import KW_ONLY, dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib import error, parse, request

from meander.errors import InputError

ANSWER_S_MAX = 10.0
ANSWER_BYTES_MAX = 4 << 20


@dataclass(frozen=True)
class Registry:
    """Where schemas are had."""

    url: str
    _: KW_ONLY
    auth: str | None = field(default=None, repr=False)
    """`user:password`, or `Bearer …`."""
    authority: str | None = field(default=None, repr=False)
    """A file of certificates that are trusted beside the system's."""

    def __post_init__(self) -> None:
        parts = parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError("registry is http://host:port or https://host:port")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise InputError("registry has no credentials in its address: give registry_auth")

    def schema(self, number: int) -> str | None:
        """Ask for a schema; None if there is no such number.

        Raises:
            ConnectionError: if the registry is away; it may come back.
            InputError: if it refuses, or the schema is not one that can be read here.
        """
        what = f"schema {number} at {self.url}"
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if self.auth is not None:
            plain = base64.b64encode(self.auth.encode()).decode()
            headers["Authorization"] = self.auth if self._bearer() else f"Basic {plain}"
        asked = request.Request(f"{self.url.rstrip('/')}/schemas/ids/{number}", headers=headers)
        try:
            with self._opener().open(asked, timeout=ANSWER_S_MAX) as answer:
                said = answer.read(ANSWER_BYTES_MAX + 1)
        except error.HTTPError as refused:
            refused.close()
            if refused.code == 404:
                return None
            if refused.code == 429 or refused.code >= 500:
                raise ConnectionError(f"{what}: the registry answers {refused.code}") from None
            raise InputError(f"{what}: the registry answers {refused.code}") from None
        except (OSError, HTTPException) as away:
            why = getattr(away, "reason", away)
            raise ConnectionError(f"{what}: {type(why).__name__}: {self._told(why)}") from None
        return self._read(said, what)

    def _read(self, said: bytes, what: str) -> str:
        try:
            found = json.loads(said) if len(said) <= ANSWER_BYTES_MAX else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
            raise InputError(f"{what}: the answer is not a registry's")
        if found.get("schemaType", "AVRO") != "AVRO":
            raise InputError(f"{what} is no Avro, but {str(found['schemaType'])[:20]}")
        if found.get("references"):
            raise InputError(f"{what} refers to other schemas: give it whole, in schemas={{…}}")
        text: str = found["schema"]
        return text

    def _bearer(self) -> bool:
        return self.auth is not None and self.auth.lower().startswith("bearer ")

    def _told(self, why: Any) -> str:
        text = str(why)
        return text if self.auth is None else text.replace(self.auth, "…")

    def _opener(self) -> request.OpenerDirector:
        trusted = ssl.create_default_context()
        if self.authority is not None and Path(self.authority).is_file():
            trusted.load_verify_locations(self.authority)
        return request.build_opener(_Stay(), request.HTTPSHandler(context=trusted))


class _Stay(request.HTTPRedirectHandler):
    """Follows nobody."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Have the redirect reported as it is."""
