"""The contract of every storage backend. Add a new backend to the parameters of the fixture `storage`."""

from __future__ import annotations

import hashlib
import io
import threading
from pathlib import Path

import pytest
from tests.support.s3 import Server

from lakebackup.encryption.metadata_key import MetadataKey
from lakebackup.encryption.objects import DataKey
from lakebackup.encryption.storage import EncryptedStorage, RepositoryUri
from lakebackup.errors import NotFound, UsageProblem
from lakebackup.storage import AlreadyExists, Storage, local, open_storage
from lakebackup.storage.options import S3Options
from lakebackup.storage.s3 import S3Storage

ESCAPES = ["", "/etc/passwd", "..", "../x", "a/../../x", "a/./b", "a//b", "a/", "/", ".", "a\0b"]


# versitygw is built from source, which takes minutes.
VERSITY = pytest.param("versity", marks=[pytest.mark.s3, pytest.mark.long])


S3 = pytest.param("s3", marks=pytest.mark.s3)
ENCRYPTED_S3 = pytest.param("encrypted s3", marks=pytest.mark.s3)


@pytest.fixture(params=["local", "encrypted local", S3, ENCRYPTED_S3, VERSITY])
def storage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """An empty storage of each kind, whose root does not exist yet."""
    *encrypted, kind = request.param.split()
    if kind == "local":
        plain = open_storage(str(tmp_path / "a place" / "root"))
    else:
        server: Server = request.getfixturevalue(kind)
        options = S3Options(endpoint=server.endpoint).resolved()
        for name, value in options.variables().items():
            monkeypatch.setenv(name, value)
        plain = S3Storage(f"s3://{server.bucket()}/a place/root", options)
    key = MetadataKey(DataKey.random())
    return RepositoryUri.of(plain.uri, key, tmp_path / "key").open(plain) if encrypted else plain


def paths(storage: Storage, prefix: str = "") -> list[str]:
    return [entry.path for entry in storage.list(prefix)]


def test_a_storage_never_written_to_is_empty(storage: Storage) -> None:
    assert paths(storage) == []
    assert list(storage.folders()) == []
    with pytest.raises(NotFound):
        storage.get("a")


def test_stored_files_are_private(storage: Storage, tmp_path: Path) -> None:
    """Applies to file systems only: object storage has policies instead of permission bits."""
    storage.put("a/b", b"x")
    storage.upload("a/c", io.BytesIO(b"x"))
    with storage.writer() as writer:
        writer.write(b"x")
        writer.commit("d/e")
    if storage.uri.startswith("s3:"):
        return
    root = tmp_path / "a place" / "root"
    bits = {path.stat().st_mode & 0o777 for path in root.rglob("*") if path.is_file()}
    assert (bits, root.stat().st_mode & 0o777) == ({0o600}, 0o700)
    assert {path.stat().st_mode & 0o777 for path in root.rglob("*") if path.is_dir()} == {0o700}


def test_get_returns_the_bytes_that_were_put(storage: Storage) -> None:
    storage.put("a/b/c", b"\0\xff" * 3)
    assert storage.get("a/b/c") == b"\0\xff" * 3
    with storage.open("a/b/c") as stream:
        assert stream.read(1) + stream.read() == b"\0\xff" * 3
    assert storage.sha256("a/b/c") == hashlib.sha256(b"\0\xff" * 3).hexdigest()


def test_an_empty_object_is_an_object(storage: Storage) -> None:
    storage.put("empty", b"")
    assert storage.get("empty") == b""
    assert storage.stat("empty").bytes == 0
    assert paths(storage) == ["empty"]


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [(0, None, b"0123456789"), (3, 4, b"3456"), (8, 5, b"89"), (10, 1, b""), (99, None, b""), (4, 0, b"")],
)
def test_get_reads_a_range(storage: Storage, start: int, length: int | None, expected: bytes) -> None:
    storage.put("digits", b"0123456789")
    assert storage.get("digits", start=start, length=length) == expected


