"""A storage is probed before its first lease: a real S3 server, and servers that break its promises."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.support.command_line import Commands
from tests.support.s3 import OpenS3Proxy, S3Proxy
from tests.support.s3_faults import FaultProxy, Kind
from tests.support.s3_storage import options
from tests.support.servers import s3_environment

from lakebackup.errors import EnvironmentProblem
from lakebackup.storage import AlreadyExists, Storage, open_storage
from lakebackup.storage.local import LocalStorage
from lakebackup.storage.s3 import S3Storage
from lakebackup.storage.s3_client import client
from lakebackup.store import proof
from lakebackup.store.lease import Lease

PROBE, RECORD = "leases/proof/probe", "leases/proof/proved.json"


@pytest.fixture(autouse=True)
def forget_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgets the proofs of other tests."""
    monkeypatch.setattr(proof, "_proved", set())


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenS3Proxy]:
    with OpenS3Proxy(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def lax_server(open_server: OpenS3Proxy) -> Iterator[FaultProxy]:
    """A proxy in front of a server that checks no signatures."""
    with FaultProxy(open_server.port) as running:
        yield running


def paths(storage: Storage) -> list[str]:
    return [entry.path for entry in storage.list()]


def acquire_lease(storage: Storage) -> None:
    with Lease.acquire(storage, "source-x", "me"):
        pass


@pytest.mark.s3
def test_a_storage_is_probed_once(
    storage: S3Storage, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    acquire_lease(storage)
    assert {PROBE, RECORD} < set(paths(storage))
    probe_requests = len(proxy.methods(PROBE))
    assert probe_requests <= 10
    acquire_lease(storage)
    assert len(proxy.methods(PROBE)) == probe_requests
    assert len(proxy.methods(RECORD)) == 2
    # Another process reads the record.
    monkeypatch.setattr(proof, "_proved", set())
    acquire_lease(storage)
    assert len(proxy.methods(PROBE)) == probe_requests
    deleted = [path for method, path, _ in proxy.requests if method == "DELETE" and "proof" in path]
    assert all("uploadId=" in path for path in deleted)  # an upload that was refused is aborted


@pytest.mark.s3
@pytest.mark.parametrize(
    ("kind", "method", "part", "complaint"),
    [
        ("unconditional", "PUT", PROBE, "accepted a put of leases/proof/probe"),
        ("unconditional", "POST", PROBE, "accepted an upload in parts of leases/proof/probe"),
        ("nothing listed", "GET", "prefix=", "lists leases/proof/probe in .* not at all"),
    ],
)
def test_a_server_that_fails_the_probe_is_refused(
    lax_server: FaultProxy, kind: Kind, method: str, part: str, complaint: str
) -> None:
    proxy, storage = lax_server, S3Storage(f"s3://{uuid4().hex}/root", options(endpoint=lax_server.endpoint))
    client(storage.options).create_bucket(Bucket=storage.uri.split("/")[2])
    proxy.fail(kind, method, part, times=100)
    for _ in range(2):
        with pytest.raises(EnvironmentProblem, match=complaint) as raised:
            acquire_lease(storage)
        assert raised.value.exit_code == 6
        assert storage.server in raised.value.message
        assert "If-None-Match" in str(raised.value.hint)
    proxy.faults.clear()
    assert paths(storage) == [PROBE]
    acquire_lease(storage)  # the server is repaired
    assert RECORD in paths(storage)


@pytest.mark.s3
def test_a_stale_listing_is_refused(storage: S3Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.put(PROBE, b"of an earlier run")
    listing = list(storage.list("leases/proof/"))
    monkeypatch.setattr(S3Storage, "list", lambda *_, **__: iter(listing))
    with pytest.raises(EnvironmentProblem, match="with 17 bytes, as it was before"):
        acquire_lease(storage)


@pytest.mark.s3
def test_a_server_without_conditional_puts_is_refused(storage: S3Storage, proxy: FaultProxy) -> None:
    proxy.fail("not implemented", "PUT", times=100)
    with pytest.raises(EnvironmentProblem, match="answers NotImplemented") as raised:
        acquire_lease(storage)
    assert "conditional puts" in str(raised.value.hint)
    assert paths(storage) == [PROBE]


@pytest.mark.s3
@pytest.mark.parametrize("kind", ["lost", "done but 500", "reset", "503", "409"])
def test_lost_answers_do_not_fail_the_probe(storage: S3Storage, proxy: FaultProxy, kind: Kind) -> None:
    proxy.fail(kind, "PUT", "proof", times=1)
    proxy.fail(kind, "POST", "uploadId=", times=1)
    acquire_lease(storage)
    assert RECORD in paths(storage)


@pytest.mark.s3
def test_a_storage_on_another_server_is_probed_again(storage: S3Storage, s3: S3Proxy, bucket: str) -> None:
    acquire_lease(storage)
    record = json.loads(storage.get(RECORD))
    moved = S3Storage(storage.uri, options(endpoint=s3.endpoint))
    acquire_lease(moved)
    assert json.loads(moved.get(RECORD))["server"] == moved.server != record["server"]


def test_a_local_folder_is_probed(tmp_path: Path) -> None:
    class Lax(LocalStorage):
        def put(self, path: str, data: bytes, *, if_absent: bool = False, metadata: object = None) -> None:
            del if_absent, metadata
            super().put(path, data)

    with pytest.raises(EnvironmentProblem, match="the file system is not safe for backups"):
        acquire_lease(Lax(str(tmp_path)))
    assert paths(LocalStorage(str(tmp_path))) == [PROBE]
    acquire_lease(LocalStorage(str(tmp_path)))
    assert RECORD in paths(LocalStorage(str(tmp_path)))


def test_a_server_that_takes_no_new_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(LocalStorage):
        def put(self, path: str, data: bytes, *, if_absent: bool = False, metadata: object = None) -> None:
            del metadata
            if if_absent:
                raise AlreadyExists(path)
            super().put(path, data)

    with pytest.raises(EnvironmentProblem, match="and there is none"):
        acquire_lease(Full(str(tmp_path)))


@pytest.mark.s3
def test_no_catalog_and_no_backup_begins_on_a_server_that_is_not_safe(
    lax_server: FaultProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in s3_environment(lax_server.endpoint).items():
        monkeypatch.setenv(name, value)
    uri = f"s3://{uuid4().hex}/root"
    storage = open_storage(uri)
    assert isinstance(storage, S3Storage)
    client(storage.options).create_bucket(Bucket=uri.split("/")[2])
    (tmp_path / "file").write_text("x")
    lax_server.fail("unconditional", "PUT", times=1000)
    for command in (["catalog", "init"], ["backup", "snapshot", str(tmp_path), "--source", "s"]):
        assert "is not safe for backups" in Commands(capsys).fails(6, *command, "--repo", uri)
        assert {name.removeprefix("catalog/") for name in paths(storage)} == {PROBE}
