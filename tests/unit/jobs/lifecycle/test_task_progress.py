"""What tasks report to the driver while they run."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from lakebackup.storage import open_storage
from lakebackup_jobs.kafka.client import librdkafka
from lakebackup_jobs.lifecycle.tasks import progress
from lakebackup_jobs.lifecycle.tasks.progress import TaskProgress

if TYPE_CHECKING:
    from pathlib import Path


def test_a_delay_of_a_task_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.01)
    librdkafka._record_throttle(1, b"broker", 1, 5_000, 0)
    delays: list[str] = []
    reported = threading.Event()
    counts: list[tuple[int, int]] = []

    def delayed(text: str) -> None:
        delays.append(text)
        reported.set()

    def update(records: int, size: int) -> None:
        counts.append((records, size))

    reports = TaskProgress(open_storage(str(tmp_path)), "job/")
    with reports.watched(update, delayed):
        count = reports.counter("0")
        deadline = time.monotonic() + 30
        while not reported.is_set() or len(counts) < 5:
            assert time.monotonic() < deadline
            count(1, 10)
    assert len(delays) == 1
    assert "the brokers throttle this client" in delays[0]
    assert counts[-1][1] == 10 * counts[-1][0]


def test_a_throttled_client_is_given_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(librdkafka, "_delays", {})
    librdkafka._record_throttle(2, b"broker", 1, 60_000, 0)
    moved = time.monotonic()
    assert moved + 50 < librdkafka.silent_since(2, moved) < moved + 60
    assert librdkafka.silent_since(3, moved) == moved
    librdkafka._record_throttle(2, b"broker", 1, 10**9, 0)
    assert librdkafka.silent_since(2, moved) == moved + librdkafka.THROTTLED_S
    assert len(librdkafka.delays()) == 1
