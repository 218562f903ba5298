"""Settings of object storage, and refusals of servers: accounts, TLS, checksums, encryption, locks."""

from __future__ import annotations

import io
import re
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from botocore.exceptions import ClientError, SSLError
from tests.support.s3 import S3Proxy, SecureS3Proxy, Server, Versity
from tests.support.s3_faults import FaultProxy
from tests.support.s3_storage import LARGE, PART, options

from lakebackup.errors import EnvironmentProblem, NotFound
from lakebackup.storage import AlreadyExists
from lakebackup.storage.options import S3Options
from lakebackup.storage.s3 import S3Storage
from lakebackup.storage.s3_client import client, explained
from lakebackup_jobs.runtime.child import free_port

pytestmark = [pytest.mark.s3, pytest.mark.usefixtures("quick")]
# versitygw is built from source, which takes minutes.
NEEDS_VERSITY = pytest.mark.long


def test_requests_ask_for_encryption(proxy: FaultProxy, bucket: str) -> None:
    settings = options(endpoint=proxy.endpoint, sse="aws:kms", kms_key_id="alias/backups")
    storage = S3Storage(f"s3://{bucket}", settings)
    for send in (lambda: storage.put("a", b"x"), lambda: storage.upload("b", io.BytesIO(LARGE))):
        proxy.requests.clear()
        with pytest.raises(EnvironmentProblem, match=r"Server-side encryption is not supported"):
            send()
        headers = next(headers for method, _, headers in proxy.requests if method in ("PUT", "POST"))
        assert headers["x-amz-server-side-encryption"] == "aws:kms"
        assert headers["x-amz-server-side-encryption-aws-kms-key-id"] == "alias/backups"


def test_every_request_names_the_payer() -> None:
    with FaultProxy(0, rights=frozenset()) as proxy:  # the server behind it would not know the header
        _send_every_request(S3Storage("s3://bucket", options(endpoint=proxy.endpoint, requester_pays=True)))
    assert {method for method, _, _ in proxy.requests} == {"GET", "HEAD", "PUT", "POST", "DELETE"}
    assert {headers["x-amz-request-payer"] for _, _, headers in proxy.requests} == {"requester"}


def _send_every_request(storage: S3Storage) -> None:
    for send in (
        lambda: storage.put("a", b"x"),
        lambda: storage.upload("b", io.BytesIO(LARGE), if_absent=False),
        lambda: storage.get("a"),
        lambda: storage.stat("a"),
        lambda: list(storage.list()),
        lambda: storage.delete("a"),
    ):
        with suppress(EnvironmentProblem):
            send()


def test_uploads_keep_to_the_bandwidth(proxy: FaultProxy, bucket: str) -> None:
    storage = S3Storage(f"s3://{bucket}", options(endpoint=proxy.endpoint, max_bandwidth=2 * PART))
    start = time.monotonic()
    storage.upload("a", io.BytesIO(LARGE))
    storage.put("b", LARGE)
    assert time.monotonic() - start > 0.5  # twice a part at two parts a second, the first bit at once
    assert storage.get("a") == storage.get("b") == LARGE


def test_a_refused_delete_is_reported(storage: S3Storage, proxy: FaultProxy) -> None:
    storage.put("a", b"x")
    proxy.fail("403", "DELETE")
    with pytest.raises(EnvironmentProblem, match=r"Cannot delete a .*AccessDenied[\s\S]*a lock holds"):
        storage.delete("a")
    assert storage.get("a") == b"x"


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "another-secret"}, "SignatureDoesNotMatch.*AWS_SECRET_ACCESS_KEY"),
        ({"AWS_ACCESS_KEY_ID": "nobody"}, "InvalidAccessKeyId.*AWS_PROFILE"),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "no credentials.*AWS_ACCESS_KEY_ID"),
    ],
)
def test_refused_credentials_are_reported(
    bucket: str, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], complaint: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    _assert_all_fail(f"s3://{bucket}/root", options(connect_timeout=11), complaint)


