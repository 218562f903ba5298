"""What a task of a restore does with a folder that others have prepared, and with objects that are torn."""

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
from lakebackup_jobs.snapshots import ranges
from lakebackup_jobs.snapshots.ranges import Ranges
from lakebackup_jobs.snapshots.tasks import write as write_task
from lakebackup_jobs.snapshots.tasks.write import UNFINISHED, File, Folder, WriteJob

DATA = bytes(range(256)) * 40
NOW_MS = 1_700_000_000_123


def file(target: str, data: bytes = DATA, *, path: str = "o", position: int = 0, **other: Any) -> File:
    known = {"mtime_ms": NOW_MS, "mode": 0o640, "links": 1, "destination": "d"}
    sha256 = hashlib.sha256(data).hexdigest()
    given = {"bytes": len(data), "sha256": sha256, **known, **other}
    return File(target=target, path=path, position=position, **given)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out" / OWN / UNFINISHED).mkdir(parents=True)
    return tmp_path / "out"


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path / "backups"))


def write(out: Path, one: File, data: bytes = DATA, linked: File | None = None) -> bool:
    with Folder(str(out)) as folder:
        return folder.write(one, lambda: iter([memoryview(data)]), linked)


def carry_out(out: Path, storage: Storage, files: Sequence[File]) -> dict[str, Any]:
    """One share, as Spark would have it carried out."""
    rows = pa.Table.from_pylist([asdict(one) for one in files])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    own = open_storage(str(out / OWN))
    own.put("plan/000000.arrow", sink.getvalue().to_pybytes())
    job = WriteJob(str(out), own.uri, ("plan/000000.arrow",), roots_of(d=storage.uri), syncs=True)
    (batch,) = job([pa.RecordBatch.from_pydict({"id": [0]})])
    row: dict[str, Any] = batch.to_pylist()[0]
    return row


def test_a_file_has_its_bytes_time_and_permissions(out: Path) -> None:
    assert write(out, file("t1/a/x.sst"))
    found = out / "t1/a/x.sst"
    assert found.read_bytes() == DATA
    assert found.stat().st_mtime_ns == NOW_MS * 1_000_000
    assert found.stat().st_mode & 0o7777 == 0o640
    assert not list((out / OWN / UNFINISHED).iterdir())


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
def test_zero_blocks_become_holes_and_the_bytes_stay(out: Path, data: bytes, blocks: int) -> None:
    assert write(out, file("a", data), data)
    assert (out / "a").read_bytes() == data
    assert (out / "a").stat().st_blocks <= blocks


def test_nobody_becomes_another_user_through_a_restored_file(out: Path) -> None:
    write(out, file("x", mode=0o6755))
    assert (out / "x").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize("data", [DATA[:-1], DATA + b"x", b"y" + DATA[1:], b""])
def test_a_file_that_is_not_as_it_was_does_not_get_its_name(out: Path, data: bytes) -> None:
    with pytest.raises(Damaged, match="sha256"):
        write(out, file("a/x"), data)
    assert not (out / "a/x").exists()
    assert not list((out / OWN / UNFINISHED).iterdir())


