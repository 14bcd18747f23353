"""Meander: elastic stateful streaming on PySpark.

>>> import meander
>>> with meander.deploy_local(meander.WordCount(), nodes=4) as counts:           # doctest: +SKIP
...     counts.rescale(8, pause_ms=100).wait()

`deploy` puts the same on Spark. Most is loaded when it is first asked for: to import
this package loads neither Spark nor the compiler.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from meander.errors import (
    BrokenRuleError,
    CertificateError,
    CheckpointError,
    DeadlockError,
    DeployError,
    EndedError,
    FeederError,
    InfeasibleError,
    InputError,
    LaunchError,
    LostStateError,
    MalformedMessage,
    MeanderError,
    MigrationError,
    ModuleMissingError,
    NotQuietError,
    OperatorError,
    OperatorFailedError,
    OperatorGoneError,
    OperatorRefusedError,
    OperatorRuleError,
    OutputsBrokenError,
    OutputsLostError,
    ProtocolError,
    QueryError,
    ReplayError,
    RolledBackError,
    RowsLostError,
    SinkError,
    StaleMessage,
    StateError,
    SumOverflowError,
    TooLargeError,
    UnreadError,
)
from meander.version import __version__

if TYPE_CHECKING:
    from meander import testing
    from meander.operators import (
        Aggregate,
        Context,
        FrequentPatterns,
        KeyedAggregate,
        Operator,
        Timer,
        Timers,
        WordCount,
    )
    from meander.runtime.driver.elastic import ElasticOperator
    from meander.runtime.driver.launch import WarmLauncher
    from meander.runtime.driver.local import deploy_local
    from meander.spark.deploy.deploy import deploy
    from meander.spark.processor.operator import processor

__all__ = [
    "Aggregate",
    "BrokenRuleError",
    "CertificateError",
    "CheckpointError",
    "Context",
    "DeadlockError",
    "DeployError",
    "ElasticOperator",
    "EndedError",
    "FeederError",
    "FrequentPatterns",
    "InfeasibleError",
    "InputError",
    "KeyedAggregate",
    "LaunchError",
    "LostStateError",
    "MalformedMessage",
    "MeanderError",
    "MigrationError",
    "ModuleMissingError",
    "NotQuietError",
    "Operator",
    "OperatorError",
    "OperatorFailedError",
    "OperatorGoneError",
    "OperatorRefusedError",
    "OperatorRuleError",
    "OutputsBrokenError",
    "OutputsLostError",
    "ProtocolError",
    "QueryError",
    "ReplayError",
    "RolledBackError",
    "RowsLostError",
    "SinkError",
    "StaleMessage",
    "StateError",
    "SumOverflowError",
    "Timer",
    "Timers",
    "TooLargeError",
    "UnreadError",
    "WarmLauncher",
    "WordCount",
    "__version__",
    "deploy",
    "deploy_local",
    "processor",
    "testing",
]

_PLACES = {
    "operators": (
        "Aggregate",
        "Context",
        "FrequentPatterns",
        "KeyedAggregate",
        "Operator",
        "Timer",
        "Timers",
        "WordCount",
    ),
    "runtime.driver.elastic": ("ElasticOperator",),
    "runtime.driver.launch": ("WarmLauncher",),
    "runtime.driver.local": ("deploy_local",),
    "spark.deploy.deploy": ("deploy",),
    "spark.processor.operator": ("processor",),
}
"""Where the others are."""


def __getattr__(name: str) -> Any:
    """Load what was asked for, and all below it."""
    if name == "testing":
        return import_module("meander.testing")
    for module, names in _PLACES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
