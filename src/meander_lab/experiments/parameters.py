"""Reads `parameters.toml`: every number that an experiment depends on."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from meander.errors import InputError

SCALES: Final = ("quick", "paper", "toy")
FILE: Final = Path(__file__).with_name("parameters.toml")


class Parameters(dict[str, Any]):
    """The parameters of one experiment at one scale, by name or as attributes.

    >>> parameters("fig12", "paper").tasks
    64
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no parameter {name!r} in {FILE.name}") from None


def parameters(experiment: str, scale: str) -> Parameters:
    """Give the parameters of an experiment; what a scale does not say is as in `paper`.

    Raises:
        InputError: for an unknown scale or experiment.
    """
    everything = _read()
    if scale not in SCALES:
        raise InputError(f"unknown scale {scale!r}: choose quick or paper")
    if experiment not in everything["paper"]:
        raise InputError(f"{FILE.name} has no parameters for {experiment!r}")
    return Parameters(everything["paper"][experiment] | everything[scale].get(experiment, {}))


@cache
def _read() -> Mapping[str, Any]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))
