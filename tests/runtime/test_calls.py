"""What a user calls: rescale, metrics and feeders say at once what is wrong, and tell the truth."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from runtime_kit import WORDS, Stream, counted, doomed, pid_of, until

from meander.errors import DeployError, FeederError, InputError
from meander.operators import WordCount
from meander.runtime.clients import gathering
from meander.runtime.clients.given import conform
from meander.runtime.clients.query import PEERS, client_of, new_attempt
from meander.runtime.clients.reader import Reader
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.driver.local import deploy_local


@pytest.fixture(scope="module")
def calm() -> Iterator[ElasticOperator]:
    """A deployment for tests that change nothing in it but words."""
    own = WarmLauncher()
    with deploy_local(WordCount(), tasks=8, nodes=2, launcher=own) as op:
        yield op
    own.end()


# --------------------------------------------------------------------------- rescale


@pytest.mark.parametrize(
    ("nodes", "limits", "right"),
    [
        (0, {}, "nodes is a whole number from 1 to 8, not 0"),
        (9, {}, "nodes is a whole number from 1 to 8, not 9"),
        (2.5, {}, "nodes is a whole number from 1 to 8, not 2.5"),
        ("3", {}, "nodes is a whole number from 1 to 8, not '3'"),
        (True, {}, "nodes is a whole number from 1 to 8, not True"),
        (2, {"pause_ms": -5}, "pause_ms is a number of milliseconds, or 0 .* not -5"),
        (2, {"pause_ms": float("nan")}, "pause_ms is a number of milliseconds, or 0 .* not nan"),
        (2, {"pause_ms": "100"}, "pause_ms is a number of milliseconds, or 0 .* not '100'"),
        (2, {"tasks_max": 0}, "tasks_max is a whole number from 1 to 8, not 0"),
        (2, {"bytes_max": 1.5}, "bytes_max is a whole number from 1 on, not 1.5"),
    ],
)
def test_a_rescale_that_cannot_be_is_one_line(
    calm: ElasticOperator, nodes: Any, limits: dict[str, Any], right: str
) -> None:
    with pytest.raises(InputError, match=right) as caught:
        calm.rescale(nodes, **limits)
    assert "\n" not in str(caught.value)
    assert calm.driver.rescales._known == {}


def test_a_preview_is_checked_like_a_rescale(calm: ElasticOperator) -> None:
    with pytest.raises(InputError, match="nodes is a whole number"):
        calm.plan(2.5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="pause_ms is a number"):
        calm.plan(2, pause_ms=-1)


@pytest.mark.parametrize(
    ("call", "wrong"),
    [
        (lambda op: op.autoscale("2:4"), "autoscale is an Autoscale, or None, not '2:4'"),
        (lambda op: op.feeder(5), "a feeder cannot be called 5"),
        (lambda op: op.source("s", "file.csv"), "a source is .* not 'file.csv'"),
        (lambda op: op.sink("s", "file.csv"), "a sink is .* not 'file.csv'"),
        (lambda op: op.trace_rescales("all"), "a provider is a TracerProvider .* not 'all'"),
    ],
)
def test_what_a_call_cannot_take_is_one_line(
    calm: ElasticOperator, call: Callable[[ElasticOperator], Any], wrong: str
) -> None:
    with pytest.raises(InputError, match=wrong):
        call(calm)


def test_no_pause_budget_moves_everything_at_once(launcher: WarmLauncher) -> None:
    """And a rescale that was refused leaves nothing behind that the next one is taken for."""
    with deploy_local(WordCount(), tasks=8, nodes=1, launcher=launcher) as op:
        with pytest.raises(InputError):
            op.rescale(2, pause_ms=-1)
        assert len(op.rescale(2, pause_ms=0).wait(60).rounds) == 1
        assert op.plan(1, pause_ms=0).too_large == ()
        assert op.rescale(1).wait(60).nodes == 1


def test_a_rescale_asks_no_node_anything(
    launcher: WarmLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes that are overloaded answer late, and that is when more of them are wanted."""
    with deploy_local(WordCount(), tasks=8, nodes=1, launcher=launcher) as op:
        with monkeypatch.context() as patch:
            patch.setattr(Reader, "ask", lambda *_, **__: pytest.fail("a node was asked"))
            handle = op.rescale(2)
        assert handle.wait(60).nodes == 2


# --------------------------------------------------------------------------- metrics


def test_totals_survive_rescales_and_are_plain_values(launcher: WarmLauncher) -> None:
    stream = Stream(11)
    with deploy_local(WordCount(), tasks=16, nodes=3, launcher=launcher) as op:
        with op.feeder("words") as feeder:
            for nodes in (1, 2, 1):
                for batch in stream.batches(20):
                    feeder.feed(batch)
                feeder.flush()
                op.rescale(nodes).wait(60)
        fed = sum(stream.counts.values())
        until(lambda: op.metrics()["rows"] == fed)  # the last words of a node come when it ends
        until(lambda: op.metrics()["latency"]["count"] == fed)
        metrics = op.metrics()
        assert metrics["staged_rows"] == 0
        assert set(metrics["nodes"]) == set(op.driver.nodes())
        assert set(metrics["latency"]) >= {"count", "mean_ms", "p50_ms", "p99_ms", "max_ms"}
        assert json.loads(json.dumps(metrics))["rows"] == fed
        assert "object at" not in str(metrics)


