"""What only object storage has to do: answers that get lost, servers that fail, locks, encryption."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import random
import re
import subprocess
import sys
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError
from botocore.loaders import JSONFileLoader
from botocore.retries.standard import ExponentialBackoff
from tests.support.s3 import SECRET_KEY, SecureS3Proxy
from tests.support.s3_faults import FaultProxy

from lakebackup.errors import Damaged, EnvironmentProblem, NotFound, UsageProblem
from lakebackup.storage import AlreadyExists, open_storage
from lakebackup.storage.options import S3Options
from lakebackup.storage.s3 import S3Storage
from lakebackup.storage.s3_client import client
from lakebackup_jobs.child import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.s3 import S3Proxy, Server, Versity
    from tests.support.s3_faults import Kind

pytestmark = pytest.mark.s3

PART = 5 * 1024 * 1024  # the least that S3 takes
LARGE = os.urandom(1 << 16) * 81 + b"its end"  # a part and a bit
TRIES = 3
LOADED = cache(JSONFileLoader().load_file)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK waits up to a second before its second try, and reads all it knows of S3 for each client."""
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda *_: 0.01)
    monkeypatch.setattr(JSONFileLoader, "load_file", lambda _, path: LOADED(path))


@pytest.fixture
def proxy(s3: S3Proxy) -> Iterator[FaultProxy]:
    with FaultProxy(s3.port) as running:
        yield running


@pytest.fixture
def bucket(s3: S3Proxy) -> str:
    return s3.bucket()


def options(**given: Any) -> S3Options:
    return S3Options(**{"part_size": PART, "max_attempts": TRIES, **given}).resolved()


@pytest.fixture
def storage(proxy: FaultProxy, bucket: str) -> S3Storage:
    """A storage whose requests all go through `proxy`."""
    return S3Storage(f"s3://{bucket}/root", options(endpoint=proxy.endpoint))


def names(server: Server, bucket: str) -> list[str]:
    return [found["Key"] for found in server.client().list_objects_v2(Bucket=bucket).get("Contents", ())]


def uploads(s3: S3Proxy, bucket: str) -> list[Any]:
    return list(s3.client().list_multipart_uploads(Bucket=bucket).get("Uploads", ()))


