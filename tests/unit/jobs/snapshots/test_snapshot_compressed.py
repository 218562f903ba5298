"""Backups whose files are compressed: any mix is restored as it was, and what is damaged is named."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.command_line import quiet
from tests.support.looks import select_rows
from tests.support.roots import roots_of
from tests.support.stored import stored_contents

from lakebackup.encryption.objects import BackupKey, DataKey, Keyring, sealed_bytes
from lakebackup.errors import Damaged, EnvironmentProblem
from lakebackup.formats.snapshots.manifest_json import manifest_json
from lakebackup.formats.snapshots.names import OWN
from lakebackup.plan.snapshots.restore import SnapshotRestoreRequest
from lakebackup.rows.backups import DataFile
from lakebackup.rows.tables import ARROW_SCHEMAS
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store.delta_append import LISTED, ListedRows
from lakebackup.store.plan_file import write_plan_file
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.cli import main
from lakebackup_jobs.lifecycle.tasks.plan_shares import Share, store_plan
from lakebackup_jobs.snapshots import backup as backup_snapshot
from lakebackup_jobs.snapshots.import_manifest import ManifestRequest
from lakebackup_jobs.snapshots.import_manifest import run as import_manifest
from lakebackup_jobs.snapshots.request import SnapshotRequest
from lakebackup_jobs.snapshots.restore import run as restore_snapshot
from lakebackup_jobs.snapshots.source import Entry
from lakebackup_jobs.snapshots.tasks import copy as copy_task
from lakebackup_jobs.snapshots.tasks.copy import CopyJob
from lakebackup_jobs.snapshots.tasks.write import UNFINISHED, File, WriteJob
from lakebackup_jobs.upkeep.verify import VerifyRequest
from lakebackup_jobs.upkeep.verify import run as verify
from lakebackup_jobs.upkeep.verify_task import CheckMembers

BACKUP = "20260131T134511Z-0a1b2c3d"
KEY = BackupKey(DataKey.random(), "db", BACKUP)
TEXT = b"".join(b"%d: ten green bottles\n" % number for number in range(4000))
RANDOM = random.Random(5).randbytes(100_000)
CONTENTS = st.binary(max_size=300) | st.builds(
    lambda text, noise, zeros: TEXT[:text] + RANDOM[:noise] + bytes(zeros),
    st.integers(0, 4000),
    st.integers(0, 4000),
    st.integers(0, 9000),
)


def entry_of(folder: Path, name: str, first_name: str) -> dict[str, Any]:
    status = (folder / name).stat()
    listed = {
        "scope": "t", "region": "a", "name": name, "role": "data", "folder": str(folder), "change": "new",
        "bytes": status.st_size, "mtime_ns": status.st_mtime_ns, "mtime_ms": status.st_mtime_ns // 1_000_000,
        "mode": 0o644, "links": status.st_nlink, "inode": status.st_ino, "first_scope": "t",
        "first_region": "a", "first_name": first_name,
    }  # fmt: skip
    return {name: listed.get(name) for name in Entry._fields}


NUMBERS = (
    "bytes", "mtime_ns", "mtime_ms", "mode", "links", "inode", "ctime_ns", "added_in", "same_position",
    "same_stored_bytes",
)  # fmt: skip
ENTRIES = pa.schema([(name, pa.int64() if name in NUMBERS else pa.string()) for name in Entry._fields])


def job_over(entries: Sequence[Mapping[str, Any]], uri: str, **options: Any) -> CopyJob:
    """The job that copies files, all in one task."""
    plan_file = write_plan_file([pa.Table.from_pylist(list(entries), ENTRIES).to_reader()])
    plan = store_plan(open_storage(uri), "work/", plan_file, [Share(0, len(entries))])
    return CopyJob(uri=uri, destination="d", source="db", backup_id=BACKUP, number=1, plan=plan, **options)


def rows_of(job: CopyJob, objects: Sequence[DataFile]) -> list[dict[str, Any]]:
    """The rows of snapshot_files that a job wrote, in the order of a restore."""
    storage = open_storage(job.uri)
    listings = [file for file in objects if file.format == LISTED["snapshot_files"]]
    rows = [
        row
        for listing in listings
        for row in pq.read_table(pa.BufferReader(storage.get(listing.path))).to_pylist()
    ]
    return sorted(rows, key=lambda row: (row["path"], row["position"], row["bytes"], row["name"]))


def restore_rows(
    uri: str, rows: Sequence[Mapping[str, Any]], target: Path, keys: Keyring | None = None
) -> dict[str, Any]:
    (target / OWN / UNFINISHED).mkdir(parents=True)
    names = [field.name for field in fields(File)]
    files = [{name: {**row, "target": row["name"]}[name] for name in names} for row in rows]
    plan_file = write_plan_file([pa.Table.from_pylist(files).to_reader()])
    own = open_storage(str(target / OWN))
    shares = store_plan(own, "", plan_file, [Share(0, len(files))], {})
    roots = roots_of(d=uri).with_keys(keys or Keyring())
    return dict(WriteJob(str(target), own.uri, shares, roots, syncs=False).run(0))


@given(
    st.lists(st.tuples(CONTENTS, st.booleans()), min_size=1, max_size=12),
    st.sampled_from(["auto", "zstd", "none"]),
    st.sampled_from([0, 200, 3000, 1 << 20]),
    st.sampled_from([0, 500, 1 << 19]),
    st.sampled_from([900, 1 << 26]),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_any_mix_of_files_is_restored_as_it_was(
    contents: list[tuple[bytes, bool]],
    codec: str,
    pack_below: int,
    small: int,
    pack_bytes: int,
    encrypted: bool,
) -> None:
    """Files with a second name are hard links. Small files are compressed at once, others as a stream."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        source, target, uri = Path(folder, "source"), Path(folder, "out"), f"{folder}/backups"
        source.mkdir()
        entries = []
        for number, (data, linked) in enumerate(contents):
            (source / f"{number:02d}").write_bytes(data)
            names = [f"{number:02d}", *([f"{number:02d}-link"] if linked else [])]
            for name in names[1:]:
                (source / name).hardlink_to(source / names[0])
            entries += [entry_of(source, name, names[0]) for name in names]
        key = KEY if encrypted else None
        job = job_over(entries, uri, pack_below=pack_below, codec=codec, key=key)
        with mock.patch.multiple(copy_task, SMALL=small, PACK_BYTES=pack_bytes):
            objects = job.write(open_storage(uri), 0)
        rows = rows_of(job, objects)
        for row in rows:
            data = (source / row["name"]).read_bytes()
            assert encrypted or stored_contents(open_storage(uri), row) == data
            assert row["sha256"] == hashlib.sha256(data).hexdigest()
            suffix = f".{KEY.key_id}.enc" if encrypted else ""
            assert (row["codec"] == "zstd") <= row["path"].endswith((f".zst{suffix}", ".pack"))
        for file in objects:
            object_bytes = (Path(uri) / file.path).read_bytes()
            assert (file.bytes, file.sha256) == (len(object_bytes), hashlib.sha256(object_bytes).hexdigest())
        data_objects = [file for file in objects if file.format in ("file", "pack")]
        assert sum(file.raw_bytes for file in data_objects) == sum(len(data) for data, _ in contents)
        if codec == "none":
            stored_size = sealed_bytes if encrypted else int
            assert all(file.bytes == stored_size(file.raw_bytes) for file in data_objects)
            assert all(file.codec == "null" for file in data_objects)
        assert {file.key_id for file in data_objects} == {key and KEY.key_id}
        report = restore_rows(uri, rows, target, Keyring([KEY]))
        assert (report["entries"], report["damaged"]) == (len(rows), 0)
        assert {row["name"]: (target / row["name"]).read_bytes() for row in rows} == {
            row["name"]: (source / row["name"]).read_bytes() for row in rows
        }