def test_totals_survive_the_loss_of_a_node(launcher: WarmLauncher) -> None:
    stream = Stream(12)
    with doomed(deploy_local(WordCount(), tasks=8, nodes=2, launcher=launcher)) as op:
        feeder = op.feeder("words")
        for batch in stream.batches(20):
            feeder.feed(batch)
        feeder.flush()
        fed = sum(stream.counts.values())
        until(lambda: op.driver.totals.total()["rows"] == fed)  # by beats alone
        os.kill(pid_of(op, "n1"), signal.SIGKILL)
        until(lambda: op.driver.lost_tasks)
        until(lambda: [e for e in op.driver.exits if e.name == "n1"])
        assert repr(op.metrics()["rows"]) == str(fed)
        feeder.abandon()


# --------------------------------------------------------------------------- feeders


def test_a_refusal_of_another_than_the_master_does_not_end_a_feeder(calm: ElasticOperator) -> None:
    with calm.feeder("refused") as feeder:
        feeder.wait_ready()
        feeder.transport.refusals["127.0.0.1:1"] = "refused: this is run another"
        feeder.feed(Stream(13).batch())
        feeder.flush()
    master = calm.feeder("refused by the master")
    master.transport.refusals[calm.address] = "refused: the token"
    with pytest.raises(FeederError, match="refused: the token"):
        master.wait_ready()
    master.abandon()


def test_an_offset_that_was_fed_raises_and_one_of_a_former_life_is_skipped(
    launcher: WarmLauncher,
) -> None:
    first, second, third = (pa.record_batch({"word": [word]}) for word in "abc")
    with deploy_local(WordCount(), tasks=4, nodes=1, launcher=launcher) as op:
        with op.feeder("words") as feeder:
            feeder.feed(first, offset=5)
            for wait in (lambda: None, feeder.flush):  # whatever the threads have done meanwhile
                wait()
                with pytest.raises(InputError, match="offset 5 was fed before"):
                    feeder.feed(second, offset=5)
                with pytest.raises(InputError, match="offset 4 was fed before"):
                    feeder.feed(second, offset=4)
        with op.feeder("words") as feeder:
            assert feeder.wait_ready() == 5
            feeder.feed(second, offset=5)
            feeder.feed(third, offset=6)
            feeder.feed(second, offset=5)
            with pytest.raises(InputError, match="offset 6 was fed before"):
                feeder.feed(second, offset=6)
        assert counted(op) == {"a": 1, "c": 1}


def test_rows_too_many_for_one_batch_are_refused_whole(
    calm: ElasticOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"word": pa.chunked_array([["one"] * 100, ["two"] * 100])})
    assert conform(table, WORDS).num_rows == 200
    monkeypatch.setattr(gathering, "BATCH_BYTES_MAX", 1000)
    with calm.feeder("much") as feeder:
        with pytest.raises(InputError, match="at most 1,000 bytes can be fed at once, not 1,"):
            feeder.feed(table)
        for batch in table.slice(0, 120).to_batches():
            feeder.feed(batch)
        assert feeder.rows == 120


