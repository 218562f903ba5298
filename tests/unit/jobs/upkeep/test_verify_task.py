"""The findings of checks without a JVM: in files, packs, sidecars and the rest of the storage."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.command_line import quiet
from tests.support.given_snapshots import FileContent, GivenSnapshots, MadeSnapshots
from tests.support.made_backups import MadeBackups, Record
from tests.support.roots import roots_of

from lakebackup.errors import NotFound
from lakebackup.formats.snapshots.manifest_json import export_manifest
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.cli import main
from lakebackup_jobs.upkeep import verify
from lakebackup_jobs.upkeep.verify import VerifyRequest
from lakebackup_jobs.upkeep.verify_task import CheckFiles, CheckMembers, CheckSidecars

DATA = [b"first", b"second", b"third"]


def pack_findings(folder: Path, pack: bytes, **changes: Any) -> list[str]:
    """The findings for a pack with these bytes, for which the catalog has the rows of DATA."""
    (folder / "pack").write_bytes(pack)
    rows, start = [], 3
    for data in DATA:
        rows.append(
            {
                "destination": "d", "path": "pack", "backup_id": "b1", "position": start, "bytes": len(data),
                "codec": "none", "stored_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(),
                "key_id": None,
            }
        )  # fmt: skip
        start += len(data)
    rows[1] |= changes
    job = CheckMembers("c", 1, roots_of(d=str(folder)))
    return [row["detail"] for batch in job([pa.RecordBatch.from_pylist(rows)]) for row in batch.to_pylist()]


def result(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The result that a command showed as JSON."""
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    event: dict[str, Any] = next(line for line in lines if line.get("event") == "result")
    return event


def test_a_fifo_in_place_of_a_file_is_a_finding(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "file")
    row = {
        "destination": "d", "path": "file", "backup_id": "b1", "bytes": 0, "entries": 0, "format": "file",
        "sha256": "",
    }  # fmt: skip
    job = CheckFiles("c", 1, roots_of(d=str(tmp_path)), "hash", str(tmp_path))
    (finding,) = (row for batch in job([pa.RecordBatch.from_pylist([row])]) for row in batch.to_pylist())
    assert finding["outcome"] == "damaged"
    assert "no regular file" in finding["detail"]


def test_an_exported_manifest_is_compared_with_its_checksum(tmp_path: Path) -> None:
    snapshots = MadeSnapshots(tmp_path, CatalogWriter(None, str(tmp_path)))
    snapshots.writer.migrate()
    name = snapshots.back_up({"000001.sst": b"one"})
    reader, roots = CatalogReader(str(tmp_path)), CatalogReader(str(tmp_path)).destinations()
    manifest_path = tmp_path / export_manifest(reader, snapshots.storage, name)

    def outcomes() -> dict[str, str]:
        rows = pa.RecordBatch.from_pylist(reader.rows("backups_to_check", backup_ids=""))
        (batch,) = CheckSidecars("c", 1, roots)([rows])
        return {row["path"].rpartition("/")[2]: row["outcome"] for row in batch.to_pylist()}

    assert outcomes() == {"manifest.json": "ok", manifest_path.name: "ok"}
    content = manifest_path.read_bytes()
    manifest_path.write_bytes(content.replace(b"sst", b"tss", 1))
    assert outcomes() == {"manifest.json": "ok", manifest_path.name: "changed"}
    manifest_path.unlink()
    assert outcomes() == {"manifest.json": "ok", manifest_path.name: "missing"}
    manifest_path.with_name(f"{manifest_path.name}.sha256").unlink()  # as in older backups
    assert outcomes() == {"manifest.json": "ok"}


def test_a_catalog_without_a_backup_that_counts_has_nothing_to_verify(tmp_path: Path) -> None:
    CatalogWriter(None, str(tmp_path)).migrate()
    with pytest.raises(NotFound, match="nothing to verify"):  # without starting a JVM
        verify.run(VerifyRequest(str(tmp_path)), reporter=quiet())


def test_an_intact_pack_has_no_finding(tmp_path: Path) -> None:
    assert pack_findings(tmp_path, b"..." + b"".join(DATA)) == []


@pytest.mark.parametrize(
    ("pack", "changes", "position"),
    [
        (b"...firstsecOndthird", {}, 8),  # another byte, at the same length
        (b"...firstsecondthi", {}, 14),  # cut off
        (b"...firstsecondthird", {"sha256": "0" * 64}, 8),  # a row of something else
    ],
)
def test_a_file_that_differs_from_its_row_is_a_finding(
    tmp_path: Path, pack: bytes, changes: dict[str, Any], position: int
) -> None:
    assert pack_findings(tmp_path, pack, **changes) == [
        f"the file at byte {position} is not as it was written"
    ]


def test_files_that_overlap_are_a_finding(tmp_path: Path) -> None:
    assert pack_findings(tmp_path, b"...firstsecondthird", position=7) == [
        "the file at byte 7 begins within another"
    ]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A destination with a backup of three files, two of them in a pack."""
    snapshots = GivenSnapshots(tmp_path)
    files = [FileContent(name=f"{n}.sst", data=b"%d" % n * 100) for n in range(3)]
    snapshots.backup(files, packed=["0.sst", "1.sst"])
    return tmp_path


def test_small_backups_are_checked_without_a_jvm(repo: Path) -> None:
    script = (
        "import sys\n"
        "from lakebackup_jobs.cli import main\n"
        f"assert main(['verify', '--decode', '--repo', {str(repo)!r}]) == 0\n"
        "assert not [name for name in sys.modules if name.startswith(('pyspark', 'py4j'))]\n"
    )
    process = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert "are intact" in process.stdout


def test_damaged_missing_and_orphaned_objects_are_found(
    repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (pack,) = repo.glob("yb/snapshots/*/packs/*")
    data = bytearray(pack.read_bytes())
    data[1] ^= 1
    pack.write_bytes(data)
    (file,) = repo.rglob("2.sst")
    file.unlink()
    stranger = file.with_name("stranger.sst")
    stranger.write_bytes(b"x")
    assert main(["verify", "--decode", "--repo", str(repo), "--json"]) == 7
    assert [row["outcome"] for row in result(capsys)["findings"]] == ["changed", "damaged", "missing"]
    os.utime(stranger, (0, 0))  # older than any backup that is being made
    assert main(["verify", "--stat", "--repo", str(repo), "--json"]) == 7
    check_result = result(capsys)
    assert [(row["outcome"], Path(row["path"]).name) for row in check_result["findings"]] == [
        ("missing", "2.sst"),
        ("orphan", "stranger.sst"),
    ]
    rows = CatalogReader(str(repo)).select("SELECT check_id FROM checks WHERE outcome <> 'ok'").read_all()
    assert rows["check_id"].to_pylist().count(check_result["check_id"]) == 2
    assert not [path for path in (repo / "catalog/checks").iterdir() if path.name.startswith("2")]


def test_lost_key_filters_are_counted(tmp_path: Path) -> None:
    backups = MadeBackups(tmp_path)
    backups.backup([[Record(p, n, key=b"k%d" % n) for n in range(20)] for p in (0, 1)])
    backups.flush()
    (filters,) = tmp_path.glob("prod/backups/*/keys/*")

    def lost() -> int:
        return int(verify.run(VerifyRequest(str(tmp_path)), reporter=quiet())["filters_lost"])

    assert lost() == 0
    filters.write_bytes(filters.read_bytes()[:-1])
    assert lost() == 1