def test_a_second_attempt_takes_the_object_of_the_first(tmp_path: Path) -> None:
    """Another version of zstd may have compressed it: the object may differ, its contents do not."""
    source, uri = tmp_path / "source", str(tmp_path / "backups")
    source.mkdir()
    (source / "text").write_bytes(TEXT)
    job = job_over([entry_of(source, "text", "text")], uri, pack_below=0, codec="auto")
    storage = open_storage(uri)
    path = layout.snapshot_path("db", BACKUP, "t", "a", "text", compressed=True)
    first = zstd.compress(TEXT, level=9)
    storage.put(path, first)
    objects = job.write(storage, 0)
    assert (objects[0].bytes, objects[0].sha256) == (len(first), hashlib.sha256(first).hexdigest())
    (row,) = rows_of(job, objects)
    assert stored_contents(storage, row) == TEXT
    for contents in (zstd.compress(TEXT + b"x"), first[:-1], b"no frame"):
        storage.put(path, contents)
        with pytest.raises(EnvironmentProblem, match="where another file is"):
            job.write(storage, 0)


def test_a_second_attempt_takes_the_encrypted_object_of_the_first(tmp_path: Path) -> None:
    """Each attempt encrypts with a salt of its own. An object that does not decrypt is not taken."""
    source, uri = tmp_path / "source", str(tmp_path / "backups")
    source.mkdir()
    (source / "text").write_bytes(TEXT)
    job = job_over([entry_of(source, "text", "text")], uri, pack_below=0, codec="auto", key=KEY)
    storage = open_storage(uri)
    first = job.write(storage, 0)[0]
    second = job.write(storage, 0)[0]
    assert (second.path, second.bytes, second.sha256) == (first.path, first.bytes, first.sha256)
    sealed = storage.get(first.path)
    for contents in (sealed[:-1], sealed[:100] + b"x" + sealed[101:], zstd.compress(TEXT)):
        storage.put(first.path, contents)
        with pytest.raises(EnvironmentProblem, match="where another file is"):
            job.write(storage, 0)