@pytest.mark.parametrize("kind", ["lost", "done but 500", "503", "409", "reset"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_conditional_put_that_a_fault_met_is_done_once(
    storage: S3Storage, proxy: FaultProxy, kind: Kind, times: int
) -> None:
    proxy.fail(kind, "PUT", times=times)
    storage.put("a", b"mine", if_absent=True)
    assert storage.get("a") == b"mine"
    assert proxy.methods("/root/a").count("PUT") == times + 1


@pytest.mark.parametrize("kind", ["lost", "done but 500", "409", "reset"])
def test_the_last_request_of_parts_that_a_fault_met_is_done_once(
    s3: S3Proxy, bucket: str, storage: S3Storage, proxy: FaultProxy, kind: Kind
) -> None:
    proxy.fail(kind, "POST", "uploadId=")
    assert storage.upload("a", io.BytesIO(LARGE)) == len(LARGE)
    assert storage.get("a") == LARGE
    assert uploads(s3, bucket) == []


@pytest.mark.parametrize("data", [b"mine", LARGE], ids=["whole", "parts"])
def test_when_every_answer_is_lost_what_is_there_counts(
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
    def other() -> None:
        s3.client().put_object(Bucket=bucket, Key="root/a", Body=b"another's")

    proxy.fail(
        kind, "PUT" if len(data) < PART else "POST", "" if len(data) < PART else "uploadId", then=other
    )
    with pytest.raises(AlreadyExists, match="a is there already"):
        storage.upload("a", io.BytesIO(data))
    assert storage.get("a") == b"another's"
    assert uploads(s3, bucket) == []


def test_an_upload_that_went_with_a_lost_race_tells_who_was_first(
    storage: S3Storage, proxy: FaultProxy, bucket: str, s3: S3Proxy
) -> None:
    def other() -> None:
        for upload in uploads(s3, bucket):
            s3.client().abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
        s3.client().put_object(Bucket=bucket, Key="root/a", Body=b"another's")

    proxy.fail("409", "POST", "uploadId", then=other)
    with pytest.raises(AlreadyExists, match="root/a is there already"):
        storage.upload("a", io.BytesIO(LARGE))
    assert storage.get("a") == b"another's"


def test_an_upload_that_is_gone_with_nobody_first_is_no_lost_race(
    storage: S3Storage, proxy: FaultProxy, bucket: str, s3: S3Proxy
) -> None:
    def gone() -> None:
        for upload in uploads(s3, bucket):
            s3.client().abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])

    proxy.fail("409", "POST", "uploadId", then=gone)
    with pytest.raises(EnvironmentProblem, match="NoSuchUpload"):
        storage.upload("a", io.BytesIO(LARGE))


def test_whatever_goes_wrong_each_name_has_one_winner_who_knows_or_is_told_of_the_trouble(
    bucket: str, proxy: FaultProxy
) -> None:
    seeded = random.Random(7)
    kinds: tuple[Kind, ...] = ("lost", "done but 500", "503", "409", "reset", "cut")
    proxy.chance = lambda: seeded.choice(kinds) if seeded.random() < 0.25 else None
    storage = S3Storage(f"s3://{bucket}", options(endpoint=proxy.endpoint))
    contenders, turns = 4, 40
    together = threading.Barrier(contenders)

    def contend(number: int) -> list[str]:
        said = []
        for turn in range(turns):
            together.wait()
            try:
                storage.put(f"{turn:03d}", b"%d" % number, if_absent=True)
            except AlreadyExists:
                said.append("lost")
            except EnvironmentProblem:
                said.append("unknown")
            else:
                said.append("won")
        return said

    with ThreadPoolExecutor(contenders) as pool:
        said = list(pool.map(contend, range(contenders)))
    plain = S3Storage(f"s3://{bucket}", options())
    there = {found.path: int(plain.get(found.path)) for found in plain.list()}
    for turn in range(turns):
        answers = [said[number][turn] for number in range(contenders)]
        owner = there.get(f"{turn:03d}")
        for number, answer in enumerate(answers):
            assert answer != "won" or number == owner, (turn, answers, owner)
            assert answer != "lost" or owner not in (None, number), (turn, answers, owner)
    everything = [answer for answers in said for answer in answers]
    assert everything.count("won") > turns / 2
    assert everything.count("unknown") < len(everything) / 2  # the SDK soon stops trying again


def test_when_nothing_can_be_found_out_it_is_not_said_that_the_name_is_taken(
    storage: S3Storage, proxy: FaultProxy
) -> None:
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
    assert (names(s3, bucket), uploads(s3, bucket)) == ([], [])


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
    assert (names(s3, bucket), uploads(s3, bucket)) == ([], [])


def test_a_silent_server_is_asked_again(proxy: FaultProxy, bucket: str) -> None:
    storage = S3Storage(f"s3://{bucket}", options(endpoint=proxy.endpoint, read_timeout=2))
    for method in ("PUT", "GET", "HEAD", "DELETE"):
        proxy.fail("silent", method)
    storage.put("a", b"x", if_absent=True)
    assert storage.get("a") == b"x"
    assert storage.stat("a").bytes == 1
    storage.delete("a")
    assert list(storage.list()) == []


def test_who_is_in_a_hurry_soon_asks_again_and_soon_gives_up(proxy: FaultProxy, bucket: str) -> None:
    storage = S3Storage(f"s3://{bucket}", options(endpoint=proxy.endpoint, max_attempts=9)).hurried(2)
    assert storage.uri == f"s3://{bucket}"
    proxy.fail("silent", "PUT")
    began = time.monotonic()
    storage.put("a", b"x", if_absent=True)
    assert time.monotonic() - began < 20  # a minute of silence is what others bear
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
    storage.put("a", b"x")  # half of one byte is none: no way forward
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


def test_a_stream_can_be_moved(storage: S3Storage) -> None:
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


def test_one_of_many_wins_with_parts_too(storage: S3Storage, s3: S3Proxy, bucket: str) -> None:
    together = threading.Barrier(3)

    def contend(number: int) -> int | None:
        together.wait()
        try:
            storage.upload("a", io.BytesIO(b"%d" % number * (PART + 1)))
        except AlreadyExists:
            return None
        return number

    with ThreadPoolExecutor(3) as pool:
        won = [number for number in pool.map(contend, range(3)) if number is not None]
    assert len(won) == 1
    assert storage.get("a") == b"%d" % won[0] * (PART + 1)
    assert uploads(s3, bucket) == []


def _contend(uri: str, number: int) -> list[int]:
    storage, won = open_storage(uri), []
    for turn in range(25):
        try:
            storage.put(f"turn/{turn}", b"%d" % number, if_absent=True)
        except AlreadyExists:
            continue
        won.append(turn)
    return won


def test_one_of_many_processes_wins(bucket: str) -> None:
    uri = f"s3://{bucket}/root"
    with multiprocessing.get_context("forkserver").Pool(4) as pool:
        won = pool.starmap(_contend, [(uri, number) for number in range(4)])
    assert sorted(turn for turns in won for turn in turns) == list(range(25))
    storage = open_storage(uri)
    for number, turns in enumerate(won):
        assert all(storage.get(f"turn/{turn}") == b"%d" % number for turn in turns)


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


def test_it_travels_to_workers(storage: S3Storage) -> None:
    storage.put("a", b"1")
    carried = pickle.dumps(storage)
    assert SECRET_KEY.encode() not in carried
    assert pickle.loads(carried).get("a") == b"1"


def test_memory_does_not_grow_with_the_object(bucket: str) -> None:
    storage = S3Storage(f"s3://{bucket}", options())

    class Zeros:
        left = 30 * PART

        def read(self, size: int) -> bytes:
            size = min(size, self.left)
            self.left -= size
            return bytes(size)

    tracemalloc.start()
    try:
        assert storage.upload("a", Zeros()) == 30 * PART
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * PART
    assert storage.stat("a").bytes == 30 * PART


def test_metadata_goes_with_the_object(storage: S3Storage, s3: S3Proxy, bucket: str) -> None:
    wanted = {"lakebackup-last-position": "3:42", "lakebackup-max-ts": "1700000000000"}
    storage.put("put", b"x", metadata=wanted)
    storage.upload("parts", io.BytesIO(LARGE), metadata=wanted)
    with storage.writer() as writer:
        writer.write(b"x")
        writer.commit("written", metadata=wanted)
    for name in ("put", "parts", "written"):
        found = s3.client().head_object(Bucket=bucket, Key=f"root/{name}")["Metadata"]
        assert found.items() >= wanted.items()


def test_metadata_that_s3_cannot_keep(storage: S3Storage) -> None:
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


def test_what_a_request_costs(storage: S3Storage, proxy: FaultProxy) -> None:
    storage.put("a", b"x", if_absent=True)
    storage.get("a")
    storage.stat("a")
    list(storage.list())
    list(storage.folders())
    assert proxy.methods() == ["PUT", "GET", "HEAD", "GET", "GET"]


def test_more_objects_than_one_page(s3: S3Proxy, bucket: str) -> None:
    storage, plain = S3Storage(f"s3://{bucket}", options()), s3.client()
    expected = sorted(f"a/{number}" for number in range(1003))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: plain.put_object(Bucket=bucket, Key=key, Body=b""), expected))
    assert [found.path for found in storage.list("a/")] == expected


