"""What a check says of packs, in which files of several tables lie one after another."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.command_line import quiet
from tests.support.given_snapshots import MadeSnapshots
from tests.support.roots import roots_of

from lakebackup.errors import NotFound
from lakebackup.formats.snapshots.manifest_json import export_manifest
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.upkeep import verify
from lakebackup_jobs.upkeep.verify import VerifyRequest
from lakebackup_jobs.upkeep.verify_task import CheckFiles, CheckMembers, CheckSidecars

DATA = [b"first", b"second", b"third"]


def said(folder: Path, pack: bytes, **changes: Any) -> list[str]:
    """What is found of a pack with these bytes, of which the catalog has the rows of DATA."""
    (folder / "pack").write_bytes(pack)
    rows, at = [], 3
    for data in DATA:
        rows.append(
            {
                "destination": "d", "path": "pack", "backup_id": "b1", "position": at, "bytes": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
            }
        )  # fmt: skip
        at += len(data)
    rows[1] |= changes
    job = CheckMembers("c", 1, roots_of(d=str(folder)))
    return [row["detail"] for batch in job([pa.RecordBatch.from_pylist(rows)]) for row in batch.to_pylist()]


def test_a_fifo_in_place_of_a_file_is_a_finding(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "file")
    row = {
        "destination": "d", "path": "file", "backup_id": "b1", "bytes": 0, "entries": 0, "format": "file",
        "sha256": "",
    }  # fmt: skip
    job = CheckFiles("c", 1, roots_of(d=str(tmp_path)), "hash", str(tmp_path))
    (found,) = (row for batch in job([pa.RecordBatch.from_pylist([row])]) for row in batch.to_pylist())
    assert found["outcome"] == "damaged"
    assert "no regular file" in found["detail"]


def test_an_exported_manifest_is_compared_with_its_checksum(tmp_path: Path) -> None:
    made = MadeSnapshots(tmp_path, CatalogWriter(None, str(tmp_path)))
    made.writer.migrate()
    name = made.take({"000001.sst": b"one"})
    reader, roots = CatalogReader(str(tmp_path)), CatalogReader(str(tmp_path)).destinations()
    place = tmp_path / export_manifest(reader, made.storage, name)

    def found() -> dict[str, str]:
        rows = pa.RecordBatch.from_pylist(reader.rows("backups_to_check", backup_ids=""))
        (batch,) = CheckSidecars("c", 1, roots)([rows])
        return {row["path"].rpartition("/")[2]: row["outcome"] for row in batch.to_pylist()}

    assert found() == {"manifest.json": "ok", place.name: "ok"}
    whole = place.read_bytes()
    place.write_bytes(whole.replace(b"sst", b"tss", 1))
    assert found() == {"manifest.json": "ok", place.name: "changed"}
    place.unlink()
    assert found() == {"manifest.json": "ok", place.name: "missing"}
    place.with_name(f"{place.name}.sha256").unlink()  # as older backups have it
    assert found() == {"manifest.json": "ok"}


def test_a_catalog_without_a_backup_that_counts_has_nothing_to_verify(tmp_path: Path) -> None:
    CatalogWriter(None, str(tmp_path)).migrate()
    with pytest.raises(NotFound, match="nothing to verify"):  # no JVM was started for it
        verify.run(VerifyRequest(str(tmp_path)), reporter=quiet())


def test_a_whole_pack_has_no_finding(tmp_path: Path) -> None:
    assert said(tmp_path, b"..." + b"".join(DATA)) == []


@pytest.mark.parametrize(
    ("pack", "changes", "at"),
    [
        (b"...firstsecOndthird", {}, 8),  # another byte, at the same length
        (b"...firstsecondthi", {}, 14),  # cut off
        (b"...firstsecondthird", {"sha256": "0" * 64}, 8),  # a row of something else
    ],
)
def test_a_file_that_is_not_as_its_row_says(
    tmp_path: Path, pack: bytes, changes: dict[str, Any], at: int
) -> None:
    assert said(tmp_path, pack, **changes) == [f"the file at byte {at} is not as it was written"]


def test_files_that_lie_over_one_another(tmp_path: Path) -> None:
    assert said(tmp_path, b"...firstsecondthird", position=7) == ["the file at byte 7 begins within another"]
