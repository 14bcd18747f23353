"""What a rescale costs grows as it should."""

from meander.protocol.messages import MASTER
from meander.testing.cluster import Cluster
from meander.testing.faults import Schedule
from meander.testing.scale import Stone, measure
from meander.testing.trial import OperatorTrial


def test_the_table_grows_with_the_nodes_and_not_with_the_tasks():
    small, more_tasks, more_nodes = measure(8, 64, 9), measure(8, 1024, 9), measure(32, 1024, 36)
    assert more_tasks.moved > 4 * small.moved
    assert more_tasks.table_bytes < 4 * small.table_bytes  # 16 times the tasks: runs, not entries
    assert more_tasks.runs <= 2 * 9
    assert more_nodes.table_bytes > 2 * more_tasks.table_bytes
    assert more_nodes.node_bytes < more_tasks.node_bytes


def test_many_nodes_that_register_at_once_share_a_few_tables():
    trial = OperatorTrial(Stone, 60, {"feeder0": [(0, 0)]})
    cluster = Cluster(Schedule(1, 60, 60, 1.0, ()), trial=trial, servers=4)
    master = cluster.master
    cluster.timeline.run(5.0, lambda: master.started and not master.ledger.chain)
    assert not master.ledger.chain
    assert master.epoch.number < 30  # not one per node
    assert cluster.network.traffic[MASTER].messages < 60 * 60