@pytest.mark.parametrize("data", [b"abcdef", LARGE], ids=["whole", "parts"])
def test_a_lost_bit_on_the_way_is_noticed(storage: S3Storage, proxy: FaultProxy, data: bytes) -> None:
    storage.upload("a", io.BytesIO(data))
    proxy.fail("flipped", "GET")
    with pytest.raises(Damaged, match="checksum"):
        storage.get("a")
    proxy.fail("flipped", "PUT")
    with pytest.raises(EnvironmentProblem, match="Cannot write b"):
        storage.upload("b", io.BytesIO(data))
    assert [found.path for found in storage.list()] == ["a"]


def test_encryption_is_asked_for(proxy: FaultProxy, bucket: str) -> None:
    wanted = options(endpoint=proxy.endpoint, sse="aws:kms", kms_key_id="alias/backups")
    storage = S3Storage(f"s3://{bucket}", wanted)
    for send in (lambda: storage.put("a", b"x"), lambda: storage.upload("b", io.BytesIO(LARGE))):
        proxy.requests.clear()
        with pytest.raises(EnvironmentProblem, match=r"Server-side encryption is not supported"):
            send()
        headers = next(headers for method, _, headers in proxy.requests if method in ("PUT", "POST"))
        assert headers["x-amz-server-side-encryption"] == "aws:kms"
        assert headers["x-amz-server-side-encryption-aws-kms-key-id"] == "alias/backups"


def test_no_faster_than_allowed(proxy: FaultProxy, bucket: str) -> None:
    storage = S3Storage(f"s3://{bucket}", options(endpoint=proxy.endpoint, max_bandwidth=2 * PART))
    began = time.monotonic()
    storage.upload("a", io.BytesIO(LARGE))
    storage.put("b", LARGE)
    assert time.monotonic() - began > 0.5  # twice a part at two parts a second, the first bit at once
    assert storage.get("a") == storage.get("b") == LARGE