def test_rows_that_cannot_be_sent_end_their_feeder(
    calm: ElasticOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever cuts them, the caller hears of it: what was taken is never left out in silence."""

    def broken(*_: object, **__: object) -> None:
        raise OverflowError("too large")

    for linger_ms in (300.0, 60_000.0):  # cut by the lingering thread, and by the caller's
        feeder = calm.feeder("broken", linger_ms=linger_ms)
        feeder.feed([{"word": "a"}])  # leaves at once; what follows waits for others
        with monkeypatch.context() as patch:
            patch.setattr(gathering, "offer_of", broken)
            feeder.feed([{"word": "b"}])
            if linger_ms == 300.0:
                until(lambda feeder=feeder: feeder.failure)
            for _ in range(2):
                with pytest.raises(FeederError, match="broken: OverflowError: too large"):
                    feeder.flush()
        feeder.abandon()


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"word": ["b", "a"]}),
        pa.record_batch({"more": [1, 2], "word": ["b", "a"]}),
        pd.DataFrame({"word": ["b", "a"], "n": [1, 2]}, index=[7, 8]),
        [{"word": "b"}, {"word": "a", "n": 1}],
    ],
)
def test_rows_may_be_arrow_pandas_or_dicts(rows: Any) -> None:
    assert conform(rows, WORDS).to_pydict() == {"word": ["b", "a"]}


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        ("b a", "rows are a pyarrow table .* list of dicts, not str"),
        (7, "rows are a pyarrow table .* list of dicts, not int"),
        (["b", "a"], "rows are a pyarrow table .* list of dicts, not a list with str"),
        ([{"wort": "b"}], "the rows have no column 'word': they have"),
        ([{"word": "b"}, {"word": 7}], "rows do not fit"),
        (pd.DataFrame({"wort": ["b"]}), "the rows have no column 'word': they have"),
    ],
)
def test_rows_that_are_none_are_one_line(rows: Any, wrong: str) -> None:
    with pytest.raises(InputError, match=wrong) as caught:
        conform(rows, WORDS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("rows", [1, 5000])
def test_text_that_nodes_would_not_believe_is_refused_and_nothing_waits_for_it(
    calm: ElasticOperator, rows: int
) -> None:
    """Nodes dropped the message that it came in, and it was sent again for ever."""
    text = pa.array([b"ok"] * rows + [b"a\xffb"])
    wrong = pa.record_batch({"word": pa.Array.from_buffers(pa.string(), rows + 1, text.buffers())})
    refused = "column 'word': Invalid UTF8 sequence"
    with calm.feeder("text") as feeder:
        with pytest.raises(InputError, match=refused):
            feeder.feed(wrong)
        feeder.feed(wrong.slice(0, rows))
        feeder.flush()
        assert feeder.rows == rows
    issued = calm.driver.issue(PEERS)
    with client_of(calm.address, issued) as client, pytest.raises(InputError, match=refused):
        client.write("text", 0, 0, new_attempt(), [wrong])


def test_an_empty_list_has_no_rows() -> None:
    assert conform([], WORDS).num_rows == 0


def test_rows_without_a_key_are_refused_kept_or_dropped(launcher: WarmLauncher) -> None:
    rows = [{"word": "a"}, {"word": None}]
    with deploy_local(WordCount(), tasks=4, nodes=1, launcher=launcher) as op:
        with pytest.raises(InputError, match="null_keys is one of refuse, keep, drop, not 'no'"):
            op.feeder("f", null_keys="no")
        feeder = op.feeder("f")
        with pytest.raises(InputError, match=r"1 of 2 rows .* key column 'word'.*null_keys"):
            feeder.feed(rows)
        feeder.close()
        with op.feeder("f", null_keys="drop") as feeder:
            feeder.feed(rows)
        assert counted(op) == {"a": 1}
        with op.feeder("f", null_keys="keep") as feeder:
            feeder.feed(rows)
        assert counted(op) == {"a": 2, None: 1}


def test_a_name_belongs_to_one_open_feeder(calm: ElasticOperator) -> None:
    with calm.feeder("twice") as feeder:
        began = time.monotonic()
        with pytest.raises(InputError, match="there is an open feeder 'twice': close it"):
            calm.feeder("twice")
        assert time.monotonic() - began < 5.0
        feeder.feed(Stream(14).batch())
    calm.feeder("twice").abandon()
    with calm.feeder("twice"):
        pass


def test_a_feeder_hears_at_once_that_another_took_its_place(
    calm: ElasticOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in another process, say: the master knows of two, and the later one counts."""
    first = calm.feeder("place")
    first.wait_ready()
    monkeypatch.setattr(calm, "_check_name", lambda _: None)
    second = calm.feeder("place")
    second.wait_ready()
    lease_s = calm.driver.settings.lease_s
    assert first.shell.ended.wait(lease_s)  # without a word it goes on for twice that
    with pytest.raises(FeederError, match="another feeder 'place' took its place"):
        first.feed([{"word": "a"}])
    first.abandon()
    second.close()


def test_nothing_can_be_called_after_the_stop(launcher: WarmLauncher) -> None:
    with deploy_local(WordCount(), tasks=4, nodes=1, launcher=launcher) as op:
        feeder = op.feeder("words")
        feeder.wait_ready()
    with pytest.raises(DeployError, match="was stopped: deploy it again"):
        op.feeder("late")
    with pytest.raises(DeployError, match="was stopped: deploy it again"):
        op.rescale(2)
    with pytest.raises(DeployError, match="was stopped: deploy it again"):
        op.status()
    with pytest.raises(DeployError, match="was stopped: deploy it again"):
        op.metrics()
    with pytest.raises(DeployError, match="was stopped: deploy it again"):
        feeder.feed([{"word": "late"}])


@pytest.mark.parametrize("wrong", [WordCount, "WordCount", None])
def test_a_deployment_wants_an_operator_and_not_its_class(wrong: Any) -> None:
    with pytest.raises(InputError, match=r"an operator is an instance .* not "):
        deploy_local(wrong)


@pytest.mark.parametrize(("tasks", "nodes"), [(8, "2"), (8, 2.5), ("8", 2), (0, 1), (8, 9)])
def test_a_deployment_wants_whole_numbers(tasks: Any, nodes: Any) -> None:
    with pytest.raises(InputError, match=r"(nodes|tasks) is a whole number from 1"):
        deploy_local(WordCount(), tasks=tasks, nodes=nodes)