@pytest.mark.parametrize(("start", "length"), [(-1, None), (0, -1)])
def test_invalid_ranges_are_refused(storage: Storage, start: int, length: int | None) -> None:
    storage.put("digits", b"0123456789")
    with pytest.raises(UsageProblem):
        storage.get("digits", start=start, length=length)


def test_put_replaces_an_object_unless_if_absent(storage: Storage) -> None:
    storage.put("x", b"1")
    storage.put("x", b"22")
    assert storage.get("x") == b"22"
    with pytest.raises(AlreadyExists, match="x"):
        storage.put("x", b"333", if_absent=True)
    assert storage.get("x") == b"22"


def test_a_conditional_put_has_one_winner(storage: Storage) -> None:
    contenders = 8
    won_turns: list[int] = []
    barrier = threading.Barrier(contenders)

    def contend(number: int) -> None:
        for turn in range(20):
            barrier.wait()
            try:
                storage.put(f"turn/{turn}", b"%d" % number, if_absent=True)
            except AlreadyExists:
                continue
            won_turns.append(turn)
            assert storage.get(f"turn/{turn}") == b"%d" % number

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(contenders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won_turns) == list(range(20))


def test_a_writer_shows_nothing_before_it_commits(storage: Storage) -> None:
    with storage.writer() as writer:
        writer.write(b"one")
        writer.write(bytearray(b"two"))
        writer.write(memoryview(b"three"))
        assert paths(storage) == []
        assert list(storage.folders()) == []
        writer.commit("f/data")
        assert paths(storage) == ["f/data"]
    assert storage.get("f/data") == b"onetwothree"


def test_a_writer_left_without_commit_leaves_nothing(storage: Storage) -> None:
    with storage.writer() as writer:
        writer.write(b"x" * 100_000)
    assert paths(storage) == []

    def fail() -> None:
        with storage.writer() as writer:
            writer.write(b"x" * 100_000)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert paths(storage) == []


@pytest.mark.parametrize("suffix", [b"", b", longer"])
def test_a_writer_stays_usable_after_losing_a_name(storage: Storage, suffix: bytes) -> None:
    if suffix and isinstance(storage, EncryptedStorage):
        pytest.skip("an encrypted object is complete once it was committed")
    storage.put("seq/0", b"taken")
    with storage.writer() as writer:
        writer.write(b"mine")
        with pytest.raises(AlreadyExists):
            writer.commit("seq/0")
        writer.write(suffix)
        writer.commit("seq/1")
    assert (storage.get("seq/0"), storage.get("seq/1")) == (b"taken", b"mine" + suffix)


def test_a_writer_replaces_an_object_without_if_absent(storage: Storage) -> None:
    storage.put("x", b"old")
    with storage.writer() as writer:
        writer.write(b"new")
        writer.commit("x", if_absent=False)
    assert storage.get("x") == b"new"


