"""The protocol under 150 seeds with all faults, on three sizes of cluster; 500 in the long tier."""

import pytest

from meander.testing.campaign import MUST_HAPPEN, MUST_NOT_HAPPEN, Scope, run_seeds
from meander.testing.cluster import Cluster
from meander.testing.faults import Incident, Schedule

SMALL, LARGE, CROWDED = Scope(4, 16), Scope(8, 64), Scope(3, 4)
BATCH = 25
BATCHES = [
    *((SMALL, first) for first in range(0, 350, BATCH)),
    *((LARGE, first) for first in range(350, 425, BATCH)),
    *((CROWDED, first) for first in range(425, 500, BATCH)),
]


QUICK = {(SMALL, 0), (SMALL, 25), (SMALL, 50), (SMALL, 75), (LARGE, 350), (CROWDED, 425)}


@pytest.mark.parametrize(
    ("scope", "first"),
    [b if b in QUICK else pytest.param(*b, marks=pytest.mark.slow) for b in BATCHES],
    ids=lambda x: getattr(x, "nodes", x),
)
def test_nothing_is_lost_doubled_reordered_or_stuck(scope, first):
    counts, failures = run_seeds(first, BATCH, scope)
    broken = [(f.schedule.seed, f.violations[0]) for f in failures]
    assert broken == []
    assert [name for name in MUST_NOT_HAPPEN["protocol"] if counts[name]] == []
    assert counts["schedules"] == BATCH
    assert counts["rescales"] > BATCH


def test_an_abort_leaves_tasks_with_those_who_stand_in():
    """1. a rescale waits for a node that never comes  2. n3 is lost, n2 stands in  3. it is aborted:
    all stays where it is  4. resumed, n3 has tasks again (seed 1100005562)."""
    incidents = (
        Incident(0.355, "query", 808, 903, 0.218, 0.09),
        Incident(1.121, "vacate", 531, 819, 0.517),
        Incident(1.205, "launch", 896, 691, 2.887, 0.237),
        Incident(1.439, "rescale", 3),
        Incident(2.0, "reset", 45, 829, 2.763, 0.109),
        Incident(2.657, "abort"),
    )
    for more, idle in ((), True), ((Incident(3.2, "resume"),), False):
        cluster = Cluster(Schedule(1100005562, 3, 8, 2.0, incidents + more))
        cluster.run()
        assert cluster.checkers.final() == 0
        assert cluster.checkers.violations == []
        assert (not cluster.master.ledger.tasks_of("n3")) is idle


@pytest.mark.parametrize("seed", [1100073123, 1100076350])
def test_what_checkers_took_for_broken_is_sound(seed):
    """1. n1, which has its tasks back, is emptied by a rescale, and the next one is aborted  2. five
    manifests follow closely on the last that names a file."""
    assert run_seeds(seed, 1, Scope(3, 8, seconds=2.0))[1] == []


def test_a_hundred_seeds_try_everything():
    counts, failures = run_seeds(10_000, 100, Scope(4, 8, seconds=6.0))
    assert failures == []
    assert [name for name in MUST_HAPPEN["protocol"] if not counts[name]] == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_a_cluster_of_twenty_nodes_under_all_faults(first):
    _, failures = run_seeds(first, 20, Scope(20, 200))
    assert [(f.schedule.seed, f.violations[0]) for f in failures] == []
