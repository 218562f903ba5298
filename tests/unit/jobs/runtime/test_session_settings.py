"""The S3 settings of a Spark session."""

from __future__ import annotations

import pytest

from lakebackup_jobs.runtime import settings
from lakebackup_jobs.runtime.settings import spark_settings


@pytest.fixture(autouse=True)
def without_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "class_path", lambda _: "")


def test_s3_is_set_as_storage_has_it_for_the_jvm_and_for_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    monkeypatch.setenv("LAKEBACKUP_S3__SSE", "aws:kms")
    monkeypatch.setenv("LAKEBACKUP_S3__KMS_KEY_ID", "a-key")
    monkeypatch.setenv("LAKEBACKUP_S3__REQUESTER_PAYS", "true")
    monkeypatch.setenv("LAKEBACKUP_S3__CONNECT_TIMEOUT", "2.5")
    session_settings = spark_settings()
    hadoop = {
        name.removeprefix("spark.hadoop.fs.s3a."): value
        for name, value in session_settings.items()
        if name.startswith("spark.hadoop.fs.s3a.")
    }
    assert hadoop["endpoint"] == "http://127.0.0.1:9"
    assert (hadoop["endpoint.region"], hadoop["path.style.access"]) == ("eu-north-1", "true")
    assert (hadoop["encryption.algorithm"], hadoop["encryption.key"]) == ("SSE-KMS", "a-key")
    assert hadoop["requester.pays.enabled"] == "true"
    assert session_settings["spark.executorEnv.LAKEBACKUP_S3__REQUESTER_PAYS"] == "True"
    assert hadoop["connection.establish.timeout"] == "2500ms"
    assert session_settings["spark.executorEnv.LAKEBACKUP_S3__ENDPOINT"] == "http://127.0.0.1:9"
    assert session_settings["spark.executorEnv.LAKEBACKUP_S3__KMS_KEY_ID"] == "a-key"


@pytest.mark.parametrize("attempts", ["1", "6", "20"])
def test_a_refused_commit_of_spark_ends_before_a_lease_does(
    monkeypatch: pytest.MonkeyPatch, attempts: str
) -> None:
    monkeypatch.setenv("LAKEBACKUP_S3__MAX_ATTEMPTS", attempts)
    monkeypatch.setenv("LAKEBACKUP_S3__READ_TIMEOUT", "60")
    session_settings = spark_settings()
    prefix = "spark.hadoop.fs.s3a"
    for kind in ("retry", "retry.throttle"):
        retries = int(session_settings[f"{prefix}.{kind}.limit"])
        first_interval = int(session_settings[f"{prefix}.{kind}.interval"].removesuffix("ms")) / 1000
        longest = sum(first_interval * 2**number * 1.5 for number in range(1, retries + 1))  # as in Hadoop
        assert longest < 24  # a lease of the catalog lasts 30 s, of which its holder trusts 27
        assert retries == min(int(attempts), 6) - 1
    assert session_settings[f"{prefix}.attempts.maximum"] == "0"
    assert session_settings[f"{prefix}.connection.timeout"] == "15000ms"


def test_workers_get_the_switches_for_servers_without_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    monkeypatch.delenv("AWS_RESPONSE_CHECKSUM_VALIDATION", raising=False)
    session_settings = spark_settings()
    assert session_settings["spark.executorEnv.AWS_REQUEST_CHECKSUM_CALCULATION"] == "when_required"
    assert "spark.executorEnv.AWS_RESPONSE_CHECKSUM_VALIDATION" not in session_settings


def test_no_secret_is_among_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {name: f"secret {name}" for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    assert not [name for name, value in spark_settings().items() if value in secrets.values()]


def test_a_missing_profile_does_not_stop_backups_in_a_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "is-not-there")
    assert "spark.hadoop.fs.s3a.endpoint.region" not in spark_settings()
