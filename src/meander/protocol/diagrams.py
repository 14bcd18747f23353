"""Draw the transition tables as Mermaid state diagrams: the docs cannot differ from them.

`python -m meander.protocol.diagrams docs/protocol.md` rewrites what stands between the markers

    <!-- diagram: phases -->  …  <!-- end -->
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

from meander.protocol.master.membership import STATUS
from meander.protocol.master.migration import STAGES
from meander.protocol.node.slot import TRANSITIONS

TABLES: Final[Mapping[str, Mapping[tuple[Any, Any], Any]]] = {
    "phases": TRANSITIONS,
    "statuses": STATUS,
    "stages": STAGES,
}


def mermaid(table: Mapping[tuple[Enum, Enum], Enum]) -> str:
    """Draw one table.

    >>> from meander.protocol.node.slot import Cause, TaskPhase
    >>> print(mermaid({(TaskPhase.ABSENT, Cause.GAIN): TaskPhase.AWAITING}))
    stateDiagram-v2
        [*] --> absent
        absent --> awaiting: gain
        awaiting --> [*]
    """
    first = next(iter(table))[0]
    lines = ["stateDiagram-v2", f"    [*] --> {_name(first)}"]
    lines += [f"    {_name(a)} --> {_name(b)}: {cause.value}" for (a, cause), b in table.items()]
    left = {state for state, _ in table}
    ends = dict.fromkeys(state for state in table.values() if state not in left)
    lines += [f"    {_name(state)} --> [*]" for state in ends]
    return "\n".join(lines)


def _name(state: Enum) -> str:
    return str(state.value).replace(" ", "_")


def redraw(text: str) -> str:
    """Give a page with its diagrams drawn anew."""
    for name, table in TABLES.items():
        marked = re.compile(rf"(?<=<!-- diagram: {name} -->\n).*?(?=<!-- end -->)", re.DOTALL)
        text = marked.sub(f"```mermaid\n{mermaid(table)}\n```\n", text, count=1)
    return text


def main(arguments: list[str]) -> None:
    """Redraw the pages named on the command line."""
    for name in arguments:
        page = Path(name)
        page.write_text(redraw(page.read_text()))


if __name__ == "__main__":
    main(sys.argv[1:])