def test_listed_rows_of_earlier_versions_lack_the_new_columns(tmp_path: Path) -> None:
    source, uri = tmp_path / "source", str(tmp_path / "backups")
    source.mkdir()
    (source / "text").write_bytes(TEXT)
    job = job_over([entry_of(source, "text", "text")], uri, pack_below=0, codec="none")
    storage = open_storage(uri)
    rows = job.write(storage, 0)
    listing = next(file for file in rows if file.format == LISTED["snapshot_files"])
    table = pq.read_table(pa.BufferReader(storage.get(listing.path)))
    sink = pa.BufferOutputStream()
    pq.write_table(table.drop_columns(["ctime_ns", "inode", "codec", "stored_bytes", "key_id"]), sink)
    old = sink.getvalue().to_pybytes()
    storage.put(listing.path, old)
    part = job.listing("snapshot_files", listing.path, len(old), hashlib.sha256(old).hexdigest())
    with mock.patch("lakebackup.store.delta_append.read_part", return_value=[part]):
        (batch,) = ListedRows(uri, "snapshot_files", (("part",),)).rows(0)
    assert {*batch.schema.names} == {*ARROW_SCHEMAS["snapshot_files"].names}
    (row,) = batch.to_pylist()
    assert [row[name] for name in ("name", "codec", "stored_bytes", "key_id")] == ["text", None, None, None]


