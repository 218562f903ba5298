"""What a lease promises, on every kind of storage; tests/unit/catalog/store has its rules in full."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from tests.support.s3 import S3Proxy
from tests.support.s3_faults import FaultProxy

from lakebackup.errors import Busy
from lakebackup.storage import Storage, open_storage
from lakebackup.store.lease import Lease, break_lease, held, is_held


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "s3":
        server: S3Proxy = request.getfixturevalue("s3")
        return open_storage(f"s3://{server.bucket()}/root")
    return open_storage(str(tmp_path))


def test_of_many_contenders_one_holds_it_at_a_time(storage: Storage) -> None:
    inside, most, turns = 0, 0, 0
    guard = threading.Lock()

    def contend(name: str) -> None:
        nonlocal inside, most, turns
        for _ in range(4):
            with Lease.acquire(storage, "it", name, wait_s=120):
                with guard:
                    inside += 1
                    most = max(most, inside)
                    turns += 1
                storage.put("while", name.encode())
                with guard:
                    inside -= 1

    threads = [threading.Thread(target=contend, args=(f"contender {n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, turns, inside) == (1, 24, 0)
    assert len(list(storage.list("leases/it/"))) < 20  # what it leaves behind does not grow


def test_one_that_is_held_keeps_others_out_until_it_is_released(storage: Storage) -> None:
    with Lease.acquire(storage, "it", "first") as lease:
        assert is_held(storage, "it")
        assert [name for name, _ in held(storage)] == ["it"]
        with pytest.raises(Busy, match="first"):
            Lease.acquire(storage, "it", "second")
        lease.renew()
    assert held(storage) == []
    Lease.acquire(storage, "it", "second").release()


def test_one_that_ran_out_is_taken_over_and_its_holder_notices(storage: Storage) -> None:
    old = Lease.acquire(storage, "it", "old", ttl_s=1.5)
    old._stop.set()  # it renews no more, as when its process is stopped
    with Lease.acquire(storage, "it", "new", wait_s=30):
        with pytest.raises(Busy, match=r"could not be renewed|taken over by new"):
            old.renew()
        old.release()
        assert is_held(storage, "it")
    broken = Lease.acquire(storage, "it", "third")
    assert break_lease(storage, "it", "it is dead").holder == "third"
    with pytest.raises(Busy, match="it is dead"):
        broken.renew()


def test_no_request_waits_for_an_answer_until_it_is_too_late_to_ask_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, waits = open_storage(str(tmp_path)), list[float]()

    def hurried(storage: Storage, seconds: float) -> Storage:
        waits.append(seconds)
        return storage

    monkeypatch.setattr(type(place), "hurried", hurried)
    Lease.acquire(place, "it", "me", ttl_s=9).release()
    assert waits == [1.5]  # a renewal begins after 3 s; 0.9 s before the end the holder gives up


@pytest.mark.long
@pytest.mark.s3
def test_a_request_that_is_never_answered_does_not_lose_it(
    s3: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"s3://{s3.bucket()}/root"
    with FaultProxy(s3.port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        place = open_storage(uri)
        with Lease.acquire(place, "it", "me", ttl_s=9) as lease:
            proxy.fail("silent", "PUT", "leases/it/")
            deadline = time.monotonic() + 30
            while len(list(place.list("leases/it/"))) < 3:
                lease.check()
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert proxy.faults[0].times == 0
        assert not is_held(place, "it")  # released, not left to run out
