"""Claims about Figures 14 and 17, the summary, routing, and ours; see `claims`."""

from __future__ import annotations

from typing import Final

from meander_lab.experiments import thresholds as limit
from meander_lab.experiments.claims_live import by_application, savings
from meander_lab.experiments.claims_planning import (
    NAMES,
    PAPER,
    PROPOSED,
    costs,
    gains,
    mtm_beats_single_step,
    mtm_is_fast,
    saves,
    ssm_is_fast,
)
from meander_lab.experiments.noise import above, compare, text
from meander_lab.experiments.tables import TableRows
from meander_lab.experiments.verdicts import (
    Claim,
    ClaimVerdict,
    Part,
    Tables,
    counted,
    entering,
    measured,
    of_parts,
    together,
    trend,
    unforced,
)

CLAIMS: Final[list[Claim]] = []
claim = entering(CLAIMS)
TAU: Final = 0.2
"""The paper's default (its 1.2)."""


# ------------------------------------------------------------------ Section 4.1


@claim("4.1", "routing", "Routing by intervals is faster than by a map from tasks to nodes, since a "
       "few intervals fit into the cache.")  # fmt: skip
def intervals_route_faster(tables: Tables) -> ClaimVerdict:
    """Rows a second, at every size."""
    rows = measured(tables, "routing")
    ratios = [row["ratio"] for row in rows]
    number = f"{min(ratios):.2f} to {max(ratios):.2f} times as many rows a second as by the map"
    return of_parts([ratio > 1 for ratio in ratios], number)


# ------------------------------------------------------------------ Figure 14


def _exact(tables: Tables) -> TableRows:
    """Rows of the pre-computation over all partitions, at a τ that was met."""
    return measured(tables, "fig14").where(
        lambda row: (
            row.get("seconds") is not None
            and row["method"] in ("exact", "spark")
            and row["tau_met"] <= row["tau"] + 1e-9
        )
    )


@claim("14.1", "fig14", "The pre-computation takes much longer than the online choice.")
def precompute_is_longer(tables: Tables) -> ClaimVerdict:
    """All partitions, and an online choice that no migration fell back from."""
    rows = _exact(tables).where(method="exact", fallbacks=0)
    ratios = [1e6 * row["seconds"] / row["online_us"] for row in rows]
    if not ratios:
        raise LookupError("a τ that is met and at which all partitions were listed")
    number = f"{min(ratios):,.0f} to {max(ratios):,.0f} times"
    return of_parts([r > limit.MUCH_LONGER.value for r in ratios], number)


@claim("14.2", "fig14", "The pre-computation takes hundreds of minutes (there on 64 executors).")
def precompute_takes_hours(tables: Tables) -> ClaimVerdict:
    """As many partitions as there, in one process and on Spark."""
    rows = _exact(tables).where(lambda row: row["partitions"] >= limit.PARTITIONS.value)
    if not len(rows):
        raise LookupError(f"{limit.PARTITIONS.value:,.0f} partitions were not listed")
    told = [
        f"{row['seconds']:.3g} s for {row['partitions']:,} partitions "
        + ("in one process" if row["method"] == "exact" else f"on Spark, {row['cores']} cores")
        for row in rows
    ]
    return of_parts([row["seconds"] >= limit.HUNDREDS_S.value for row in rows], "; ".join(told))


@claim(
    "14.3", "fig14", "The reason given for many figures: a larger τ makes a larger search space."
)
def space_grows_with_tau(tables: Tables) -> ClaimVerdict:
    """The number of feasible partitions, at a τ that was met."""
    rows = measured(tables, "fig14").where(
        lambda row: row["tau_met"] <= row["tau"] + 1e-9, weights="recorded"
    )
    _, states = rows.line("tau", "states")
    return counted(states, up=True, digits=2)