class Folder:
    """A folder that is backed up, with text and with what does not shrink."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.root = folder / "tree", folder / "backups"
        self.tree.mkdir()
        self._folder = folder
        self._time_ms, self._restores = 1_700_000_000_000, 0
        self.write("text", TEXT)
        self.write("noise", RANDOM)
        self.write("empty", b"")
        self.write("large", TEXT * 20)

    def write(self, name: str, data: bytes) -> None:
        (self.tree / name).write_bytes(data)
        os.utime(self.tree / name, (1_600_000_000, 1_600_000_000))

    def backup(self, **changes: Any) -> dict[str, Any]:
        self._time_ms += 3_600_000
        request: dict[str, Any] = {
            "destination": str(self.root), "paths": (str(self.tree),), "source": "db", "runner": "local",
            "taken_at": self._time_ms, **changes,
        }  # fmt: skip
        return backup_snapshot.run(SnapshotRequest(**request), reporter=quiet())

    def restored(self, **options: Any) -> dict[str, bytes]:
        self._restores += 1
        target = self._folder / f"out{self._restores}"
        request = SnapshotRestoreRequest(
            str(self.root), str(target), form="flat", **{"source": "db", **options}
        )
        restore_snapshot(request, reporter=quiet())
        return {file.name: file.read_bytes() for file in target.rglob("*") if file.is_file()}

    @property
    def contents(self) -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in self.tree.iterdir()}

    def rows(self, condition: str = "gone_in IS NULL") -> dict[str, dict[str, Any]]:
        rows = select_rows(self.root, f"SELECT * FROM snapshot_files WHERE {condition} ORDER BY added_in")
        return {row["name"]: row for row in rows}

    def verify(self, mode: Any = "decode") -> dict[str, Any]:
        return verify(VerifyRequest(str(self.root), mode=mode, runner="local"), reporter=quiet())


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_files_that_shrink_are_compressed_and_zstd_reads_them(folder: Folder, tmp_path: Path) -> None:
    result = folder.backup()
    rows = folder.rows()
    assert {name: row["codec"] for name, row in rows.items()} == {
        "text": "zstd", "large": "zstd", "noise": "none", "empty": "none",
    }  # fmt: skip
    assert rows["text"]["path"].endswith("/text.zst")
    assert rows["noise"]["path"].endswith("/noise")
    assert result["copied_bytes"] == sum(map(len, folder.contents.values()))
    assert result["stored_bytes"] < result["copied_bytes"] // 4
    (totals,) = select_rows(folder.root, "SELECT bytes, raw_bytes FROM storage_by_source")
    assert totals["bytes"] == result["stored_bytes"]
    assert totals["raw_bytes"] >= result["copied_bytes"]
    for name in ("text", "large"):
        frame, plain = folder.root / rows[name]["path"], tmp_path / name
        if shutil.which("zstd"):
            subprocess.run(["zstd", "-q", "-d", str(frame), "-o", str(plain)], check=True)
            assert plain.read_bytes() == folder.contents[name]
    assert folder.restored() == folder.contents
    assert not any(folder.verify()[name] for name in ("damaged", "changed", "missing", "orphan"))


def test_compressed_and_other_backups_stand_in_one_repository(folder: Folder) -> None:
    """What is stored already is referred to as it is stored, whatever the next backup's codec is."""
    folder.backup(codec="none")
    assert {row["codec"] for row in folder.rows().values()} == {"none"}
    folder.write("new", b"second " + TEXT)
    assert folder.backup()["copied"] == 1
    shutil.copy(folder.tree / "new", folder.tree / "same")
    (folder.tree / "new").chmod(0o600)
    (folder.tree / "text").chmod(0o600)
    result = folder.backup(codec="none", find_same=True)
    assert (result["copied"], result["new"], result["unchanged"]) == (0, 1, 5)
    rows = folder.rows()
    columns = ("path", "position", "codec", "stored_bytes", "sha256")
    assert [rows["same"][name] for name in columns] == [rows["new"][name] for name in columns]
    assert (rows["new"]["codec"], rows["text"]["codec"]) == ("zstd", "none")
    assert folder.restored() == folder.contents
    assert folder.restored(select="SELECT * FROM snapshot_files WHERE added_in = 2 AND codec = 'zstd'") == {
        "new": b"second " + TEXT
    }


def test_packs_hold_a_frame_for_each_compressed_file(folder: Folder) -> None:
    for number in range(80):
        folder.write(f"small{number}", TEXT[: 100 * number] if number % 2 else RANDOM[: 100 * number])
    folder.backup()
    rows = [row for row in folder.rows().values() if row["path"].endswith(".pack")]
    assert {row["codec"] for row in rows} == {"none", "zstd"}
    ends = {row["position"]: row["position"] + row["stored_bytes"] for row in rows if row["stored_bytes"]}
    assert [0, *sorted(ends.values())][:-1] == sorted(ends)  # one behind the other, without gaps
    (pack,) = select_rows(folder.root, "SELECT bytes, raw_bytes, codec FROM files WHERE format = 'pack'")
    assert pack == {"bytes": max(ends.values()), "raw_bytes": sum(r["bytes"] for r in rows), "codec": "zstd"}
    assert folder.restored() == folder.contents
    assert folder.verify()["damaged"] == 0


