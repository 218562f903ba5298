"""A storage is tried out before the first lease in it: a real S3 server, and ones that do not keep to it."""

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
def unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever other tests proved."""
    monkeypatch.setattr(proof, "_proved", set())


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenS3Proxy]:
    with OpenS3Proxy(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def lax(open_server: OpenS3Proxy) -> Iterator[FaultProxy]:
    """In front of a server that checks no signatures."""
    with FaultProxy(open_server.port) as running:
        yield running


def names(storage: Storage) -> list[str]:
    return [found.path for found in storage.list()]


def take(storage: Storage) -> None:
    with Lease.acquire(storage, "source-x", "me"):
        pass


@pytest.mark.s3
def test_a_storage_is_tried_out_once(
    storage: S3Storage, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(storage)
    assert {PROBE, RECORD} < set(names(storage))
    first = len(proxy.methods(PROBE))
    assert first <= 10
    take(storage)
    assert len(proxy.methods(PROBE)) == first
    assert len(proxy.methods(RECORD)) == 2
    # Another process reads the record.
    monkeypatch.setattr(proof, "_proved", set())
    take(storage)
    assert len(proxy.methods(PROBE)) == first
    deleted = [path for method, path, _ in proxy.requests if method == "DELETE" and "proof" in path]
    assert all("uploadId=" in path for path in deleted)  # an upload that was refused is aborted


@pytest.mark.s3
@pytest.mark.parametrize(
    ("kind", "method", "part", "why"),
    [
        ("unconditional", "PUT", PROBE, "accepted a put of leases/proof/probe"),
        ("unconditional", "POST", PROBE, "accepted an upload in parts of leases/proof/probe"),
        ("nothing listed", "GET", "prefix=", "lists leases/proof/probe in .* not at all"),
    ],
)
def test_a_server_that_does_not_keep_to_it_is_refused(
    lax: FaultProxy, kind: Kind, method: str, part: str, why: str
) -> None:
    proxy, storage = lax, S3Storage(f"s3://{uuid4().hex}/root", options(endpoint=lax.endpoint))
    client(storage.options).create_bucket(Bucket=storage.uri.split("/")[2])
    proxy.fail(kind, method, part, times=100)
    for _ in range(2):
        with pytest.raises(EnvironmentProblem, match=why) as raised:
            take(storage)
        assert raised.value.exit_code == 6
        assert storage.server in raised.value.message
        assert "If-None-Match" in str(raised.value.hint)
    proxy.faults.clear()
    assert names(storage) == [PROBE]
    take(storage)  # it was mended
    assert RECORD in names(storage)


@pytest.mark.s3
def test_a_listing_of_before_is_refused(storage: S3Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.put(PROBE, b"of an earlier run")
    before = list(storage.list("leases/proof/"))
    monkeypatch.setattr(S3Storage, "list", lambda *_, **__: iter(before))
    with pytest.raises(EnvironmentProblem, match="with 17 bytes, as it was before"):
        take(storage)


@pytest.mark.s3
def test_a_server_without_conditional_puts_is_refused(storage: S3Storage, proxy: FaultProxy) -> None:
    proxy.fail("not implemented", "PUT", times=100)
    with pytest.raises(EnvironmentProblem, match="answers NotImplemented") as raised:
        take(storage)
    assert "conditional puts" in str(raised.value.hint)
    assert names(storage) == [PROBE]


@pytest.mark.s3
@pytest.mark.parametrize("kind", ["lost", "done but 500", "reset", "503", "409"])
def test_answers_that_are_lost_prove_nothing_wrong(storage: S3Storage, proxy: FaultProxy, kind: Kind) -> None:
    proxy.fail(kind, "PUT", "proof", times=1)
    proxy.fail(kind, "POST", "uploadId=", times=1)
    take(storage)
    assert RECORD in names(storage)


@pytest.mark.s3
def test_a_storage_that_moved_to_another_server_is_tried_out_again(
    storage: S3Storage, s3: S3Proxy, bucket: str
) -> None:
    take(storage)
    record = json.loads(storage.get(RECORD))
    other = S3Storage(storage.uri, options(endpoint=s3.endpoint))
    take(other)
    assert json.loads(other.get(RECORD))["server"] == other.server != record["server"]


def test_a_folder_is_tried_out_too(tmp_path: Path) -> None:
    class Lax(LocalStorage):
        def put(self, path: str, data: bytes, *, if_absent: bool = False, metadata: object = None) -> None:
            del if_absent, metadata
            super().put(path, data)

    with pytest.raises(EnvironmentProblem, match="the file system is not safe for backups"):
        take(Lax(str(tmp_path)))
    assert names(LocalStorage(str(tmp_path))) == [PROBE]
    take(LocalStorage(str(tmp_path)))
    assert RECORD in names(LocalStorage(str(tmp_path)))


def test_a_server_that_takes_no_new_name_ends_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(LocalStorage):
        def put(self, path: str, data: bytes, *, if_absent: bool = False, metadata: object = None) -> None:
            del metadata
            if if_absent:
                raise AlreadyExists(path)
            super().put(path, data)

    with pytest.raises(EnvironmentProblem, match="and there is none"):
        take(Full(str(tmp_path)))


@pytest.mark.s3
def test_no_catalog_and_no_backup_begins_on_a_server_that_is_not_safe(
    lax: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in s3_environment(lax.endpoint).items():
        monkeypatch.setenv(name, value)
    uri = f"s3://{uuid4().hex}/root"
    storage = open_storage(uri)
    assert isinstance(storage, S3Storage)
    client(storage.options).create_bucket(Bucket=uri.split("/")[2])
    (tmp_path / "file").write_text("x")
    lax.fail("unconditional", "PUT", times=1000)
    for command in (["catalog", "init"], ["backup", "snapshot", str(tmp_path), "--source", "s"]):
        assert "is not safe for backups" in Commands(capsys).fails(6, *command, "--repo", uri)
        assert {name.removeprefix("catalog/") for name in names(storage)} == {PROBE}
