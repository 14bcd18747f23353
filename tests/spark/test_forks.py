"""The process that forks: children say what they did and how they ended, and nobody is left behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_children_are_heard_and_die_with_whoever_wanted_them(tmp_path: Path) -> None:
    program = str(Path(__file__).with_name("forked.py"))
    done = subprocess.run(
        [sys.executable, program, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    greeted, died, gone, lost, orphaned, after = json.loads(done.stdout)
    assert greeted.startswith("Heard(words=b'hello you from ")
    assert "how='ended with code 0'" in greeted
    assert died == "Heard(words=b'last ', how='killed by signal 9')"
    assert gone == "True", "a child that stands still outlived its worker"
    assert lost == "Heard(words=b'', how='the process that forks was lost')"
    assert orphaned == "False"
    assert after == "None", "then the worker has to do it itself"
