"""The librdkafka that is loaded is the one of confluent-kafka; compiled functions come from numba's cache."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import confluent_kafka
import numba
import pytest
from numba.core import event

from lakebackup.errors import EnvironmentProblem, UsageProblem
from lakebackup_jobs.kafka.admin.problems import Purged, problem, stalled
from lakebackup_jobs.kafka.client import librdkafka
from lakebackup_jobs.kafka.client.librdkafka import READING_TUNING, WRITING_TUNING
from lakebackup_jobs.kafka.format.records import decode_block, encode_record

ROOT = Path(__file__).parents[4]


def test_the_library_is_that_of_the_client() -> None:
    assert librdkafka.load().rd_kafka_version() == confluent_kafka.libversion()[1]


def test_a_client_without_its_own_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(librdkafka, "find", lambda: None)
    librdkafka.load.cache_clear()
    try:
        with pytest.raises(EnvironmentProblem, match="without its own librdkafka"):
            librdkafka.load()
    finally:
        librdkafka.load.cache_clear()


def test_queues_of_records_without_values_are_bounded() -> None:
    """librdkafka's limits of bytes leave out what it takes for any record, however small."""
    assert 650 * int(READING_TUNING["queued.min.messages"]) <= 64 << 20
    assert 200 * int(WRITING_TUNING["queue.buffering.max.messages"]) <= 64 << 20


def test_settings_that_are_wrong_are_named_without_their_secrets() -> None:
    with pytest.raises(UsageProblem, match=r"no\.such\.setting"):
        librdkafka.new_client(librdkafka.CONSUMER, {"no.such.setting": "1"}, hard={})
    config = {"sasl.password": "hunter2", "ssl.key.pem": "hunter2", "security.protocol": "ssl"}
    with pytest.raises(UsageProblem) as caught:
        librdkafka.new_client(librdkafka.CONSUMER, config, hard={})
    assert "hunter2" not in str(caught.value)


def test_codes_become_errors_that_say_what_to_do() -> None:
    assert isinstance(problem(1, "Offset out of range", "t[0]"), Purged)
    assert "sasl" in str(problem(-169, "Authentication failed", "t[0]"))
    assert "-195" not in str(stalled(60, None, "t[0]"))
    assert "last word: down" in str(stalled(60, (-195, "down"), "t[0]"))
    assert "sasl" in str(stalled(60, (-169, "no"), "t[0]"))


def compiled() -> tuple[int, int]:
    """How often numba compiles here: for our compiled functions, and for a function without a cache."""
    data = encode_record("t", 0, 1, 2, 1, b"k", b"v", [("h", None)])
    with event.install_recorder("numba:compile") as cached:
        decode_block(data, 1).packed()
    with event.install_recorder("numba:compile") as uncached:
        numba.njit(lambda x: x)(1)
    return len(cached.buffer), len(uncached.buffer)


def test_a_second_process_compiles_nothing() -> None:
    compiled()
    code = "from tests.unit.jobs.kafka.test_kafka_library import compiled; print(*compiled())"
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    cached, uncached = map(int, process.stdout.split())
    assert (cached, uncached > 0) == (0, True)