def test_a_missing_bucket_is_reported(s3: S3Proxy) -> None:
    _assert_all_fail(
        "s3://no-such-bucket/root", options(), rf"no bucket no-such-bucket at {s3.endpoint}.*Create"
    )


def test_an_unreachable_server_is_reported(bucket: str) -> None:
    endpoint = f"http://127.0.0.1:{free_port()}"
    unreachable = options(endpoint=endpoint, max_attempts=1)
    _assert_all_fail(
        f"s3://{bucket}", unreachable, rf"{bucket}.*{endpoint}.*Check the network and the endpoint"
    )


def test_an_invalid_region_is_reported(bucket: str) -> None:
    _assert_all_fail(f"s3://{bucket}", options(region="no such"), r"no such")


def _assert_all_fail(uri: str, settings: S3Options, complaint: str) -> None:
    client.cache_clear()
    storage = S3Storage(uri, settings)
    for operation in (
        lambda: storage.put("a", b"", if_absent=True),
        lambda: storage.upload("a", io.BytesIO(LARGE)),
        lambda: storage.get("a"),
        lambda: storage.stat("a"),
        lambda: list(storage.list()),
    ):
        with pytest.raises(EnvironmentProblem) as refused:
            operation()
        assert re.search(complaint, str(refused.value), re.DOTALL), str(refused.value)
        assert "secret-" not in str(refused.value)


def test_tls_needs_a_trusted_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SecureS3Proxy(tmp_path / "secure") as server:
        bucket = server.bucket()
        untrusting = S3Storage(f"s3://{bucket}", options(endpoint=server.endpoint, max_attempts=1))
        with pytest.raises(EnvironmentProblem, match=r"SSL[\s\S]*AWS_CA_BUNDLE"):
            untrusting.put("a", b"x")
        monkeypatch.setenv("AWS_CA_BUNDLE", str(server.certificate))
        # Over TLS the checksum follows the body, and the body is not signed.
        storage = S3Storage(f"s3://{bucket}", options(endpoint=server.endpoint))
        storage.put("a", b"x", if_absent=True)
        storage.upload("b", io.BytesIO(LARGE))
        with pytest.raises(AlreadyExists):
            storage.upload("a", io.BytesIO(b"y"))
        assert (storage.get("a"), storage.get("b")) == (b"x", LARGE)
        paced = S3Storage(f"s3://{bucket}", options(endpoint=server.endpoint, max_bandwidth=4 * PART))
        paced.put("c", LARGE)
        assert storage.get("c") == LARGE