@claim(
    "14.4", "fig14", "MTM-aware migration shifts most of the computations to the offline module."
)
def most_is_offline(tables: Tables) -> ClaimVerdict:
    """The pre-computation's share of the time, all online choices that it is made for included."""
    rows = _exact(tables).where(method="exact", fallbacks=0)
    online = [limit.SERVED.value * row["online_us"] / 1e6 for row in rows]
    shares = [row["seconds"] / (row["seconds"] + spent)
              for row, spent in zip(rows, online, strict=True)]  # fmt: skip
    if not shares:
        raise LookupError("a τ that is met and at which all partitions were listed")
    number = (
        f"{100 * min(shares):.2f} to {100 * max(shares):.2f} % of the time, with "
        f"{limit.SERVED.value:g} online choices"
    )
    return of_parts([share > limit.MOST.value for share in shares], number)


# ------------------------------------------------------------------ Figure 17


@claim("17.1", "fig17", "With γ = 0 MTM-aware migration is single-step migration.")
def gamma_zero_is_single_step(tables: Tables) -> ClaimVerdict:
    """Every migration costs the same."""
    rows, parts, told = measured(tables, "fig17"), list[Part](), []
    for application in rows.names("application"):
        some = rows.where(application=application, gamma=0.0)
        ssm, ahead = costs(some, method="ssm"), costs(some, method=PAPER)
        parts.append(ssm == ahead)
        means = [compare(lambda x: x, one).mean for one in (ahead, ssm)]
        told.append(f"{application}: {means[0]:.3f} % and {means[1]:.3f} %")
    return of_parts(parts, "; ".join(told))


@claim("17.2", "fig17", "The cost of MTM-aware migration falls as γ grows.")
def cost_falls_with_gamma(tables: Tables) -> ClaimVerdict:
    """Both applications."""
    rows = measured(tables, "fig17").where(method=PAPER)
    return together({
        a: trend([(costs(rows, application=a, gamma=g),)
                  for g in rows.where(application=a).values("gamma")], up=False)
        for a in rows.names("application")
    })  # fmt: skip


@claim("17.3", "fig17", "The pre-computation takes longer as γ grows.")
def precompute_grows_with_gamma(tables: Tables) -> ClaimVerdict:
    """Sweeps of the paper's iteration, counted; those of ours beside them."""
    rows, found = measured(tables, "fig17").where(method="PMC"), {}
    for application in rows.names("application"):
        some = rows.where(application=application)
        theirs = counted(some.line("gamma", "sweeps_plain")[1], up=True)
        ours = " → ".join(f"{n:g}" for n in some.line("gamma", "sweeps")[1])
        found[application] = ClaimVerdict(theirs.status, f"{theirs.number} sweeps (ours {ours})")
    return together(found)


@claim("17.4", "fig17", "So γ trades migration cost for pre-computation.")
def gamma_trades(tables: Tables) -> ClaimVerdict:
    """Both of the two before."""
    both = {"cost": cost_falls_with_gamma(tables), "sweeps": precompute_grows_with_gamma(tables)}
    return together({k: ClaimVerdict(v.status, v.status) for k, v in both.items()})


# ------------------------------------------------------------------ the summary of Section 6


@claim("6.1", "fig12", "The proposed methods save a significant share of the transmissions of "
       "consistent hashing and of Storm's scheduler.")  # fmt: skip
def proposed_save(tables: Tables) -> ClaimVerdict:
    """At the paper's default, τ = 0.2."""
    rows, remark = unforced(measured(tables, "fig12"), "tau")
    parts, told = list[Part](), []
    for application in rows.names("application"):
        for ours in PROPOSED:
            for other in ("consistent-hash", "storm"):
                some = rows.where(application=application, tau=TAU)
                pair = costs(some, method=other), costs(some, method=ours)
                saved = compare(lambda a, b: 1 - b / a, *pair)
                least = limit.SIGNIFICANT.value
                parts.append(above(saved.less(least)))
                told.append(f"{application}, {NAMES[ours]} of {other}: {text(saved, 0, 100)} %")
    return of_parts(parts, "; ".join(told) + remark)


