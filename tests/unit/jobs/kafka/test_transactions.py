"""What a restore says about the transactions of a cluster, and how it keeps them short."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lakebackup.errors import EnvironmentProblem
from lakebackup_jobs.kafka.admin.problems import (
    Fenced,
    TransactionTimedOut,
    TransactionTooLong,
    Unanswered,
    transaction_problem,
)
from lakebackup_jobs.kafka.admin.transactions import STATE_TOPIC, Transactions
from lakebackup_jobs.kafka.client.engine import Engine, pieces_of
from lakebackup_jobs.kafka.format.records import KEY_LENGTH, OFFSET, VALUE_LENGTH, WIDTH, Columns
from lakebackup_jobs.kafka.format.schemas import FORMAT_V2


class OneCluster(Transactions):
    """A cluster whose answers a test gives, with `brokers` brokers."""

    def __init__(
        self, *, timeout: str | None = None, state_topic: Any = None, brokers: int = 1, **settings: str
    ) -> None:
        own = {} if timeout is None else {"transaction.timeout.ms": timeout}
        super().__init__({"bootstrap.servers": "127.0.0.1:1", **own})
        self.state_topic, self.broker_count = state_topic, brokers
        self.settings = {
            name.replace("_", "."): SimpleNamespace(value=value) for name, value in settings.items()
        }

    def _state_topic(self) -> Any:  # type: ignore[override]
        return self.state_topic

    def _broker_settings(self) -> Any:
        return self.settings

    def _least_in_sync(self) -> int:
        return 2

    def brokers(self) -> int:
        return self.broker_count


def state_topic(*in_sync: int, replicas: int = 3) -> Any:
    return SimpleNamespace(
        partitions=[
            SimpleNamespace(id=number, isr=range(count), replicas=range(replicas))
            for number, count in enumerate(in_sync)
        ]
    )


def test_a_timeout_above_the_limit_of_the_brokers_is_refused_before_anything_is_written() -> None:
    with pytest.raises(TransactionTooLong, match=r"timeout\.ms is 900000, .* allows 60000") as refused:
        OneCluster(timeout="900000", transaction_max_timeout_ms="60000").require_transactions()
    assert "Set transaction.timeout.ms to 60000 or less" in refused.value.hint
    OneCluster(timeout="60000", transaction_max_timeout_ms="60000").require_transactions()
    OneCluster(timeout="900000").require_transactions()  # this user may not see the brokers' settings


def test_too_few_replicas_in_sync_are_named() -> None:
    OneCluster(state_topic=state_topic(2, 3)).require_transactions()
    OneCluster(state_topic=state_topic(1, 1, replicas=1)).require_transactions()
    with pytest.raises(EnvironmentProblem) as problem:
        OneCluster(state_topic=state_topic(3, 1, 0)).require_transactions()
    assert f"2 of 3 partitions of {STATE_TOPIC} have fewer replicas in sync" in problem.value.message
    assert "The first one is 1, with 1 of 3" in problem.value.message


def test_too_few_brokers_for_the_first_transaction_are_named() -> None:
    """A cluster of three with one broker down is enough: it assigns replicas to that one too."""
    needed = {"transaction_state_log_replication_factor": "3", "transaction_state_log_min_isr": "2"}
    OneCluster(brokers=2, **needed).require_transactions()
    with pytest.raises(EnvironmentProblem, match=r"needs 2 brokers .* and 1 is up"):
        OneCluster(brokers=1, **needed).require_transactions()


@pytest.mark.parametrize("code", [-192, -144, 47, 90])
def test_a_fenced_producer_whose_time_was_up_may_try_again(code: int) -> None:
    error = transaction_problem(code, "aborted", "restore r", age_s=61.0, timeout_s=60.0)
    assert isinstance(error, TransactionTimedOut)
    assert isinstance(error, Unanswered)  # which is tried again from the last commit on
    assert "longer than 60 s (transaction.timeout.ms)" in error.message
    assert "transaction.max.timeout.ms" in error.hint


def test_a_fenced_producer_whose_time_was_not_up_gives_way() -> None:
    assert isinstance(transaction_problem(90, "fenced", "restore r", age_s=3.0, timeout_s=60.0), Fenced)
    error = transaction_problem(29, "denied", "restore r", age_s=99.0, timeout_s=60.0)
    assert not isinstance(error, TransactionTimedOut)


def records(*sizes: int) -> Columns:
    rows = np.zeros((len(sizes), WIDTH), np.int64)
    rows[:, OFFSET] = np.arange(len(sizes))
    rows[:, KEY_LENGTH], rows[:, VALUE_LENGTH] = -1, sizes
    return Columns(np.empty(0, np.uint8), rows, FORMAT_V2)


def test_a_block_is_sent_in_pieces() -> None:
    def offsets(size: int) -> list[list[int]]:
        return [piece.rows[:, OFFSET].tolist() for piece in pieces_of(records(4, 4, 4, 50, 4), size)]

    assert offsets(1_000) == [[0, 1, 2, 3, 4]]
    assert [len(piece) for piece in offsets(1)] == [1, 1, 1, 1, 1]
    assert [offset for piece in offsets(10) for offset in piece] == [0, 1, 2, 3, 4]
    assert len(offsets(10)) > 2
    assert [len(piece.rows) for piece in pieces_of(records(), 10)] == [0]


def test_a_producer_queues_only_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = object.__new__(Engine)
    engine._handle, engine._queue_bytes, engine._failure = 0, 100, None
    engine._unconfirmed = deque([(10, 50), (10, 40)])
    unconfirmed = iter([20, 20, 9, 0])
    library: Any = SimpleNamespace(rd_kafka_outq_len=lambda _: next(unconfirmed))
    engine._library = library
    engine._wait = lambda: None
    monkeypatch.setattr(engine, "_poll_events", lambda *_: None)
    monkeypatch.setattr(engine, "_require_progress", lambda *_: None)
    engine._make_room(50, "t[0]")
    assert list(engine._unconfirmed) == [(10, 40)]  # it waited for the first ten
    engine._make_room(1_000, "t[0]")  # larger than the queue: it waits until nothing is queued
    assert not engine._unconfirmed