@pytest.mark.parametrize("packed", [False, True])
def test_a_damaged_frame_is_named_and_all_other_files_are_restored(folder: Folder, packed: bool) -> None:
    if packed:
        for number in range(80):
            folder.write(f"small{number}", b"%d" % number * 200 + TEXT[:5000])
    folder.backup()
    row = folder.rows()["small7" if packed else "text"]
    path = folder.root / row["path"]
    intact = path.read_bytes()
    middle = row["position"] + row["stored_bytes"] // 2
    damages = [intact[:middle] + bytes([intact[middle] ^ 0x10]) + intact[middle + 1 :], intact[:middle]]
    for number, damaged in enumerate(damages):
        path.write_bytes(damaged)
        with pytest.raises(Damaged, match="could not be restored") as raised:
            folder.restored()
        assert f"{row['name']}: " in raised.value.message
        assert row["path"] in raised.value.message
        target = folder.tree.parent / f"out{number + 1}"
        lost = {row["name"]} if not number else {
            second["name"] for second in folder.rows().values()
            if second["path"] == row["path"] and second["position"] >= row["position"] and second["bytes"]
        }  # fmt: skip
        restored = {file.name: file.read_bytes() for file in target.iterdir() if file.is_file()}
        assert restored == {name: data for name, data in folder.contents.items() if name not in lost}
    path.write_bytes(intact)
    assert folder.verify("stat")["changed"] == 0


def test_verify_decode_compares_the_contents_of_frames(folder: Folder) -> None:
    """An object that is as its row says, and whose contents are another file's."""
    folder.backup()
    (row,) = (row for row in folder.rows().values() if row["name"] == "text")
    forged = row | {"sha256": "0" * 64}
    reader = CatalogReader(str(folder.root))
    columns = (
        "backup_id", "destination", "path", "position", "codec", "stored_bytes", "key_id", "bytes", "sha256",
    )  # fmt: skip
    look = CheckMembers("c" * 8, 0, reader.destinations())
    assert list(look.look([{name: row[name] for name in columns}])) == []
    for wrong in (
        forged,
        row | {"bytes": 10},
        row | {"bytes": row["bytes"] + 1},
        row | {"codec": "lz4"},
        row | {"codec": "none"},
    ):
        (finding,) = look.look([{name: wrong[name] for name in columns}])
        assert (finding.outcome, finding.path) == ("damaged", row["path"])


def test_a_prune_counts_stored_bytes_and_keeps_what_is_needed(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.backup()
    folder.write("large", TEXT * 19)
    folder.backup()
    departed = folder.rows("gone_in = 2")["large"]
    keep = ["policy", "set", "db", "--redundancy", "1", "--repo", str(folder.root)]
    assert main(keep) == 0
    capsys.readouterr()
    assert main(["prune", "--source", "db", "--repo", str(folder.root), "--json", "--delete"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["bytes"] == departed["stored_bytes"]
    assert not (folder.root / departed["path"]).exists()
    assert folder.restored() == folder.contents


def test_an_exported_manifest_is_imported_with_its_frames(folder: Folder) -> None:
    backup_id = folder.backup()["backup_id"]
    text = "".join(manifest_json(CatalogReader(str(folder.root)), backup_id))
    files = json.loads(text)["tree"]["-"]
    assert (files["text"]["codec"], files["text"]["size"]) == ("zstd", len(TEXT))
    assert "codec" not in files["noise"]
    file = folder.tree.parent / "manifest.json"
    for values in files.values():
        values.pop("sha256")  # it is computed from the contents
    file.write_text(json.dumps({"tree": {"-": files}}))
    import_manifest(ManifestRequest(str(folder.root), file=file, source="copy"), reporter=quiet())
    assert folder.restored(source="copy") == folder.contents
    for problem, change in {
        "needs size and stored_size": {"stored_size": None},
        "behind its object": {"stored_size": 1 << 40},
        "is not as it was written": {"size": len(TEXT) - 1},
    }.items():
        file.write_text(json.dumps({"tree": {"-": {"text": files["text"] | change}}}))
        with pytest.raises(Exception, match=problem):
            import_manifest(ManifestRequest(str(folder.root), file=file, source="copy2"), reporter=quiet())


def test_the_codec_is_a_flag_and_a_setting(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["backup", "snapshot", str(folder.tree), "--source", "db", "--repo", str(folder.root)]
    monkeypatch.setenv("LAKEBACKUP_SNAPSHOT_CODEC", "none")
    assert main(command) == 0
    assert {row["codec"] for row in folder.rows().values()} == {"none"}
    assert main([*command, "--mode", "full", "--codec", "zstd"]) == 0
    codecs = {name: row["codec"] for name, row in folder.rows().items()}
    assert codecs == {"text": "zstd", "large": "zstd", "noise": "zstd", "empty": "none"}
    assert folder.restored() == folder.contents
