"""Claims about Figures 11 and 16; see `claims`."""

from __future__ import annotations

from typing import Final

from meander_lab.experiments.verdicts import (
    FAILS,
    HOLDS,
    IN_PART,
    Claim,
    ClaimVerdict,
    Tables,
    entering,
    looking_ahead,
    measured,
    of_parts,
    together,
    trend,
)

CLAIMS: Final[list[Claim]] = []
claim = entering(CLAIMS)
LARGE: Final = 2.0
"""What we take "large margins" to mean."""


# ------------------------------------------------------------------ Figure 11


@claim("11.1", "fig11", "In the interval of the migration, live migration has a mean response time "
       "several orders of magnitude below that of a restart.")  # fmt: skip
def live_beats_restart(tables: Tables) -> ClaimVerdict:
    """Two orders of magnitude are several; one is a part."""
    rows, parts, told = measured(tables, "fig11"), [], []
    for application in rows.names("application"):
        some = rows.where(application=application, migrating=True)
        ratio = some.where(mode="restart").mean("mean_ms") / some.where(mode="live").mean("mean_ms")
        parts.append(HOLDS if ratio >= 100 else IN_PART if ratio >= 10 else FAILS)
        told.append(f"{application}: {ratio:.3g} times")
    status = parts[0] if len(set(parts)) == 1 else IN_PART
    return ClaimVerdict(status, "; ".join(told))


@claim("11.2", "fig11", "Some time after the migration all ways have a comparable, steady response "
       "time (said of two minutes, with Figure 16).")  # fmt: skip
def steady_afterwards(tables: Tables) -> ClaimVerdict:
    """Comparable: the last intervals differ by no more than a factor of two."""
    rows, parts, told = measured(tables, "fig11"), [], []
    for application in rows.names("application"):
        last = max(rows.values("interval"))
        some = rows.where(application=application, interval=last)
        means = [some.where(mode=mode).mean("mean_ms") for mode in some.names("mode")]
        parts.append(max(means) <= 2 * min(means))
        told.append(f"{application}: {min(means):.3g} to {max(means):.3g} ms in the last interval")
    return of_parts(parts, "; ".join(told))


# ------------------------------------------------------------------ Figure 16


def _response(tables: Tables, method: str) -> tuple[list[float], list[float]]:
    return measured(tables, "fig16").where(method=method).line("window_s", "mean_ms")


@claim("16.1", "fig16", "The response time of all methods grows with the window.")
def response_grows(tables: Tables) -> ClaimVerdict:
    """Every method that migrates live."""
    rows = measured(tables, "fig16")
    methods = [m for m in rows.names("method") if m != "restart"]
    return together({m: trend(_response(tables, m)[1], up=True) for m in methods})


@claim("16.2", "fig16", "The proposed methods outperform consistent hashing by large margins.")
def proposed_beat_hashing(tables: Tables) -> ClaimVerdict:
    """Twice as fast is a large margin; faster at all is a part of the claim."""
    rows = measured(tables, "fig16")
    ring, ratios = _response(tables, "consistent-hash")[1], list[float]()
    for method in ("ssm", looking_ahead(rows)):
        pairs = zip(ring, _response(tables, method)[1], strict=True)
        ratios += [slow / fast for slow, fast in pairs]
    status = FAILS if max(ratios) <= 1 else HOLDS if min(ratios) >= LARGE else IN_PART
    return ClaimVerdict(
        status, f"consistent hashing takes {min(ratios):.2f} to {max(ratios):.2f} times"
    )


@claim("16.3", "fig16", "Between single-step and MTM-aware migration the gap is larger in response "
       "time than in cost.")  # fmt: skip
def gap_is_larger_in_time(tables: Tables) -> ClaimVerdict:
    """Mean over windows, against the bytes that the same migrations moved."""
    rows = measured(tables, "fig16")
    ahead = looking_ahead(rows)
    gaps = {}
    for what in ("mean_ms", "bytes_moved"):
        ours, theirs = (rows.where(method=m).mean(what) for m in ("ssm", ahead))
        gaps[what] = 100 * (ours - theirs) / ours
    number = f"{gaps['mean_ms']:.1f} % in response time, {gaps['bytes_moved']:.1f} % in bytes"
    return of_parts([gaps["mean_ms"] > 0 and gaps["mean_ms"] > gaps["bytes_moved"]], number)


@claim("16.4", "fig16", "Storm (with a restart) has a response time of at least 5,000 ms even with the "
       "smallest window.")  # fmt: skip
def restart_takes_seconds(tables: Tables) -> ClaimVerdict:
    """The mean over the time after a restart begins."""
    windows, means = _response(tables, "restart")
    number = f"{means[0]:,.0f} ms with a window of {windows[0]:g} s"
    return of_parts([means[0] >= 5000], number)