def test_a_link_to_elsewhere_is_not_followed(out: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (out / "t1").symlink_to(elsewhere)
    (out / "deep").mkdir()
    (out / "deep/er").symlink_to(elsewhere)
    for target in ("t1/x", "t1/a/x", "deep/er/x"):
        with pytest.raises(Refused, match="symbolic link"):
            write(out, file(target))
    (out / "y").symlink_to(elsewhere / "y")
    with pytest.raises(Refused, match="not written by this restore"):
        write(out, file("y"))
    assert not list(elsewhere.iterdir())


def test_a_file_of_someone_else_is_not_replaced(out: Path) -> None:
    (out / "x").write_bytes(DATA)
    (out / "d").mkdir()
    for target, why in (("x", "not written by this restore"), ("d", "not written"), ("x/y", "in the way")):
        with pytest.raises(Refused, match=why):
            write(out, file(target))
    assert (out / "x").read_bytes() == DATA


def test_what_an_earlier_run_wrote_whole_stays_and_what_it_tore_is_written_again(out: Path) -> None:
    one = file("x")
    assert write(out, one)
    before = (out / "x").stat().st_ino
    assert not write(out, one, b"not read at all")
    assert (out / "x").stat().st_ino == before
    # As after a power cut: the time is there, bytes are not.
    for torn in (b"", DATA[:100], b"\0" * len(DATA)):
        (out / "x").write_bytes(torn)
        os.utime(out / "x", ns=(0, NOW_MS * 1_000_000))
        assert write(out, one)
        assert (out / "x").read_bytes() == DATA


def test_a_file_of_unknown_size_is_kept_by_its_checksum(out: Path) -> None:
    one = file("x", bytes=None)
    assert write(out, one)
    assert not write(out, one)


def test_a_file_without_a_checksum_is_not_written_and_the_others_are(out: Path, storage: Storage) -> None:
    """An imported row could name any bytes there are."""
    storage.put("o", DATA)
    done = carry_out(out, storage, [file("x", sha256=None), file("y")])
    assert (done["entries"], done["damaged"]) == (1, 1)
    assert "no checksum" in done["names"]
    assert (out / "y").read_bytes() == DATA
    assert not (out / "x").exists()


def test_a_folder_that_the_restore_did_not_begin_with_is_refused(tmp_path: Path) -> None:
    for there in (False, True):
        if there:
            (tmp_path / "new").mkdir()
        with pytest.raises(EnvironmentProblem, match="not the folder"):
            Folder(str(tmp_path / "new"))
    (tmp_path / "elsewhere" / UNFINISHED).mkdir(parents=True)
    (tmp_path / "new" / OWN).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EnvironmentProblem, match="not the folder"):
        Folder(str(tmp_path / "new"))


def test_more_folders_than_are_kept_open(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_task, "_OPEN_FOLDERS", 4)
    handles = len(list(Path("/proc/self/fd").iterdir()))
    with Folder(str(out)) as folder:
        for number in range(40):
            folder.write(file(f"a/b/c{number % 7}/{number}"), lambda: iter([memoryview(DATA)]), None)
        assert len(list(Path("/proc/self/fd").iterdir())) <= handles + 8
    assert len(list(Path("/proc/self/fd").iterdir())) == handles
    assert len(list(out.glob("a/b/*/*"))) == 40


def test_files_of_one_place_and_time_are_hard_links_again(out: Path, storage: Storage) -> None:
    storage.put("o", DATA)
    twins = [file("a", links=2), file("b/c", links=2)]
    others = [file("later", links=2, mtime_ms=NOW_MS + 1), file("open", links=2, mode=0o666), file("single")]
    done = carry_out(out, storage, [*twins, *others])
    assert (done["entries"], done["damaged"], done["error"]) == (5, 0, None)
    assert (out / "a").samefile(out / "b/c")
    assert {(out / one.target).stat().st_nlink for one in others} == {1}
    (out / "b/c").unlink()  # cut off before the second
    done = carry_out(out, storage, twins)
    assert (done["entries"], done["kept"]) == (2, 1)
    assert (out / "a").samefile(out / "b/c")


def test_what_is_no_link(out: Path, storage: Storage) -> None:
    storage.put("o", DATA)
    empty = [file(name, b"", links=2) for name in ("a", "b")]
    done = carry_out(out, storage, [*empty, file("c"), file("end", b"", position=len(DATA), links=2)])
    assert (done["entries"], done["damaged"], done["error"]) == (4, 0, None)
    assert {(out / name).stat().st_nlink for name in ("a", "b", "c", "end")} == {1}
    # A link is no way around the hash.
    done = carry_out(out, storage, [file("d", links=2), file("e", links=2, sha256="0" * 64)])
    assert (done["entries"], done["damaged"]) == (1, 1)
    assert not (out / "e").exists()
    storage.put("o", b"x" + DATA[1:])
    done = carry_out(out, storage, [file("f", links=2), file("g", links=2)])
    assert (done["entries"], done["damaged"]) == (0, 2)


