"""The commands of the laboratory, as rows of the tool's registry (`meander.cli.main`)."""

from __future__ import annotations

from typing import Final

from meander.cli.main import Command

COMMANDS: Final = (
    Command(
        "bench", "measure the planners, the router and the runtime here", "meander_lab.cli.bench"
    ),
    Command("experiment", "the paper's experiments, with verdicts", "meander_lab.cli.experiment"),
    Command("chaos", "kill, stop and cut off real processes; compare", "meander_lab.cli.chaos"),
    Command("mutants", "break the product on purpose; who notices?", "meander_lab.cli.mutants"),
    Command("soak", "rescale for a long time; what has grown?", "meander_lab.cli.soak"),
)
