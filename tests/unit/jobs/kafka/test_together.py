"""Requests of several threads that go to the brokers together."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from lakebackup_jobs.kafka.admin.together import Together


def answered(value: object) -> Future[Any]:
    future = Future[Any]()
    future.set_result(value)
    return future


def test_values_that_come_during_a_request_go_into_the_next_one() -> None:
    batches: list[Mapping[str, int]] = []
    first_sent, answer = Event(), Future[Any]()

    def send(values: Mapping[str, int]) -> dict[str, Future[Any]]:
        batches.append(values)
        if len(batches) == 1:
            first_sent.set()
            return {"a": answer}
        return {key: answered(value) for key, value in values.items()}

    together = Together(send)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(together.request, "a", 1)
        first_sent.wait(10)
        later_calls = [
            pool.submit(together.request, key, value) for key, value in (("b", 2), ("c", 3), ("b", 4))
        ]
        while len(together._entries) < len(later_calls):
            assert not later_calls[0].done()
        answer.set_result(1)
        assert [future.result(10).result(10) for future in (first, *later_calls)] == [1, 2, 3, 4]
    # A key that came twice is sent twice.
    assert sorted(map(sorted, batches)) == [["a"], ["b"], ["b", "c"]]


def test_an_error_while_sending_reaches_every_thread() -> None:
    def send(_: Mapping[str, int]) -> dict[str, Future[Any]]:
        raise RuntimeError("no memory")

    together = Together(send)
    with ThreadPoolExecutor(3) as pool:
        for future in [pool.submit(together.request, str(number), number) for number in range(9)]:
            with pytest.raises(RuntimeError, match="no memory"):
                future.result(10)
