"""The library that is loaded is the one that was written for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka
import numba
import pytest
from numba.core import event

from lakebackup.errors import EnvironmentProblem, UsageProblem
from lakebackup_jobs.kafka.admin.problems import Purged, problem, stalled
from lakebackup_jobs.kafka.client import library
from lakebackup_jobs.kafka.client.plain import encode_record
from lakebackup_jobs.kafka.format.records import FORMAT_V2, decode_block, filter_block

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[4]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    library.why_not.cache_clear()
    yield
    library.why_not.cache_clear()


def test_it_is_the_very_library_of_the_client() -> None:
    assert library.load().rd_kafka_version() == confluent_kafka.libversion()[1]
    library.check()


def test_the_setting_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(library.PATH_SETTING, "plain")
    assert not library.available()
    assert "plain" in (library.why_not() or "")
    library.why_not.cache_clear()
    monkeypatch.setenv(library.PATH_SETTING, "fast")
    with pytest.raises(UsageProblem, match="native or plain"):
        library.available()


def test_another_layout_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(library.MESSAGE_LAYOUT, "key", 48)
    with pytest.raises(EnvironmentProblem, match="laid out otherwise"):
        library.check()


def test_a_missing_library_means_the_plain_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "find", lambda: None)
    library.load.cache_clear()
    try:
        assert "without its own librdkafka" in (library.why_not() or "")
    finally:
        library.load.cache_clear()


def test_settings_that_are_wrong_are_named_without_their_secrets() -> None:
    with pytest.raises(UsageProblem, match=r"no\.such\.setting"):
        library.new_client(library.CONSUMER, {"no.such.setting": "1"}, hard={})
    config = {"sasl.password": "hunter2", "ssl.key.pem": "hunter2", "security.protocol": "ssl"}
    with pytest.raises(UsageProblem) as caught:
        library.new_client(library.CONSUMER, config, hard={})
    assert "hunter2" not in str(caught.value)


def test_codes_become_errors_that_say_what_to_do() -> None:
    assert isinstance(problem(1, "Offset out of range", "t[0]"), Purged)
    assert "sasl" in str(problem(-169, "Authentication failed", "t[0]"))
    assert "-195" not in str(stalled(60, None, "t[0]"))
    assert "last word: down" in str(stalled(60, (-195, "down"), "t[0]"))
    assert "sasl" in str(stalled(60, (-169, "no"), "t[0]"))


def compiled() -> tuple[int, int]:
    """What using our compiled functions makes numba compile here, and what a function of no cache does."""
    data = encode_record(b"\2t\0", 1, 2, 1, b"k", b"v", [("h", None)])
    with event.install_recorder("numba:compile") as ours:
        filter_block(decode_block(data, 1, FORMAT_V2), None, None)
    with event.install_recorder("numba:compile") as other:
        numba.njit(lambda x: x)(1)
    return len(ours.buffer), len(other.buffer)


def test_a_second_process_compiles_nothing() -> None:
    compiled()
    code = "from tests.unit.jobs.kafka.test_kafka_library import compiled; print(*compiled())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    ours, other = map(int, done.stdout.split())
    assert (ours, other > 0) == (0, True)