def test_links_between_deep_folders_find_their_folders_open(
    out: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_task, "_OPEN_FOLDERS", 6)
    storage.put("o", DATA)
    deep = ["/".join([letter, *"123456789", "x"]) for letter in "ab"]
    done = carry_out(out, storage, [file(name, links=2) for name in deep])
    assert (done["entries"], done["error"]) == (2, None)
    assert (out / deep[0]).samefile(out / deep[1])


def test_a_file_that_comes_while_one_is_written_is_not_replaced(out: Path) -> None:
    def chunks() -> Iterator[memoryview]:
        (out / "x").write_bytes(b"mine")
        yield memoryview(DATA)

    with Folder(str(out)) as folder, pytest.raises(Refused, match="not written by this restore"):
        folder.write(file("x"), chunks, None)
    assert (out / "x").read_bytes() == b"mine"
    assert not list((out / OWN / UNFINISHED).iterdir())


def test_where_there_are_no_hard_links_each_is_a_file(
    out: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    storage.put("o", DATA)
    monkeypatch.setattr(os, "link", refuse)
    assert carry_out(out, storage, [file("a", links=2), file("b", links=2)])["entries"] == 2
    assert (out / "a").read_bytes() == (out / "b").read_bytes() == DATA
    assert (out / "b").stat().st_mtime_ns == NOW_MS * 1_000_000


def test_damage_costs_the_files_it_hits_alone(out: Path, storage: Storage) -> None:
    storage.put("pack", DATA + b"x" + DATA[1:] + DATA[: len(DATA) // 2])
    at = partial(file, path="pack")
    files = [
        at("ok"),
        at("flipped", position=len(DATA)),
        at("torn", position=2 * len(DATA)),
        file("gone", path="no"),
    ]
    done = carry_out(out, storage, files)
    assert (done["entries"], done["bytes"], done["damaged"], done["error"]) == (1, len(DATA), 3, None)
    assert [name.partition(":")[0] for name in json.loads(done["names"])] == ["flipped", "torn", "gone"]
    assert sorted(path.name for path in out.iterdir()) == sorted([OWN, "ok"])


def test_a_folder_that_is_taken_ends_the_share_with_its_error(out: Path, storage: Storage) -> None:
    storage.put("o", DATA)
    (out / "b").write_bytes(b"mine")
    done = carry_out(out, storage, [file("a"), file("b")])
    assert json.loads(done["error"])["kind"] == "Refused"


class Asked:
    """A storage that counts what is asked of it."""

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
    asked = Asked(os.urandom(10_000))
    parts: list[tuple[int, int | None]] = [(10 * i, 10) for i in range(50)]
    # A gap of 90, one without bytes, a large one, far away.
    parts += [(590, 20), (600, 0), (610, 2500), (9000, 5)]
    found = Ranges(asked, "o", parts)  # type: ignore[arg-type]
    for start, size in parts:
        assert b"".join(found.read(start, size)) == asked.data[start : start + (size or 0)]
    assert asked.requests == [(0, 1000), (1000, 1000), (2000, 1000), (3000, 110), (9000, 5)]


def test_a_part_of_unknown_size_ends_with_its_object() -> None:
    asked = Asked(b"abc" * 1000)
    assert b"".join(Ranges(asked, "o", [(3, None)]).read(3, None)) == asked.data[3:]  # type: ignore[arg-type]
    with pytest.raises(Damaged, match="ends at byte 3000"):
        list(Ranges(asked, "o", [(2990, 20)]).read(2990, 20))  # type: ignore[arg-type]


def test_the_first_of_two_names_may_be_read_again_for_the_second() -> None:
    asked = Asked(b"abc" * 1000)
    found = Ranges(asked, "o", [(0, 9), (0, 9), (9, 9)])  # type: ignore[arg-type]
    assert [b"".join(found.read(0, 9)) for _ in range(2)] == [asked.data[:9]] * 2
    assert len(asked.requests) == 1
