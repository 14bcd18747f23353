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
    UnanswerableError,
    UnreadableError,
    UnreadError,
)
from meander.version import __version__

if TYPE_CHECKING:
    from meander import sinks, sources, testing
    from meander.autoscale import Autoscale, Season
    from meander.operators import (
        Aggregate,
        Context,
        FrequentPatterns,
        KeyedAggregate,
        Operator,
        Timer,
        Timers,
        Topology,
        WordCount,
    )
    from meander.runtime.driver.elastic import ElasticOperator
    from meander.runtime.driver.launch import WarmLauncher
    from meander.runtime.driver.local import deploy_local
    from meander.runtime.driver.options import Dashboard
    from meander.spark.deploy.adopt import adopt
    from meander.spark.deploy.deploy import deploy
    from meander.spark.processor.operator import processor

__all__ = [
    "Aggregate",
    "Autoscale",
    "BrokenRuleError",
    "CertificateError",
    "CheckpointError",
    "Context",
    "Dashboard",
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
    "Season",
    "SinkError",
    "StaleMessage",
    "StateError",
    "SumOverflowError",
    "Timer",
    "Timers",
    "TooLargeError",
    "Topology",
    "UnanswerableError",
    "UnreadError",
    "UnreadableError",
    "WarmLauncher",
    "WordCount",
    "__version__",
    "adopt",
    "deploy",
    "deploy_local",
    "processor",
    "sinks",
    "sources",
    "testing",
]

_PLACES = {
    "autoscale": ("Autoscale", "Season"),
    "operators": (
        "Aggregate",
        "Context",
        "FrequentPatterns",
        "KeyedAggregate",
        "Operator",
        "Timer",
        "Timers",
        "Topology",
        "WordCount",
    ),
    "runtime.driver.elastic": ("ElasticOperator",),
    "runtime.driver.launch": ("WarmLauncher",),
    "runtime.driver.local": ("deploy_local",),
    "runtime.driver.options": ("Dashboard",),
    "spark.deploy.adopt": ("adopt",),
    "spark.deploy.deploy": ("deploy",),
    "spark.processor.operator": ("processor",),
}
"""Where the others are."""


def __getattr__(name: str) -> Any:
    """Load what was asked for, and all below it."""
    if name in ("sinks", "sources", "testing"):
        return import_module(f"meander.{name}")
    for module, names in _PLACES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
