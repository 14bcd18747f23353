"""What the laboratory raises on purpose, beside what `meander.errors` has.

    MeanderError
    ├── BareSideError         a bare side (Flight, two topics) that Meander is compared with has failed
    ├── StaticNodeError       the plain node that Meander is compared with has failed
    └── InputError            what the caller gave is wrong, or is missing here
        ├── NoHostsError      there can be no hosts on this machine
        ├── NoJarsError       a server's jars cannot be fetched
        └── NoServerError     a server's program cannot be had

What holds of the others holds of these: they can be pickled, and say what to do.
"""

from __future__ import annotations

from meander.errors import InputError, MeanderError


class BareSideError(MeanderError):
    """A side with nothing in it failed: there is nothing to compare with. Run it again."""


class StaticNodeError(MeanderError):
    """The plain node on the other side failed: what was measured with it counts for nothing."""


class NoJarsError(InputError):
    """The jars of a server cannot be fetched here; the message says why, and what is missing."""


class NoServerError(InputError):
    """The program of a server cannot be had here; the message says why, and what is missing."""


class NoHostsError(InputError):
    """There can be no hosts here, or one did not do as told; the message says why, and what helps."""
