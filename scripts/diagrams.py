"""Draw the diagrams of pages anew, from the protocol's tables.

`python scripts/diagrams.py docs/protocol.md`
"""

from __future__ import annotations

import sys
from pathlib import Path

from meander.protocol.diagrams import redraw

for name in sys.argv[1:]:
    page = Path(name)
    page.write_text(redraw(page.read_text()))
