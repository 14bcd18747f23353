"""Spark's own channel: what is sent to processes on it, credentials included, is as safe as it is."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkConf

log = logging.getLogger(__name__)

ENCRYPTED = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
OPEN = (
    "Spark sends tasks over the network unencrypted, and with them the token and the certificates of "
    "this deployment: set spark.authenticate and spark.network.crypto.enabled (or "
    "spark.ssl.rpc.enabled) to true"
)


def is_open(conf: SparkConf) -> bool:
    """Tell whether what Spark sends between hosts can be read on the way.

    >>> from pyspark import SparkConf
    >>> is_open(SparkConf(loadDefaults=False, _jvm=None).setMaster("spark://h:7077"))
    True
    >>> is_open(SparkConf(loadDefaults=False, _jvm=None).setMaster("local[4]"))
    False
    """
    master = conf.get("spark.master", "") or ""
    if master.startswith("local"):
        return False
    return not any(conf.get(key, "false") == "true" for key in ENCRYPTED)


def warn(conf: SparkConf) -> None:
    """Say once what a deployment with TLS should know of Spark."""
    if is_open(conf):
        log.warning(OPEN)