def test_a_delete_that_is_refused_is_told(storage: S3Storage, proxy: FaultProxy) -> None:
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
def test_who_is_refused_is_told_so(
    bucket: str, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], complaint: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    _everything_fails(f"s3://{bucket}/root", options(connect_timeout=11), complaint)


def test_a_bucket_that_is_not_there(s3: S3Proxy) -> None:
    _everything_fails(
        "s3://no-such-bucket/root", options(), rf"no bucket no-such-bucket at {s3.endpoint}.*Create"
    )


def test_a_server_that_is_not_there(bucket: str) -> None:
    endpoint = f"http://127.0.0.1:{free_port()}"
    nowhere = options(endpoint=endpoint, max_attempts=1)
    _everything_fails(f"s3://{bucket}", nowhere, rf"{bucket}.*{endpoint}.*Check the network and the endpoint")


def test_a_region_that_is_none(bucket: str) -> None:
    _everything_fails(f"s3://{bucket}", options(region="no such"), r"no such")


def _everything_fails(uri: str, settings: S3Options, complaint: str) -> None:
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


def test_by_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SecureS3Proxy(tmp_path / "secure") as server:
        bucket = server.bucket()
        unknown = S3Storage(f"s3://{bucket}", options(endpoint=server.endpoint, max_attempts=1))
        with pytest.raises(EnvironmentProblem, match=r"SSL[\s\S]*AWS_CA_BUNDLE"):
            unknown.put("a", b"x")
        monkeypatch.setenv("AWS_CA_BUNDLE", str(server.certificate))
        # Here the body's checksum comes behind it, and the body is not signed.
        storage = S3Storage(f"s3://{bucket}", options(endpoint=server.endpoint))
        storage.put("a", b"x", if_absent=True)
        storage.upload("b", io.BytesIO(LARGE))
        with pytest.raises(AlreadyExists):
            storage.upload("a", io.BytesIO(b"y"))
        assert (storage.get("a"), storage.get("b")) == (b"x", LARGE)
        paced = S3Storage(f"s3://{bucket}", options(endpoint=server.endpoint, max_bandwidth=4 * PART))
        paced.put("c", LARGE)
        assert storage.get("c") == LARGE


def test_a_server_that_knows_no_checksums(
    proxy: FaultProxy, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    storage = S3Storage(f"s3://{bucket}", options(endpoint=proxy.endpoint, connect_timeout=12))
    storage.put("a", b"x")
    storage.upload("b", io.BytesIO(LARGE))
    assert storage.get("b") == LARGE
    sent = [name.lower() for method, _, headers in proxy.requests if method != "GET" for name in headers]
    assert "x-amz-content-sha256" in sent
    assert not [name for name in sent if "checksum" in name]


def _versions(server: Server, bucket: str) -> list[tuple[str, str]]:
    found = server.client().list_object_versions(Bucket=bucket).get("Versions", ())
    return [(version["Key"], version["VersionId"]) for version in found]


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
    plain = versity.client()
    kept = dict.fromkeys(_versions(versity, bucket))
    assert sorted(key for key, _ in kept) == ["data", "data", "leases/x", "parts"]
    first = [version for key, version in kept if key == "data"][-1]
    assert plain.get_object(Bucket=bucket, Key="data", VersionId=first)["Body"].read() == b"good"
    for key, version in kept:
        if key == "leases/x":
            plain.delete_object(Bucket=bucket, Key=key, VersionId=version)
            continue
        until = plain.get_object_retention(Bucket=bucket, Key=key, VersionId=version)["Retention"]
        assert until["Mode"] == "COMPLIANCE"
        assert 1.9 < (until["RetainUntilDate"] - datetime.now(UTC)).total_seconds() / 86_400 < 2.1
        with pytest.raises(ClientError, match="AccessDenied"):
            plain.delete_object(Bucket=bucket, Key=key, VersionId=version)


def test_a_lock_the_bucket_does_not_have_is_told(versity: Versity) -> None:
    locking = options(endpoint=versity.endpoint, object_lock_mode="GOVERNANCE", object_lock_days=1)
    storage = S3Storage(f"s3://{versity.bucket()}", locking)
    with pytest.raises(EnvironmentProblem, match=r"(?i)object lock"):
        storage.put("a", b"")


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
    assert [(found.path, found.bytes) for found in storage.list()] == [("a", 1)]
    assert len(_versions(versity, bucket)) == 3
