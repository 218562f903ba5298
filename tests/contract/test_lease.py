"""Leases on every kind of storage. tests/unit/catalog/store tests all of their rules."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from tests.support.s3 import S3Proxy
from tests.support.s3_faults import FaultProxy

from lakebackup.errors import Busy
from lakebackup.storage import Storage, open_storage
from lakebackup.store.lease import Lease, break_lease, held_leases, is_held


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "s3":
        server: S3Proxy = request.getfixturevalue("s3")
        return open_storage(f"s3://{server.bucket()}/root")
    return open_storage(str(tmp_path))


def test_only_one_contender_holds_a_lease_at_a_time(storage: Storage) -> None:
    holders, most_holders, turns = 0, 0, 0
    guard = threading.Lock()

    def contend(name: str) -> None:
        nonlocal holders, most_holders, turns
        for _ in range(4):
            with Lease.acquire(storage, "it", name, wait_s=120):
                with guard:
                    holders += 1
                    most_holders = max(most_holders, holders)
                    turns += 1
                storage.put("while", name.encode())
                with guard:
                    holders -= 1

    threads = [threading.Thread(target=contend, args=(f"contender {n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most_holders, turns, holders) == (1, 24, 0)
    assert len(list(storage.list("leases/it/"))) < 20  # obsolete objects are deleted


def test_a_held_lease_keeps_others_out_until_its_release(storage: Storage) -> None:
    with Lease.acquire(storage, "it", "first") as lease:
        assert is_held(storage, "it")
        assert [name for name, _ in held_leases(storage)] == ["it"]
        with pytest.raises(Busy, match="first"):
            Lease.acquire(storage, "it", "second")
        lease.renew()
    assert held_leases(storage) == []
    Lease.acquire(storage, "it", "second").release()


def test_an_expired_lease_is_taken_over_and_its_holder_notices(storage: Storage) -> None:
    old = Lease.acquire(storage, "it", "old", ttl_s=1.5)
    old._stop.set()  # the lease is no longer renewed, as when its process is stopped
    with Lease.acquire(storage, "it", "new", wait_s=30):
        with pytest.raises(Busy, match=r"could not be renewed|taken over by new"):
            old.renew()
        old.release()
        assert is_held(storage, "it")
    broken = Lease.acquire(storage, "it", "third")
    assert break_lease(storage, "it", "it is dead").holder == "third"
    with pytest.raises(Busy, match="it is dead"):
        broken.renew()


def test_a_lease_request_times_out_in_time_to_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_storage, waits = open_storage(str(tmp_path)), list[float]()

    def hurried(storage: Storage, seconds: float) -> Storage:
        waits.append(seconds)
        return storage

    monkeypatch.setattr(type(local_storage), "hurried", hurried)
    Lease.acquire(local_storage, "it", "me", ttl_s=9).release()
    assert waits == [1.5]  # a renewal begins after 3 s; 0.9 s before the end the holder gives up


@pytest.mark.long
@pytest.mark.s3
def test_an_unanswered_request_does_not_lose_the_lease(s3: S3Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"s3://{s3.bucket()}/root"
    with FaultProxy(s3.port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        storage = open_storage(uri)
        with Lease.acquire(storage, "it", "me", ttl_s=9) as lease:
            proxy.fail("silent", "PUT", "leases/it/")
            deadline = time.monotonic() + 30
            while len(list(storage.list("leases/it/"))) < 3:
                lease.check()
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert proxy.faults[0].times == 0
        assert not is_held(storage, "it")  # released, not left to run out
