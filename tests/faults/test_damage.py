"""Damaged files and manifests are found and named, and nothing of them is restored."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest
from tests.support import kafka_truth as truth
from tests.support.disks import flip
from tests.support.faults import catalog_rows, rows_of
from tests.support.kafka_truth import Record
from tests.support.runs import Lab

from lakebackup.errors import Damaged, Incomplete, NotFound, Refused
from lakebackup.rows.digest import Digest
from lakebackup.rows.tables import json_line
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store import manifest as sidecar
from lakebackup_jobs.upkeep import rebuild

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

Make = Callable[..., str]


def cut_between_blocks(file: Path) -> None:
    data = file.read_bytes()
    blocks = list(fastavro.block_reader(io.BytesIO(data)))
    assert len(blocks) > 1
    shortened = data[: blocks[-1].offset]
    assert sum(1 for _ in fastavro.reader(io.BytesIO(shortened))) > 0  # for Avro the file is valid
    file.write_bytes(shortened)


def missing(file: Path) -> None:
    file.unlink()


#: Partition 0 stays intact; the only file of each other one is damaged. test_stored_file.py has more ways.
WAYS: Sequence[Callable[[Path], None]] = (flip, cut_between_blocks, missing)


def records(partitions: int, large: int) -> list[Record]:
    """Records of all partitions; those of the partition `large` take more than one block (4 MiB)."""
    value = b"".join(hashlib.sha256(b"%d" % i).digest() for i in range(22_000))
    return rows_of(partitions, 20) + [Record(large, b"%d" % i, value, (), 1) for i in range(7)]


def files_of(lab: Lab) -> list[Path]:
    return sorted(lab.folder.glob("lab/*/topics/*/partition=*/*.data"))


def test_damaged_files(lab: Lab, topic: Make) -> None:
    """By one restore of all files, and one of each: the files are not compressed and could be read."""
    count = 1 + len(WAYS)
    name, copy = topic("damage", partitions=count), topic("damage-copy", partitions=count)
    truth.produce(lab.bootstrap, name, records(count, 1 + WAYS.index(cut_between_blocks)))
    expected = truth.contents(lab.bootstrap, name)
    lab.backup(name, codec="null")
    files = files_of(lab)
    assert len(files) == count
    for file, damage in zip(files[1:], WAYS, strict=True):
        damage(file)
    paths = [str(file.relative_to(lab.folder)) for file in files]

    with pytest.raises(Damaged) as caught:
        lab.restore(name, maps={name: copy})
    assert sum(path in caught.value.message for path in paths[1:]) == 1
    for isolation in ("read_committed", "read_uncommitted"):
        assert truth.contents(lab.bootstrap, copy, isolation) == {0: expected[0]}
    for region in range(1, count):
        target = lab.folder.parent / f"out-{region}"
        with pytest.raises(Damaged) as caught:
            lab.restore(select=f"SELECT * FROM files WHERE region = '{region}'", target=f"dir:{target}")
        assert paths[region] in caught.value.message
        assert not list(target.rglob("*.data"))

    result = lab.verify()
    outcomes = {finding["path"]: finding["outcome"] for finding in result["findings"]}
    missing_index = 1 + WAYS.index(missing)
    assert outcomes == {p: "missing" if i == missing_index else "changed" for i, p in enumerate(paths) if i}
    with pytest.raises(Refused, match="when it was last checked"):
        lab.restore(name, target=f"dir:{lab.folder.parent}/out")


def change_row(lab: Lab, row: int, **values: Any) -> tuple[str, str]:
    """Change a row in the only part of the only backup; returns the part's and the manifest's path."""
    (part,) = lab.folder.glob("lab/backups/*/parts/*.jsonl")
    lines = part.read_text().splitlines()
    lines[row] = json.dumps(json.loads(lines[row]) | values, separators=(",", ":"))
    part.write_text("".join(f"{line}\n" for line in lines))
    manifest = part.parent.with_name("manifest.json")
    return str(part.relative_to(lab.folder)), str(manifest.relative_to(lab.folder))


def rebuild_catalog(lab: Lab) -> dict[str, Any]:
    """Delete the catalog and rebuild it; returns the result."""
    shutil.rmtree(lab.folder / "catalog")
    lab.make_catalog()
    return rebuild.run(rebuild.RebuildRequest(str(lab.folder)), spark=lab.spark, reporter=lab.reporter)


WRONG_VALUES = [{"entries": 19}, {"sha256": "00" * 32}, {"bytes": 1}]


@pytest.mark.long
@pytest.mark.parametrize("values", WRONG_VALUES, ids=str)
def test_a_wrong_part_is_named_and_the_other_backups_are_rebuilt(
    lab: Lab, topic: Make, values: dict[str, Any]
) -> None:
    name, good_topic = topic("lying"), topic("honest")
    truth.produce(lab.bootstrap, name, rows_of(1, 20))
    truth.produce(lab.bootstrap, good_topic, rows_of(1, 20))
    wrong_id = lab.backup(name)["backup_id"]
    _part, manifest = change_row(lab, 0, **values)
    lab.backup(good_topic, mode="full")

    findings = [finding for finding in lab.verify()["findings"] if finding["backup_id"] == wrong_id]
    assert [(finding["path"], finding["outcome"]) for finding in findings] == [(manifest, "changed")]
    with pytest.raises(Incomplete, match="1 backups could not be rebuilt"):
        rebuild_catalog(lab)
    assert manifest in lab.warnings.getvalue()
    assert [backup["state"] for backup in catalog_rows(lab)["backups"]] == ["complete"]
    assert {file["scope"] for file in catalog_rows(lab)["files"]} == {good_topic}
    assert lab.restore(good_topic, target=f"dir:{lab.folder.parent}/out")["entries"] == 20
    with pytest.raises(NotFound):
        lab.restore(name, target=f"dir:{lab.folder.parent}/out")


def test_a_wrong_manifest_is_found_by_verify_and_named_by_rebuild(lab: Lab, topic: Make) -> None:
    name = topic("lying")
    truth.produce(lab.bootstrap, name, rows_of(1, 20))
    lab.backup(name)
    (manifest,) = lab.folder.glob("lab/backups/*/manifest.json")
    manifest.write_text(manifest.read_text().replace('"entries":20', '"entries":21'))
    path = str(manifest.relative_to(lab.folder))
    result = lab.verify()
    assert [(f["path"], f["outcome"]) for f in result["findings"]] == [(path, "damaged")]
    with pytest.raises(Incomplete):
        rebuild_catalog(lab)
    assert path in lab.warnings.getvalue()
    assert catalog_rows(lab)["backups"] == []


@pytest.mark.long
def test_a_consistent_forgery_is_found_by_counting_records(lab: Lab, topic: Make) -> None:
    # The file lost its last block. The rows, digests and seals were changed to match, except for the count.
    name, copy = topic("liar"), topic("liar-copy")
    truth.produce(lab.bootstrap, name, records(1, 0))
    lab.backup(name)
    (file,) = files_of(lab)
    cut_between_blocks(file)
    data = file.read_bytes()
    storage = open_storage(str(lab.folder))
    # Its key filter is bound to the old file, so the forged row must leave it out.
    without_filter = dict.fromkeys(("keys_path", "keys_start", "keys_blocks"))
    part, path = change_row(
        lab, 0, bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), **without_filter
    )
    (row,) = sidecar.read_part(storage, part)
    digest = Digest()
    digest.add(json_line(row))
    manifest = sidecar.read_manifest(storage, path)
    backup = replace(manifest.backup, bytes=len(data), digest=digest.hex())
    sidecar.write_manifest(storage, path, replace(manifest, backup=backup))
    rebuild_catalog(lab)

    with pytest.raises(Damaged, match=r"holds \d+ records, its manifest says 27"):
        lab.restore(name, maps={name: copy})
    assert truth.contents(lab.bootstrap, copy) == {}
    assert lab.verify(mode="hash")["findings"] == []
    assert [finding["outcome"] for finding in lab.verify(mode="decode")["findings"]] == ["damaged"]


@pytest.mark.long
def test_a_backup_without_its_marker_is_unconfirmed_and_a_rebuilt_catalog_does_not_restore_it(
    lab: Lab, topic: Make
) -> None:
    name = topic("unconfirmed")
    truth.produce(lab.bootstrap, name, rows_of(1, 20))
    backup = lab.backup(name)
    (lab.folder / layout.marker_path("lab", backup["backup_id"], "complete")).unlink()
    assert [finding["outcome"] for finding in lab.verify()["findings"]] == ["unconfirmed"]
    assert lab.restore(name, target=f"dir:{lab.folder.parent}/out")["entries"] == 20
    assert rebuild_catalog(lab)["backups"] == {"unconfirmed": 1}
    assert catalog_rows(lab)["files"] == []
    with pytest.raises(NotFound):
        lab.restore(name, target=f"dir:{lab.folder.parent}/again")


@pytest.mark.long
def test_a_lost_catalog_is_rebuilt_completely(lab: Lab, topic: Make) -> None:
    name, copy = topic("lost", partitions=2), topic("lost-copy", partitions=2)
    for start in (0, 30, 60):
        truth.produce(lab.bootstrap, name, rows_of(2, 30, start))
        lab.backup(name)
    truth.delete_records(lab.bootstrap, name, {0: 70})
    truth.produce(lab.bootstrap, name, rows_of(2, 5, 90))
    truth.delete_records(lab.bootstrap, name, {0: 91})
    lab.backup(name, on_gap="continue")
    rows_before = {relation: sorted(map(str, rows)) for relation, rows in catalog_rows(lab).items()}
    assert {relation: len(rows) for relation, rows in rows_before.items()} == {
        "backups": 4, "files": 8, "positions": 8, "scopes": 4, "gaps": 1,
    }  # fmt: skip
    rebuild_catalog(lab)
    assert {relation: sorted(map(str, rows)) for relation, rows in catalog_rows(lab).items()} == rows_before
    assert lab.restore(name, maps={name: copy}, allow_gaps=True)["entries"] == 180 + 4 + 5
    truth.produce(lab.bootstrap, name, rows_of(1, 3, 95))
    assert lab.backup(name)["kind"] == "differential"