def test_checksums_can_be_switched_off(
    proxy: FaultProxy, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    storage = S3Storage(f"s3://{bucket}", options(endpoint=proxy.endpoint, connect_timeout=12))
    storage.put("a", b"x")
    storage.upload("b", io.BytesIO(LARGE))
    assert storage.get("b") == LARGE
    header_names = [
        name.lower() for method, _, headers in proxy.requests if method != "GET" for name in headers
    ]
    assert "x-amz-content-sha256" in header_names
    assert not [name for name in header_names if "checksum" in name]


def test_data_is_stored_with_an_object_lock(proxy: FaultProxy, bucket: str) -> None:
    settings = options(endpoint=proxy.endpoint, object_lock_mode="COMPLIANCE", object_lock_days=2)
    storage = S3Storage(f"s3://{bucket}", settings)
    for method in ("PUT", "POST"):
        proxy.fail("403", method, times=99)  # S3Proxy has no locks

    def lock_headers(path: str, data: bytes) -> tuple[str | None, str | None]:
        proxy.requests.clear()
        with pytest.raises(EnvironmentProblem, match="AccessDenied"):
            storage.upload(path, io.BytesIO(data))
        headers = next(headers for method, _, headers in proxy.requests if method in ("PUT", "POST"))
        mode, until = "x-amz-object-lock-mode", "x-amz-object-lock-retain-until-date"
        return headers[mode], headers[until]

    for path, data in (("data", b"x"), ("parts", LARGE)):
        mode, until = lock_headers(path, data)
        assert mode == "COMPLIANCE"
        remaining = datetime.fromisoformat(str(until)) - datetime.now(UTC)
        assert 1.9 < remaining.total_seconds() / 86_400 < 2.1
    assert lock_headers("leases/x", b"x") == (None, None)


def test_a_missing_object_lock_is_explained() -> None:
    response = {
        "Error": {"Code": "InvalidRequest", "Message": "Bucket is missing Object Lock Configuration"},
        "ResponseMetadata": {"HTTPStatusCode": 400},
    }
    with (
        pytest.raises(EnvironmentProblem, match="missing Object Lock") as refused,
        explained("write", "a", "s3://bucket", options()),
    ):
        raise ClientError(response, "PutObject")  # type: ignore[arg-type]
    assert "the bucket was made without" in refused.value.hint


@pytest.mark.parametrize(
    ("cause", "hint"),
    [
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get issuer", "ca_bundle"),
        ("[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred in violation of protocol", "Check the network"),
    ],
)
def test_only_an_untrusted_certificate_needs_an_authority(cause: str, hint: str) -> None:
    with (
        pytest.raises(EnvironmentProblem, match="Cannot read a in s3://bucket") as refused,
        explained("read", "a", "s3://bucket", options()),
    ):
        raise SSLError(endpoint_url="https://s3.example", error=cause)
    assert hint in refused.value.hint


def _versions(server: Server, bucket: str) -> list[tuple[str, str]]:
    versions = server.client().list_object_versions(Bucket=bucket).get("Versions", ())
    return [(version["Key"], version["VersionId"]) for version in versions]


@NEEDS_VERSITY
def test_a_locked_version_outlives_a_delete_and_a_second_put(versity: Versity) -> None:
    bucket = versity.bucket(ObjectLockEnabledForBucket=True)
    storage = S3Storage(
        f"s3://{bucket}",
        options(endpoint=versity.endpoint, object_lock_mode="COMPLIANCE", object_lock_days=2),
    )
    storage.put("data", b"good", if_absent=True)
    storage.upload("parts", io.BytesIO(LARGE))
    storage.put("leases/x", b"")
    storage.put("data", b"bad")
    storage.delete("data")
    with pytest.raises(NotFound):
        storage.get("data")
    client = versity.client()
    versions = dict.fromkeys(_versions(versity, bucket))
    assert sorted(key for key, _ in versions) == ["data", "data", "leases/x", "parts"]
    first = [version for key, version in versions if key == "data"][-1]
    assert client.get_object(Bucket=bucket, Key="data", VersionId=first)["Body"].read() == b"good"
    for key, version in versions:
        if key == "leases/x":
            client.delete_object(Bucket=bucket, Key=key, VersionId=version)
            continue
        until = client.get_object_retention(Bucket=bucket, Key=key, VersionId=version)["Retention"]
        assert until["Mode"] == "COMPLIANCE"
        assert 1.9 < (until["RetainUntilDate"] - datetime.now(UTC)).total_seconds() / 86_400 < 2.1
        with pytest.raises(ClientError, match="AccessDenied"):
            client.delete_object(Bucket=bucket, Key=key, VersionId=version)


@NEEDS_VERSITY
def test_a_missing_object_lock_is_reported(versity: Versity) -> None:
    locking = options(endpoint=versity.endpoint, object_lock_mode="GOVERNANCE", object_lock_days=1)
    storage = S3Storage(f"s3://{versity.bucket()}", locking)
    with pytest.raises(EnvironmentProblem, match=r"(?i)object lock"):
        storage.put("a", b"")


@NEEDS_VERSITY
def test_a_bucket_with_versions_shows_the_newest(versity: Versity) -> None:
    bucket = versity.bucket()
    versity.client().put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    storage = S3Storage(f"s3://{bucket}", options(endpoint=versity.endpoint))
    storage.put("a", b"1")
    storage.put("a", b"2")
    with pytest.raises(AlreadyExists):
        storage.put("a", b"3", if_absent=True)
    assert storage.get("a") == b"2"
    storage.put("b", b"1")
    storage.delete("b")
    assert [(entry.path, entry.bytes) for entry in storage.list()] == [("a", 1)]
    assert len(_versions(versity, bucket)) == 3
