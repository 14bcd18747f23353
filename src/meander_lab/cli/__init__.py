"""The commands of the laboratory, as rows of the tool's registry (`meander.cli.main`)."""

from __future__ import annotations

from typing import Final

from meander.cli.main import CliCommand

COMMANDS: Final = (
    CliCommand(
        "bench", "measure the planners, the router and the runtime here", "meander_lab.cli.bench"
    ),
    CliCommand(
        "experiment", "the paper's experiments, with verdicts", "meander_lab.cli.experiment"
    ),
    CliCommand("chaos", "kill, stop and cut off real processes; compare", "meander_lab.cli.chaos"),
    CliCommand("mutants", "break the product on purpose; who notices?", "meander_lab.cli.mutants"),
    CliCommand("soak", "rescale for a long time; what has grown?", "meander_lab.cli.soak"),
)
INSTEAD: Final = (
    CliCommand("demo", "a stream on Spark, rescaled while it flows", "meander_lab.cli.demo"),
)
"""Commands of the tool itself that have more to offer here."""
