"""Object storage only: lost answers, failing servers, reads and uploads in parts."""

from __future__ import annotations

import io
import pickle
import random
import subprocess
import sys
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.support.s3 import SECRET_KEY, S3Proxy, Server
from tests.support.s3_faults import FaultProxy, Kind
from tests.support.s3_storage import LARGE, PART, options

from lakebackup.errors import Damaged, EnvironmentProblem, UsageProblem
from lakebackup.storage import AlreadyExists
from lakebackup.storage.s3 import S3Storage

pytestmark = [pytest.mark.s3, pytest.mark.usefixtures("quick")]


def keys(server: Server, bucket: str) -> list[str]:
    return [entry["Key"] for entry in server.client().list_objects_v2(Bucket=bucket).get("Contents", ())]


def uploads(s3: S3Proxy, bucket: str) -> list[Any]:
    return list(s3.client().list_multipart_uploads(Bucket=bucket).get("Uploads", ()))


@pytest.mark.parametrize("kind", ["lost", "done but 500", "503", "409", "reset"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_conditional_put_with_a_fault_is_done_once(
    storage: S3Storage, proxy: FaultProxy, kind: Kind, times: int
) -> None:
    proxy.fail(kind, "PUT", times=times)
    storage.put("a", b"mine", if_absent=True)
    assert storage.get("a") == b"mine"
    assert proxy.methods("/root/a").count("PUT") == times + 1


@pytest.mark.parametrize("kind", ["lost", "done but 500", "409", "reset"])
def test_an_upload_in_parts_with_a_fault_at_its_end_is_done_once(
    s3: S3Proxy, bucket: str, storage: S3Storage, proxy: FaultProxy, kind: Kind
) -> None:
    proxy.fail(kind, "POST", "uploadId=")
    assert storage.upload("a", io.BytesIO(LARGE)) == len(LARGE)
    assert storage.get("a") == LARGE
    assert uploads(s3, bucket) == []


@pytest.mark.parametrize("data", [b"mine", LARGE], ids=["whole", "parts"])
def test_when_every_answer_is_lost_the_stored_object_counts(
    storage: S3Storage, proxy: FaultProxy, data: bytes
) -> None:
    proxy.fail("lost", "PUT" if len(data) < PART else "POST", "" if len(data) < PART else "uploadId", 99)
    storage.upload("a", io.BytesIO(data))
    assert storage.get("a") == data


@pytest.mark.parametrize("data", [b"mine", LARGE], ids=["whole", "parts"])
@pytest.mark.parametrize("kind", ["lost", "reset"])
def test_a_lost_answer_does_not_hide_that_another_was_first(
    storage: S3Storage, proxy: FaultProxy, bucket: str, s3: S3Proxy, kind: Kind, data: bytes
) -> None:
    def put_first() -> None:
        s3.client().put_object(Bucket=bucket, Key="root/a", Body=b"another's")

    proxy.fail(
        kind, "PUT" if len(data) < PART else "POST", "" if len(data) < PART else "uploadId", action=put_first
    )
    with pytest.raises(AlreadyExists, match="a is there already"):
        storage.upload("a", io.BytesIO(data))
    assert storage.get("a") == b"another's"
    assert uploads(s3, bucket) == []


@pytest.mark.parametrize("first", [b"another's", None])
def test_an_aborted_upload_reports_the_object_that_was_first(
    storage: S3Storage, proxy: FaultProxy, bucket: str, s3: S3Proxy, first: bytes | None
) -> None:
    def abort_uploads() -> None:
        for upload in uploads(s3, bucket):
            s3.client().abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
        if first is not None:
            s3.client().put_object(Bucket=bucket, Key="root/a", Body=first)

    proxy.fail("409", "POST", "uploadId", action=abort_uploads)
    problem, message = (AlreadyExists, "root/a is there") if first else (EnvironmentProblem, "NoSuchUpload")
    with pytest.raises(problem, match=message):
        storage.upload("a", io.BytesIO(LARGE))
    if first is not None:
        assert storage.get("a") == first


def test_under_random_faults_each_name_has_at_most_one_winner(bucket: str, proxy: FaultProxy) -> None:
    rng = random.Random(7)
    kinds: tuple[Kind, ...] = ("lost", "done but 500", "503", "409", "reset", "cut")
    proxy.chance = lambda: rng.choice(kinds) if rng.random() < 0.25 else None
    storage = S3Storage(f"s3://{bucket}", options(endpoint=proxy.endpoint))
    contenders, turns = 4, 20
    barrier = threading.Barrier(contenders)

    def contend(number: int) -> list[str]:
        outcomes = []
        for turn in range(turns):
            barrier.wait()
            try:
                storage.put(f"{turn:03d}", b"%d" % number, if_absent=True)
            except AlreadyExists:
                outcomes.append("lost")
            except EnvironmentProblem:
                outcomes.append("unknown")
            else:
                outcomes.append("won")
        return outcomes

    with ThreadPoolExecutor(contenders) as pool:
        answers_by_contender = list(pool.map(contend, range(contenders)))
    direct = S3Storage(f"s3://{bucket}", options())
    owners = {entry.path: int(direct.get(entry.path)) for entry in direct.list()}
    for turn in range(turns):
        answers = [answers_by_contender[number][turn] for number in range(contenders)]
        owner = owners.get(f"{turn:03d}")
        for number, answer in enumerate(answers):
            assert answer != "won" or number == owner, (turn, answers, owner)
            assert answer != "lost" or owner not in (None, number), (turn, answers, owner)
    all_answers = [answer for answers in answers_by_contender for answer in answers]
    assert all_answers.count("won") > turns / 2
    assert all_answers.count("unknown") < len(all_answers) / 2  # the SDK soon stops trying again


def test_an_unknown_outcome_is_not_reported_as_a_taken_name(storage: S3Storage, proxy: FaultProxy) -> None:
    proxy.fail("lost", "PUT")
    proxy.fail("reset", "HEAD", times=99)
    with pytest.raises(EnvironmentProblem, match=r"Cannot write a "):
        storage.put("a", b"mine", if_absent=True)


@pytest.mark.parametrize(
    ("kind", "complaint"), [("503", "SlowDown"), ("409", "ConditionalRequestConflict"), ("reset", "Cannot")]
)
def test_a_server_that_fails_for_good_is_the_environments_fault(
    storage: S3Storage, proxy: FaultProxy, kind: Kind, complaint: str
) -> None:
    for method in ("PUT", "GET"):
        proxy.fail(kind, method, times=99)
    with pytest.raises(EnvironmentProblem, match=complaint):
        storage.put("a", b"x", if_absent=True)
    with pytest.raises(EnvironmentProblem, match=complaint):
        storage.get("a")
    with pytest.raises(EnvironmentProblem, match=complaint):
        list(storage.list())


def test_parts_that_cannot_be_sent_leave_nothing(
    s3: S3Proxy, bucket: str, storage: S3Storage, proxy: FaultProxy
) -> None:
    proxy.fail("503", "PUT", "partNumber=2", times=99)
    with pytest.raises(EnvironmentProblem, match="SlowDown"):
        storage.upload("a", io.BytesIO(LARGE))
    assert (keys(s3, bucket), uploads(s3, bucket)) == ([], [])


def test_a_source_that_fails_in_the_middle_of_parts_leaves_nothing(
    s3: S3Proxy, bucket: str, storage: S3Storage
) -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() > PART:
                raise InterruptedError("the source is gone")
            return super().read(size)

    with pytest.raises(InterruptedError, match="gone"):
        storage.upload("a", Failing(LARGE))
    assert (keys(s3, bucket), uploads(s3, bucket)) == ([], [])


def test_a_request_to_a_silent_server_is_repeated(proxy: FaultProxy, bucket: str) -> None:
    storage = S3Storage(f"s3://{bucket}", options(endpoint=proxy.endpoint, read_timeout=1))
    for method in ("PUT", "GET", "HEAD", "DELETE"):
        proxy.fail("silent", method)
    storage.put("a", b"x", if_absent=True)
    assert storage.get("a") == b"x"
    assert storage.stat("a").bytes == 1
    storage.delete("a")
    assert list(storage.list()) == []


def test_a_hurried_storage_retries_and_gives_up_early(proxy: FaultProxy, bucket: str) -> None:
    storage = S3Storage(f"s3://{bucket}", options(endpoint=proxy.endpoint, max_attempts=9)).hurried(2)
    assert storage.uri == f"s3://{bucket}"
    proxy.fail("silent", "PUT")
    start = time.monotonic()
    storage.put("a", b"x", if_absent=True)
    assert time.monotonic() - start < 20  # other storages wait for a minute
    proxy.fail("503", "GET", times=99)
    proxy.requests.clear()
    with pytest.raises(EnvironmentProblem, match="SlowDown"):
        storage.get("a")
    assert proxy.methods("/a") == ["GET"] * 4


@pytest.mark.parametrize("kind", ["cut", "503", "reset"])
def test_a_read_goes_on_where_the_connection_broke(storage: S3Storage, proxy: FaultProxy, kind: Kind) -> None:
    storage.put("a", LARGE)
    proxy.fail(kind, "GET", times=2)
    assert storage.get("a") == LARGE
    proxy.fail(kind, "GET", times=2)
    with storage.open("a") as stream:
        assert stream.read(3) == LARGE[:3]
        assert stream.read() == LARGE[3:]
    proxy.fail(kind, "GET")
    assert storage.get("a", start=100, length=PART) == LARGE[100 : 100 + PART]


def test_a_read_that_always_breaks_fails(storage: S3Storage, proxy: FaultProxy) -> None:
    storage.put("a", b"x")  # half of one byte is none, so no retry gets further
    proxy.fail("cut", "GET", times=99)
    with pytest.raises(EnvironmentProblem, match="Cannot read a "):
        storage.get("a")


def test_a_read_never_mixes_two_objects(storage: S3Storage, proxy: FaultProxy) -> None:
    storage.put("a", LARGE)
    proxy.fail("cut", "GET")
    with storage.open("a") as stream:
        stream.read(3)
        storage.put("a", b"!" * len(LARGE))
        with pytest.raises(EnvironmentProblem, match="replaced while it was read"):
            stream.read()


def test_a_stream_can_seek(storage: S3Storage) -> None:
    storage.put("a", LARGE)
    with storage.open("a") as stream:
        assert stream.seek(-7, io.SEEK_END) == len(LARGE) - 7
        assert stream.read() == b"its end"
        assert stream.read() == b""
        stream.seek(5)
        stream.seek(1, io.SEEK_CUR)
        assert (stream.read(10), stream.tell()) == (LARGE[6:16], 16)
        stream.seek(len(LARGE) + 5)
        assert stream.read() == b""


def test_one_of_several_uploads_in_parts_wins(storage: S3Storage, s3: S3Proxy, bucket: str) -> None:
    barrier = threading.Barrier(3)

    def contend(number: int) -> int | None:
        barrier.wait()
        try:
            storage.upload("a", io.BytesIO(b"%d" % number * (PART + 1)))
        except AlreadyExists:
            return None
        return number

    with ThreadPoolExecutor(3) as pool:
        winners = [number for number in pool.map(contend, range(3)) if number is not None]
    assert len(winners) == 1
    assert storage.get("a") == b"%d" % winners[0] * (PART + 1)
    assert uploads(s3, bucket) == []


FORKED = """
import os, sys
from lakebackup.storage import open_storage
from lakebackup.storage.s3_client import _pace, client
storage = open_storage(sys.argv[1])
storage.put("a", b"1" * 1_000_000)
before, pace = client(storage.options), _pace(1 << 30)
child = os.fork()
assert (client(storage.options) is before) == bool(child), "a client is of one process alone"
assert (_pace(1 << 30) is pace) == bool(child), "another process may hold this lock for ever"
for _ in range(20):
    assert storage.get("a") == b"1" * 1_000_000
assert not child or os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_process_has_connections_of_its_own(bucket: str) -> None:
    subprocess.run([sys.executable, "-c", FORKED, f"s3://{bucket}"], check=True, timeout=60)


def test_a_storage_is_pickled_without_its_secret(storage: S3Storage) -> None:
    storage.put("a", b"1")
    pickled = pickle.dumps(storage)
    assert SECRET_KEY.encode() not in pickled
    assert pickle.loads(pickled).get("a") == b"1"


def test_memory_does_not_grow_with_the_object(bucket: str) -> None:
    storage = S3Storage(f"s3://{bucket}", options())

    class Zeros:
        remaining = 12 * PART

        def read(self, size: int) -> bytes:
            size = min(size, self.remaining)
            self.remaining -= size
            return bytes(size)

    tracemalloc.start()
    try:
        assert storage.upload("a", Zeros()) == 12 * PART
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * PART
    assert storage.stat("a").bytes == 12 * PART


def test_metadata_goes_with_the_object(storage: S3Storage, s3: S3Proxy, bucket: str) -> None:
    metadata = {"lakebackup-last-position": "3:42", "lakebackup-max-ts": "1700000000000"}
    storage.put("put", b"x", metadata=metadata)
    storage.upload("parts", io.BytesIO(LARGE), metadata=metadata)
    with storage.writer() as writer:
        writer.write(b"x")
        writer.commit("written", metadata=metadata)
    for name in ("put", "parts", "written"):
        stored_metadata = s3.client().head_object(Bucket=bucket, Key=f"root/{name}")["Metadata"]
        assert stored_metadata.items() >= metadata.items()


def test_metadata_that_s3_cannot_store_is_refused(storage: S3Storage) -> None:
    with pytest.raises(UsageProblem, match="metadata"):
        storage.put("a", b"x", metadata={"name": "für"})


def test_a_taken_name_costs_no_bytes(storage: S3Storage, proxy: FaultProxy) -> None:
    storage.put("a", b"x")
    proxy.requests.clear()
    with storage.writer() as writer:
        writer.write(LARGE)
        with pytest.raises(AlreadyExists):
            writer.commit("a")
        assert proxy.methods() == ["HEAD"]
        writer.commit("b")
    assert storage.get("b") == LARGE


def test_each_operation_is_one_request(storage: S3Storage, proxy: FaultProxy) -> None:
    storage.put("a", b"x", if_absent=True)
    storage.get("a")
    storage.stat("a")
    list(storage.list())
    list(storage.folders())
    assert proxy.methods() == ["PUT", "GET", "HEAD", "GET", "GET"]


@pytest.mark.long
def test_a_list_reads_several_pages(s3: S3Proxy, bucket: str) -> None:
    storage, plain = S3Storage(f"s3://{bucket}", options()), s3.client()
    expected = sorted(f"a/{number}" for number in range(1003))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: plain.put_object(Bucket=bucket, Key=key, Body=b""), expected))
    assert [entry.path for entry in storage.list("a/")] == expected


@pytest.mark.parametrize("data", [b"abcdef", LARGE], ids=["whole", "parts"])
def test_a_flipped_bit_in_transit_is_noticed(storage: S3Storage, proxy: FaultProxy, data: bytes) -> None:
    storage.upload("a", io.BytesIO(data))
    proxy.fail("flipped", "GET")
    with pytest.raises(Damaged, match="checksum"):
        storage.get("a")
    proxy.fail("flipped", "PUT")
    with pytest.raises(EnvironmentProblem, match="Cannot write b"):
        storage.upload("b", io.BytesIO(data))
    assert [entry.path for entry in storage.list()] == ["a"]
