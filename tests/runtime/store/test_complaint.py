"""A trouble that lasts is said less and less often, and its end once."""

from __future__ import annotations

import logging

import pytest

from meander.runtime.clock import Clock
from meander.runtime.store.complaint import Complaint


def test_it_is_said_less_often_and_once_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    complaint = Complaint("no disk", Clock(lambda: now[0], lambda: 0))
    with caplog.at_level(logging.WARNING):
        for second in range(60):
            now[0] = float(second)
            complaint.say("full")
        said = len(caplog.records)
        assert 2 <= said <= 6
        complaint.over()
        complaint.over()
    assert len(caplog.records) == said + 1
    assert "no disk: over after 59 s" in caplog.text
