"""What the tests of the command line share."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


TABLE3 = {
    "work": [1] * 20, "size": [1] * 20,
    "current": {"n1": [0, 13], "n2": [13, 20]}, "nodes": 3, "tau": 0.4,
}  # fmt: skip
