"""The task of a restore that writes files, in folders that somebody prepared and from damaged objects."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.roots import roots_of

from lakebackup.errors import Damaged, EnvironmentProblem, Refused
from lakebackup.formats.snapshots.names import OWN
from lakebackup.storage import Storage, open_storage
from lakebackup.store.plan_file import write_plan_file
from lakebackup_jobs.lifecycle.tasks.plan_shares import Share, store_plan
from lakebackup_jobs.snapshots import ranges
from lakebackup_jobs.snapshots.ranges import Ranges
from lakebackup_jobs.snapshots.tasks import write as write_task
from lakebackup_jobs.snapshots.tasks.write import UNFINISHED, File, Folder, WriteJob

DATA = bytes(range(256)) * 40
NOW_MS = 1_700_000_000_123


def file(target: str, data: bytes = DATA, *, path: str = "o", position: int = 0, **changes: Any) -> File:
    defaults = {"mtime_ms": NOW_MS, "mode": 0o640, "links": 1, "destination": "d", "key_id": None}
    sha256 = hashlib.sha256(data).hexdigest()
    sizes = {"bytes": len(data), "codec": "none", "stored_bytes": changes.get("bytes", len(data))}
    columns = {**sizes, "sha256": sha256, **defaults, **changes}
    return File(target=target, path=path, position=position, **columns)


@pytest.fixture
def target_folder(tmp_path: Path) -> Path:
    (tmp_path / "out" / OWN / UNFINISHED).mkdir(parents=True)
    return tmp_path / "out"


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path / "backups"))


def write(target_folder: Path, entry: File, data: bytes = DATA, linked: File | None = None) -> bool:
    with Folder(str(target_folder)) as folder:
        return folder.write(entry, lambda: iter([memoryview(data)]), linked)


def write_share(target_folder: Path, storage: Storage, files: Sequence[File]) -> dict[str, Any]:
    """Write the files of one share, as a task of Spark does; returns its row."""
    rows = pa.Table.from_pylist([asdict(entry) for entry in files])
    own_storage = open_storage(str(target_folder / OWN))
    plan_file = write_plan_file([rows.to_reader()])
    shares = store_plan(own_storage, "", plan_file, [Share(0, len(files))], {})
    job = WriteJob(str(target_folder), own_storage.uri, shares, roots_of(d=storage.uri), syncs=True)
    (batch,) = job([pa.RecordBatch.from_pydict({"id": [0]})])
    row: dict[str, Any] = batch.to_pylist()[0]
    return row


def test_a_file_has_its_bytes_time_and_permissions(target_folder: Path) -> None:
    assert write(target_folder, file("t1/a/x.sst"))
    path = target_folder / "t1/a/x.sst"
    assert path.read_bytes() == DATA
    assert path.stat().st_mtime_ns == NOW_MS * 1_000_000
    assert path.stat().st_mode & 0o7777 == 0o640
    assert not list((target_folder / OWN / UNFINISHED).iterdir())


@pytest.mark.parametrize(
    ("data", "blocks"),
    [
        (bytes(8 << 20), 0),
        (b"x" + bytes(8 << 20) + b"y", 16),
        (bytes(1 << 20) + b"x" * 4096 + bytes(5000), 16),
        (b"x" * 4096 + bytes(100), 16),
        (b"", 0),
    ],
)
def test_zero_blocks_become_holes_and_the_bytes_stay(target_folder: Path, data: bytes, blocks: int) -> None:
    assert write(target_folder, file("a", data), data)
    assert (target_folder / "a").read_bytes() == data
    assert (target_folder / "a").stat().st_blocks <= blocks


def test_setuid_and_setgid_bits_are_not_restored(target_folder: Path) -> None:
    write(target_folder, file("x", mode=0o6755))
    assert (target_folder / "x").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize("data", [DATA[:-1], DATA + b"x", b"y" + DATA[1:], b""])
def test_a_file_with_other_bytes_does_not_get_its_name(target_folder: Path, data: bytes) -> None:
    with pytest.raises(Damaged, match="sha256"):
        write(target_folder, file("a/x"), data)
    assert not (target_folder / "a/x").exists()
    assert not list((target_folder / OWN / UNFINISHED).iterdir())


def test_a_link_to_elsewhere_is_not_followed(target_folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (target_folder / "t1").symlink_to(elsewhere)
    (target_folder / "deep").mkdir()
    (target_folder / "deep/er").symlink_to(elsewhere)
    for target in ("t1/x", "t1/a/x", "deep/er/x"):
        with pytest.raises(Refused, match="symbolic link"):
            write(target_folder, file(target))
    (target_folder / "y").symlink_to(elsewhere / "y")
    with pytest.raises(Refused, match="not written by this restore"):
        write(target_folder, file("y"))
    assert not list(elsewhere.iterdir())


def test_a_file_of_someone_else_is_not_replaced(target_folder: Path) -> None:
    (target_folder / "x").write_bytes(DATA)
    (target_folder / "d").mkdir()
    for target, why in (("x", "not written by this restore"), ("d", "not written"), ("x/y", "in the way")):
        with pytest.raises(Refused, match=why):
            write(target_folder, file(target))
    assert (target_folder / "x").read_bytes() == DATA


def test_complete_files_of_an_earlier_run_stay_and_torn_ones_are_written_again(target_folder: Path) -> None:
    entry = file("x")
    assert write(target_folder, entry)
    inode = (target_folder / "x").stat().st_ino
    assert not write(target_folder, entry, b"not read at all")
    assert (target_folder / "x").stat().st_ino == inode
    # As after a power cut: the file has its time and lacks bytes.
    for torn in (b"", DATA[:100], b"\0" * len(DATA)):
        (target_folder / "x").write_bytes(torn)
        os.utime(target_folder / "x", ns=(0, NOW_MS * 1_000_000))
        assert write(target_folder, entry)
        assert (target_folder / "x").read_bytes() == DATA


def test_a_file_of_unknown_size_is_kept_by_its_checksum(target_folder: Path) -> None:
    entry = file("x", bytes=None)
    assert write(target_folder, entry)
    assert not write(target_folder, entry)


def test_a_file_without_a_checksum_is_not_written_and_the_others_are(
    target_folder: Path, storage: Storage
) -> None:
    """An imported row without a checksum could name any bytes."""
    storage.put("o", DATA)
    result = write_share(target_folder, storage, [file("x", sha256=None), file("y")])
    assert (result["entries"], result["damaged"]) == (1, 1)
    assert "no checksum" in result["names"]
    assert (target_folder / "y").read_bytes() == DATA
    assert not (target_folder / "x").exists()


def test_a_folder_that_the_restore_did_not_prepare_is_refused(tmp_path: Path) -> None:
    for exists in (False, True):
        if exists:
            (tmp_path / "new").mkdir()
        with pytest.raises(EnvironmentProblem, match="not the folder"):
            Folder(str(tmp_path / "new"))
    (tmp_path / "elsewhere" / UNFINISHED).mkdir(parents=True)
    (tmp_path / "new" / OWN).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EnvironmentProblem, match="not the folder"):
        Folder(str(tmp_path / "new"))


def test_the_number_of_open_folders_is_bounded(target_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_task, "_OPEN_FOLDERS", 4)
    handles = len(list(Path("/proc/self/fd").iterdir()))
    with Folder(str(target_folder)) as folder:
        for number in range(40):
            folder.write(file(f"a/b/c{number % 7}/{number}"), lambda: iter([memoryview(DATA)]), None)
        assert len(list(Path("/proc/self/fd").iterdir())) <= handles + 8
    assert len(list(Path("/proc/self/fd").iterdir())) == handles
    assert len(list(target_folder.glob("a/b/*/*"))) == 40


def test_files_with_one_object_and_time_are_hard_links_again(target_folder: Path, storage: Storage) -> None:
    storage.put("o", DATA)
    twins = [file("a", links=2), file("b/c", links=2)]
    separate = [
        file("later", links=2, mtime_ms=NOW_MS + 1),
        file("open", links=2, mode=0o666),
        file("single"),
    ]
    result = write_share(target_folder, storage, [*twins, *separate])
    assert (result["entries"], result["damaged"], result["error"]) == (5, 0, None)
    assert (target_folder / "a").samefile(target_folder / "b/c")
    assert {(target_folder / entry.target).stat().st_nlink for entry in separate} == {1}
    (target_folder / "b/c").unlink()  # as if interrupted before the second
    result = write_share(target_folder, storage, twins)
    assert (result["entries"], result["kept"]) == (2, 1)
    assert (target_folder / "a").samefile(target_folder / "b/c")


def test_empty_and_damaged_files_are_not_linked(target_folder: Path, storage: Storage) -> None:
    storage.put("o", DATA)
    empty = [file(name, b"", links=2) for name in ("a", "b")]
    result = write_share(
        target_folder, storage, [*empty, file("c"), file("end", b"", position=len(DATA), links=2)]
    )
    assert (result["entries"], result["damaged"], result["error"]) == (4, 0, None)
    assert {(target_folder / name).stat().st_nlink for name in ("a", "b", "c", "end")} == {1}
    # A link does not avoid the comparison of checksums.
    result = write_share(target_folder, storage, [file("d", links=2), file("e", links=2, sha256="0" * 64)])
    assert (result["entries"], result["damaged"]) == (1, 1)
    assert not (target_folder / "e").exists()
    storage.put("o", b"x" + DATA[1:])
    result = write_share(target_folder, storage, [file("f", links=2), file("g", links=2)])
    assert (result["entries"], result["damaged"]) == (0, 2)


def test_links_between_deep_folders_find_their_folders_open(
    target_folder: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_task, "_OPEN_FOLDERS", 6)
    storage.put("o", DATA)
    deep = ["/".join([letter, *"123456789", "x"]) for letter in "ab"]
    result = write_share(target_folder, storage, [file(name, links=2) for name in deep])
    assert (result["entries"], result["error"]) == (2, None)
    assert (target_folder / deep[0]).samefile(target_folder / deep[1])


def test_a_file_that_appears_during_the_write_is_not_replaced(target_folder: Path) -> None:
    def chunks() -> Iterator[memoryview]:
        (target_folder / "x").write_bytes(b"mine")
        yield memoryview(DATA)

    with Folder(str(target_folder)) as folder, pytest.raises(Refused, match="not written by this restore"):
        folder.write(file("x"), chunks, None)
    assert (target_folder / "x").read_bytes() == b"mine"
    assert not list((target_folder / OWN / UNFINISHED).iterdir())


def test_without_hard_links_each_name_is_a_file(
    target_folder: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    storage.put("o", DATA)
    monkeypatch.setattr(os, "link", refuse)
    assert write_share(target_folder, storage, [file("a", links=2), file("b", links=2)])["entries"] == 2
    assert (target_folder / "a").read_bytes() == (target_folder / "b").read_bytes() == DATA
    assert (target_folder / "b").stat().st_mtime_ns == NOW_MS * 1_000_000


def test_damage_affects_only_the_files_that_it_hits(target_folder: Path, storage: Storage) -> None:
    storage.put("pack", DATA + b"x" + DATA[1:] + DATA[: len(DATA) // 2])
    packed = partial(file, path="pack")
    files = [
        packed("ok"),
        packed("flipped", position=len(DATA)),
        packed("torn", position=2 * len(DATA)),
        file("gone", path="no"),
    ]
    result = write_share(target_folder, storage, files)
    assert (result["entries"], result["bytes"], result["damaged"], result["error"]) == (1, len(DATA), 3, None)
    assert [name.partition(":")[0] for name in json.loads(result["names"])] == ["flipped", "torn", "gone"]
    assert sorted(path.name for path in target_folder.iterdir()) == sorted([OWN, "ok"])


def test_a_name_that_is_taken_ends_the_task_with_an_error(target_folder: Path, storage: Storage) -> None:
    storage.put("o", DATA)
    (target_folder / "b").write_bytes(b"mine")
    result = write_share(target_folder, storage, [file("a"), file("b")])
    assert json.loads(result["error"])["kind"] == "Refused"


class RecordingStorage:
    """A storage of one object that records the requests for it."""

    def __init__(self, data: bytes) -> None:
        self.data, self.requests = data, list[tuple[int, int]]()

    def get(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        assert (path, length is None) == ("o", False)
        assert length is not None
        self.requests.append((start, length))
        return self.data[start : start + length]


def test_many_parts_of_an_object_come_in_few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "_WINDOW", 1000)
    monkeypatch.setattr(ranges, "_GAP", 100)
    storage = RecordingStorage(os.urandom(10_000))
    parts: list[tuple[int, int | None]] = [(10 * i, 10) for i in range(50)]
    # A part after a gap of 90 bytes, an empty one, a large one, and one far away.
    parts += [(590, 20), (600, 0), (610, 2500), (9000, 5)]
    reader = Ranges(storage, "o", parts)  # type: ignore[arg-type]
    for start, size in parts:
        assert b"".join(reader.read(start, size)) == storage.data[start : start + (size or 0)]
    assert storage.requests == [(0, 1000), (1000, 1000), (2000, 1000), (3000, 110), (9000, 5)]


def test_a_part_of_unknown_size_ends_with_its_object() -> None:
    storage = RecordingStorage(b"abc" * 1000)
    assert b"".join(Ranges(storage, "o", [(3, None)]).read(3, None)) == storage.data[3:]  # type: ignore[arg-type]
    with pytest.raises(Damaged, match="ends at byte 3000"):
        list(Ranges(storage, "o", [(2990, 20)]).read(2990, 20))  # type: ignore[arg-type]


def test_the_first_of_two_names_may_be_read_again_for_the_second() -> None:
    storage = RecordingStorage(b"abc" * 1000)
    reader = Ranges(storage, "o", [(0, 9), (0, 9), (9, 9)])  # type: ignore[arg-type]
    assert [b"".join(reader.read(0, 9)) for _ in range(2)] == [storage.data[:9]] * 2
    assert len(storage.requests) == 1
