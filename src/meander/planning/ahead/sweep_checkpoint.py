"""A long projection, kept after every sweep or round, so that it can go on where it was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from meander.errors import InputError
from meander.model import Workload
from meander.planning.ahead.cvi import CandidateRound
from meander.planning.ahead.forecast import digest
from meander.planning.ahead.mtm import Mtm
from meander.planning.ahead.pmc import Choices
from meander.planning.exact.partitions import Ends
from meander.planning.kernels.types import Floats


def identity(
    load: Workload, mtm: Mtm, tau: Fraction, gamma: float, method: str, states_max: int, seed: int
) -> str:
    """Fingerprint everything that a checkpoint depends on."""
    parts = [digest(load), json.dumps(mtm.to_json()), str(tau), gamma, method, states_max, seed]
    return sha256(repr(parts).encode()).hexdigest()


class SweepCheckpoint:
    """What a run has reached, in one file beside the result; replaced whole, removed at the end."""

    def __init__(self, path: Path, identity: str) -> None:
        self.path, self.identity = path, identity

    def keep_sweep(self, value: Floats, choices: Choices) -> None:
        """Keep an exact iteration."""
        self._write(value=value, cost=choices.cost, choice=choices.choice, floor=choices.floor)

    def keep_round(self, done: CandidateRound, pool: Mapping[int, Ends]) -> None:
        """Keep the candidates of a round."""
        rows: dict[str, Any] = {f"ends_{n}": ends for n, ends in pool.items()}
        self._write(round=np.array(done.number), **rows)

    def _write(self, **arrays: Any) -> None:
        part = self.path.with_name(self.path.name + ".part")
        with part.open("wb") as out:
            np.savez(out, allow_pickle=False, identity=np.array(self.identity), **arrays)
        part.replace(self.path)

    def read(
        self,
    ) -> tuple[tuple[Floats, Choices] | None, tuple[int, Mapping[int, Ends]] | None]:
        """Give the iteration or the round to go on from.

        Raises:
            InputError: without a checkpoint, or with one of another run.
        """
        try:
            with np.load(self.path, allow_pickle=False) as archive:
                kept = {name: archive[name] for name in archive.files}
        except (OSError, ValueError) as error:
            raise InputError(f"cannot resume from {self.path}: {error}") from None
        if str(kept.get("identity")) != self.identity:
            raise InputError(
                f"{self.path} belongs to a run with other inputs or options: start without --resume"
            )
        if "round" in kept:
            pool = {int(k[5:]): rows for k, rows in kept.items() if k.startswith("ends_")}
            return None, (int(kept["round"]), pool)
        choices = Choices(kept["cost"], kept["choice"], kept["floor"], first=False)
        return (kept["value"], choices), None

    def drop(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)
