"""The migration transition matrix: labels, counts, smoothing, and what it says about sequences."""

import json

import numpy as np
import pytest

from meander.errors import InputError
from meander.planning.ahead.mtm import Label, Mtm, label_trace, mtm_from_trace, sequence_probability

TABLE4 = Mtm.from_matrix([2, 3, 4], [[0.3, 0.6, 0.1], [0.3, 0.4, 0.3], [0.1, 0.5, 0.4]])
TRACE = [8, 9, 9, 11, 10, 8, 8, 9, 11, 8]


def test_the_sequence_of_table_4_has_probability_0_18():
    assert sequence_probability(TABLE4, [2, 3, 4]) == pytest.approx(0.18)
    assert sequence_probability(TABLE4, [2]) == 1.0
    assert sequence_probability(TABLE4, ["2", Label(3), 4]) == pytest.approx(0.18)


def test_a_sequence_through_an_unknown_label_is_impossible():
    assert sequence_probability(TABLE4, [2, 7, 2]) == 0.0


def test_slots_without_a_change_are_no_migrations():
    assert [x.nodes for x in label_trace(TRACE)] == [8, 9, 11, 10, 8, 9, 11, 8]
    assert len(label_trace(TRACE, self_transitions=True)) == len(TRACE)


def test_rows_add_up_to_one_for_every_kind_of_label_and_every_alpha():
    hours = list(range(len(TRACE)))
    for kind in ("n", "direction", "slot"):
        for alpha in (0.0, 0.5):
            for stay in (False, True):
                mtm = mtm_from_trace(TRACE, kind, hours=hours, alpha=alpha, self_transitions=stay)
                assert np.allclose(mtm.matrix.sum(axis=1), 1.0)


def test_alpha_reaches_possible_transitions_only():
    mtm = mtm_from_trace(TRACE, "direction", alpha=0.1)
    index = {str(label): i for i, label in enumerate(mtm.labels)}
    assert mtm.matrix[index["9:up"], index["8:down"]] > 0  # never seen, but possible
    assert mtm.matrix[index["9:up"], index["10:down"]] == 0  # up cannot be called down
    assert mtm.matrix[index["9:up"], index["9:up"]] == 0  # no self-transitions asked for


def test_a_label_that_was_never_left_borrows_from_its_kin_and_is_listed():
    mtm = mtm_from_trace([8, 9, 8, 10], "n")
    assert mtm.unseen == (Label(10),)
    assert mtm.matrix[2].sum() == pytest.approx(1.0)


def test_slots_of_the_day_name_their_hours():
    labels = label_trace([8, 9, 10], "slot", hours=[0, 7, 23], slot_hours=3)
    assert [str(x) for x in labels] == ["8:00-03", "9:06-09", "10:21-24"]


def test_an_unknown_label_is_read_as_the_nearest_and_said_so():
    mtm = mtm_from_trace(TRACE, "direction")
    at, note = mtm.resolve(Label(12, "up"))
    assert str(mtm.labels[at]) == "11:up"
    assert "12:up" in note
    assert mtm.resolve(mtm.labels[0]) == (0, "")


def test_json_brings_everything_back():
    mtm = mtm_from_trace(TRACE, "slot", hours=list(range(10)), alpha=0.25, slot_hours=6)
    back = Mtm.from_json(json.loads(json.dumps(mtm.to_json())))
    assert back.to_json() == mtm.to_json()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: mtm_from_trace([8, 8, 8]), "no migration"),
        (lambda: mtm_from_trace([8, 9], "phase"), "unknown kind"),
        (lambda: mtm_from_trace([8, 9], "slot"), "hour of the day"),
        (lambda: mtm_from_trace([8, 9], alpha=-1), "alpha"),
        (lambda: mtm_from_trace([8, 0]), "at least one node"),
        (lambda: Mtm.from_matrix([2, 3], [[1, 0], [0.5, 0.4]]), "add up to 1"),
        (lambda: Mtm.from_matrix([2], [[1, 0]]), "square"),
        (lambda: Mtm.from_json({"labels": ["x"], "matrix": [[1]]}), "label"),
        (lambda: Mtm.from_json({}), "not an MTM"),
        (lambda: sequence_probability(TABLE4, []), "at least one"),
    ],
)
def test_wrong_input_is_named(call, says):
    with pytest.raises(InputError, match=says):
        call()