@claim("6.2", "fig13", "Both proposed methods compute their assignment with a small overhead.")
def overhead_is_small(tables: Tables) -> ClaimVerdict:
    """As 13.2 and 13.3."""
    return together({"single-step": ssm_is_fast(tables), "MTM-aware": mtm_is_fast(tables)})


@claim("6.3", "fig11", "The migration process achieves dramatic savings in response time.")
def savings_in_time(tables: Tables) -> ClaimVerdict:
    """A restart over a live migration, as means over a minute."""
    return savings(by_application(tables), holds=limit.DRAMATIC.value, part=1.0)


@claim(
    "6.4", "fig14", "MTM-aware migration is of higher quality, at the cost of a pre-computation."
)
def quality_at_a_cost(tables: Tables) -> ClaimVerdict:
    """As 12.3 and 14.1."""
    both = {"quality": mtm_beats_single_step(tables), "cost": precompute_is_longer(tables)}
    return together({k: ClaimVerdict(v.status, v.status) for k, v in both.items()})


@claim("6.5", "fig17", "γ controls the trade-off between quality and cost.")
def gamma_controls(tables: Tables) -> ClaimVerdict:
    """As 17.4."""
    return gamma_trades(tables)


# ------------------------------------------------------------------ ours


@claim("O.1", "fig12", "Our policy `ahead` costs less than single-step, at every τ.")
def ahead_beats_single_step(tables: Tables) -> ClaimVerdict:
    """It learns from the trace alone."""
    return saves(tables, "ahead")


@claim(
    "O.2",
    "fig12",
    "Our policy `ahead` costs less than the paper's MTM-aware migration, at every τ.",
)
def ahead_beats_mtm(tables: Tables) -> ClaimVerdict:
    """The same migrations."""
    return saves(tables, "ahead", PAPER)


@claim(
    "O.3",
    "fig12",
    "A forecast that must first win a trial (`mtm`) never costs more than single-step.",
)
def trial_protects(tables: Tables) -> ClaimVerdict:
    """No τ at which it surely does; the paper's forecast has no such guard."""
    rows, remark = unforced(measured(tables, "fig12"), "tau")
    parts, told = list[Part](), []
    for application in rows.names("application"):
        found = gains(rows, application, "mtm:n")
        parts += [None if gain.high is None else gain.high >= 0 for gain in found.values()]
        worst = min(found.values(), key=lambda gain: gain.mean)
        told.append(f"{application}: worst {text(worst, scale=100)} %")
    return of_parts(parts, "; ".join(told) + remark)


@claim("O.4", "fig13", "Our single-step algorithm is faster than the paper's, with the same cost.")
def ours_is_faster(tables: Tables) -> ClaimVerdict:
    """Medians, at every τ; costs as Figure 15 has them."""
    rows = measured(tables, "fig13")
    ratios = [
        rows.where(method="ssm-paper", application=a, tau=tau).mean("plan_us")
        / rows.where(method="ssm", application=a, tau=tau).mean("plan_us")
        for a in rows.names("application")
        for tau in rows.where(application=a, method="ssm-paper").values("tau")
    ]
    sizes = measured(tables, "fig15").where(lambda row: row.get("costs") is not None, span=0)
    same = [
        abs(row["cost_pct"] - sizes.where(
            method="ssm", application=row["application"], tasks=row["tasks"]
        ).mean("cost_pct")) < 1e-6
        for row in sizes.where(lambda row: not row.get("relaxed"), method="ssm-paper")
    ]  # fmt: skip
    equal = "equal" if all(same) else "not always equal"
    number = f"{min(ratios):.1f} to {max(ratios):.1f} times as fast; costs {equal}"
    return of_parts([*(ratio > 1 for ratio in ratios), *same], number)