def test_many_objects_are_put_at_once(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_OPEN_FILES", 7)
    storage.put("d0/3", b"old")
    objects = {f"d{number % 3}/{number}": b"%d" % number for number in range(20)}
    storage.put_all(objects)
    storage.put_all({})
    assert {path: storage.get(path) for path in paths(storage)} == objects
    with pytest.raises(UsageProblem):
        storage.put_all({"e/1": b"", "../e": b""})


def test_upload_takes_a_stream_to_its_end(storage: Storage) -> None:
    data = bytes(range(256)) * 9_000
    assert storage.upload("a/big", io.BytesIO(data), size_hint=5) == len(data)
    assert storage.upload("a/empty", io.BytesIO()) == 0
    assert (storage.get("a/big"), storage.get("a/empty")) == (data, b"")
    with pytest.raises(AlreadyExists, match="a/big"):
        storage.upload("a/big", io.BytesIO(b"other"))
    assert storage.upload("a/big", io.BytesIO(b"other"), if_absent=False, metadata={"what": "x"}) == 5
    assert storage.get("a/big") == b"other"


def test_upload_of_a_source_that_fails_publishes_nothing(storage: Storage) -> None:
    class Failing:
        remaining = 3

        def read(self, size: int) -> bytes:
            self.remaining -= 1
            if not self.remaining:
                raise InterruptedError("the source is gone")
            return b"x" * min(size, 100)

    with pytest.raises(InterruptedError, match="the source is gone"):
        storage.upload("a", Failing())
    assert paths(storage) == []


def test_stat_gives_path_size_and_time(storage: Storage) -> None:
    storage.put("a/b", b"12345")
    stat = storage.stat("a/b")
    assert (stat.path, stat.bytes) == ("a/b", 5)
    assert stat.modified_ms > 1_600_000_000_000
    assert list(storage.list()) == [stat]


@pytest.mark.parametrize("path", ["nothing", "a", "a/b/c", "a/nothing"])
def test_a_missing_object_is_not_found(storage: Storage, path: str) -> None:
    if path == "a/b/c" and storage.uri.startswith("s3:"):
        pytest.skip("S3Proxy on a folder answers 500 for a path below an object")
    storage.put("a/b", b"")
    for operation in (storage.get, storage.stat, storage.open):
        with pytest.raises(NotFound, match=path):
            operation(path)


def test_children_are_the_names_below_a_folder(storage: Storage) -> None:
    for path in ("a/b", "a/c/d", "a/c/e/f", "g"):
        storage.put(path, b"1")
    assert dict(storage.children("a/")) == {"b": storage.stat("a/b"), "c": None}
    assert dict(storage.children()) == {"a": None, "g": storage.stat("g")}
    assert list(storage.children("x/")) == []


def test_list_is_in_the_order_of_the_paths(storage: Storage) -> None:
    names = [
        "a/b",
        "a-x",
        "a.txt",
        "a/b.c/d",
        "a/b-/e",
        "é/ü",
        "Z",
        "a0",
        "b/partition=10/x",
        "b/partition=2/x",
    ]
    for name in names:
        storage.put(name, b"")
    storage.delete("a/b")
    storage.put("a/b/c", b"")
    expected = sorted([*names[1:], "a/b/c"])
    assert paths(storage) == expected
    assert paths(storage, "a/") == [name for name in expected if name.startswith("a/")]
    assert paths(storage, "a/b/") == ["a/b/c"]
    assert paths(storage, "nowhere/") == []
    assert list(storage.folders()) == ["a", "b", "é"]
    assert list(storage.folders("b/")) == ["partition=10", "partition=2"]
    assert list(storage.folders("nowhere/")) == []


@pytest.mark.parametrize("start_after", ["", "log/", "log/002", "log/002.json", "log/004.json", "log/9", "z"])
def test_a_list_begins_after_a_path(storage: Storage, start_after: str) -> None:
    names = ["log/.001.crc", "log/001.json", "log/002.json", "log/002.parquet", "log/004.json", "log/x/1"]
    for name in names:
        storage.put(name, b"")
    assert [entry.path for entry in storage.list("log/", start_after=start_after)] == [
        n for n in names if n > start_after
    ]


def test_a_prefix_is_a_folder(storage: Storage) -> None:
    with pytest.raises(UsageProblem, match="folder"):
        paths(storage, "a")
    with pytest.raises(UsageProblem, match="folder"):
        list(storage.folders("a"))


def test_a_deleted_object_is_gone(storage: Storage) -> None:
    storage.put("a/b", b"")
    storage.delete("a/b")
    storage.delete("a/b")
    storage.delete("never/was")
    assert paths(storage) == []
    assert list(storage.folders()) == []
    storage.put("a/b", b"again", if_absent=True)
    assert storage.get("a/b") == b"again"


@pytest.mark.parametrize("path", ESCAPES)
def test_a_path_cannot_leave_the_root(storage: Storage, path: str) -> None:
    storage.put("kept", b"")
    for operation in (storage.get, storage.stat, storage.open, storage.delete):
        with pytest.raises(UsageProblem):
            operation(path)
    with pytest.raises(UsageProblem):
        storage.put(path, b"")
    with storage.writer() as writer, pytest.raises(UsageProblem):
        writer.commit(path)
    assert paths(storage) == ["kept"]


def test_the_uri_opens_the_same_storage(storage: Storage) -> None:
    storage.put("a", b"1")
    assert open_storage(storage.uri).get("a") == b"1"
