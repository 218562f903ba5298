"""Sends the requests of several threads to the brokers together.

Brokers change one topic after another, and each request waits for the controller's log. So a request that
names many topics takes hardly longer than one that names a single topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar

V = TypeVar("V")


class _Entry(NamedTuple, Generic[V]):
    key: str
    value: V
    answer: Future[Future[Any]]


class Together(Generic[V]):
    """Collects values while a request is under way, and sends them in the next one.

    `send` sends a request for values by key, and returns a future of the answer for each key.
    """

    def __init__(self, send: Callable[[Mapping[str, V]], Mapping[str, Future[Any]]]) -> None:
        self._send = send
        self._entries: list[_Entry[V]] = []
        self._entries_lock, self._request_lock = Lock(), Lock()

    def request(self, key: str, value: V) -> Future[Any]:
        """Send a value, with those of other threads; returns a future of its answer."""
        entry = _Entry[V](key, value, Future())
        with self._entries_lock:
            self._entries.append(entry)
        with self._request_lock:
            # Another thread may have sent this value already, with its own.
            while not entry.answer.done():
                self._send_entries()
        return entry.answer.result()

    def _send_entries(self) -> None:
        with self._entries_lock:
            batch = {entry.key: entry for entry in reversed(self._entries)}
            # A key that occurs twice is sent twice, in the order of its values.
            self._entries = [entry for entry in self._entries if batch[entry.key] is not entry]
        try:
            answers = self._send({key: entry.value for key, entry in batch.items()})
        except BaseException as error:
            for entry in batch.values():
                entry.answer.set_exception(error)
            raise
        for key, entry in batch.items():
            entry.answer.set_result(answers[key])
        wait(answers.values())
