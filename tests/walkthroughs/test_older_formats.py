"""Data of earlier programs: files in the first data format, and a destination of an earlier release.

The first format follows its document ("Backup", of Trivadis' kafka-backup):
topics/<topic>/partition=<n>/<topic>+<n>-<seq>.data, each an Avro file of AvroKafkaRecord, whose key has the
text "null" as its default and whose headers are a map. `data/destination-of-0.1.tar.gz` was made by the
code before backups had one lifecycle: a topic, a snapshot and an engine's queues, each with a killed backup.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from tests.support import kafka_truth as truth
from tests.support.catalogs import made_backup, made_position, made_scope, publish
from tests.support.command_line import quiet
from tests.support.faults import rows_of
from tests.support.kafka_truth import Record
from tests.support.runs import Lab
from tests.support.unpacked import unpack

from lakebackup.plan.snapshots.restore import SnapshotRestoreRequest
from lakebackup.rows.backups import DataFile
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store import manifest as sidecar
from lakebackup.store.behind import current_catalog
from lakebackup.store.roots import destination_id
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.snapshots import backup as backup_snapshot
from lakebackup_jobs.snapshots import restore as restore_snapshot
from lakebackup_jobs.snapshots.request import SnapshotRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


SCHEMA = json.loads("""
{
  "namespace": "ch.tbd.kafka.backuprestore.model.avro",
  "type": "record",
  "name": "AvroKafkaRecord",
  "fields" : [
    {"name": "topic", "type": "string"},
    {"name": "partition", "type": "int"},
    {"name": "offset", "type": "long"},
    {"name": "timestamp", "type": "long"},
    {"name": "key", "type": [ "bytes", "null" ], "default": "null" },
    {"name": "value", "type": "bytes"},
    {"name": "headers", "type": [ {"type": "map", "values": "bytes"}, "null" ], "default": null}
  ]
}""")
TOPIC, SOURCE, EPOCH = "orders", "old-cluster", f"{0:032x}"
START = 1_500_000_000_000
Make = Callable[..., str]


def rows(partition: int) -> list[dict[str, Any]]:
    """Records with gaps between their offsets, as transactions and compaction leave them."""
    return [
        {
            "topic": TOPIC,
            "partition": partition,
            "offset": 100 + 3 * i,
            "timestamp": START + (i * 7919) % 10_000,
            "key": None if i % 4 == 0 else b"" if i % 4 == 1 else b"key %d" % i,
            "value": b"" if i % 5 == 0 else b"value %d" % i,
            "headers": None if i % 3 == 0 else {} if i % 3 == 1 else {"a": b"1", "b": b"", "": b"x"},
        }
        for i in range(40)
    ]


def write_files(root: Path, home: str, backup_id: str, partition: int, codec: str) -> list[DataFile]:
    """Write a partition's records in two files, as the document lays them out; returns their rows."""
    files = []
    for seq, file_rows in enumerate((rows(partition)[:25], rows(partition)[25:])):
        path = f"{SOURCE}/{EPOCH}/topics/{TOPIC}/partition={partition}/{TOPIC}+{partition}-{seq:010d}.data"
        buffer = io.BytesIO()
        fastavro.writer(buffer, SCHEMA, file_rows, codec=codec)
        data = buffer.getvalue()
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
        times = [row["timestamp"] for row in file_rows]
        files.append(
            DataFile(
                destination=home,
                path=path,
                backup_id=backup_id,
                added_in=1,
                source=SOURCE,
                scope=TOPIC,
                epoch=EPOCH,
                region=str(partition),
                format="kafka-avro-1",
                codec=codec,
                bytes=len(data),
                raw_bytes=len(data),
                sha256=hashlib.sha256(data).hexdigest(),
                entries=len(file_rows),
                min_ts=min(times),
                max_ts=max(times),
                start_position=file_rows[0]["offset"],
                end_position=file_rows[-1]["offset"] + 1,
            )
        )
    return files


@pytest.fixture(scope="module")
def imported(
    spark: SparkSession, broker: Broker, empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory
) -> Lab:
    """A destination whose only backup was written by another program in the first format."""
    lab = Lab(spark, broker.bootstrap, tmp_path_factory.mktemp("imported") / "backups", empty_catalog)
    lab.make_catalog()
    storage = open_storage(str(lab.folder))
    home = destination_id(storage)
    now_utc = datetime.now(UTC)
    backup_id = layout.new_backup_id(now_utc)
    end_ts = int(now_utc.timestamp() * 1000)
    files = [
        file
        for partition, codec in enumerate(("null", "deflate"))
        for file in write_files(lab.folder, home, backup_id, partition, codec)
    ]
    sidecar.write_part(storage, layout.parts_path(SOURCE, backup_id, 0), files)
    scope_columns = {"backup_id": backup_id, "source": SOURCE, "scope": TOPIC, "epoch": EPOCH}
    manifest = sidecar.Manifest(
        backup=made_backup(
            1,
            files,
            backup_id=backup_id,
            source=SOURCE,
            end_ts=end_ts,
            started_at=end_ts * 1000,
            finished_at=end_ts * 1000,
            codec="null",
            created_by="another program",
            tool="another program",
        ),
        positions=[
            made_position(100, 218, **scope_columns, region=str(partition), low_position=100, ts=end_ts)
            for partition in range(2)
        ],
        scopes=[made_scope(**scope_columns, regions=2)],
        gaps=[],
        parts=1,
    )
    publish(storage, CatalogWriter(lab.spark, str(lab.folder)), (manifest, [files]))
    return lab


def test_a_restore_into_kafka_keeps_keys_headers_and_times(imported: Lab, topic: Make) -> None:
    copy = topic("first-format", partitions=2)
    assert imported.restore(TOPIC, maps={TOPIC: copy})["entries"] == 80
    records = truth.contents(imported.bootstrap, copy)
    assert records == {
        partition: [
            Record(
                partition, row["key"], row["value"], tuple((row["headers"] or {}).items()), row["timestamp"]
            )
            for row in rows(partition)
        ]
        for partition in range(2)
    }


def test_a_restore_into_a_folder_keeps_the_format_and_the_offsets(imported: Lab) -> None:
    folder = imported.folder.parent / "out"
    to_ts = START + 5_000
    imported.restore(TOPIC, target=f"dir:{folder}", to_ts=to_ts)
    for partition in range(2):
        records: list[Any] = []
        for file in sorted((folder / "topics" / TOPIC / f"partition={partition}").iterdir()):
            reader = fastavro.reader(io.BytesIO(file.read_bytes()))
            assert json.loads(reader.metadata["avro.schema"]) == SCHEMA
            records += reader
        assert records == [row for row in rows(partition) if row["timestamp"] <= to_ts]


def test_verify_decodes_the_first_format(imported: Lab) -> None:
    result = imported.verify(mode="decode")
    assert {name: result[name] for name in ("missing", "changed", "damaged", "orphan")} == {
        "missing": 0,
        "changed": 0,
        "damaged": 0,
        "orphan": 0,
    }
    (first, *_) = sorted(imported.folder.glob(f"{SOURCE}/{EPOCH}/topics/{TOPIC}/partition=1/*.data"))
    data = first.read_bytes()
    first.unlink()
    try:
        assert imported.verify()["missing"] == 1
    finally:
        first.write_bytes(data)


LAYOUT = "t-{scope}/{snapshot}/{name}"


@pytest.fixture
def expected(lab: Lab, tmp_path: Path) -> dict[str, Any]:
    """The expected contents of the destination of `lab`, which is unpacked."""
    with (Path(__file__).parent / "data/destination-of-0.1.tar.gz").open("rb") as packed:
        unpack(packed, tmp_path)
    contents: dict[str, Any] = json.loads((tmp_path / "expected.json").read_text())
    return contents


def test_a_destination_of_0_1_opens_restores_and_continues(
    lab: Lab, expected: dict[str, Any], topic: Callable[..., str], tmp_path: Path
) -> None:
    current_catalog(str(lab.folder))
    assert lab.verify(mode="full")["damaged"] == 0
    result = lab.restore(expected["topic"], expected["keyed"], source="lab", target=f"dir:{tmp_path / 'out'}")
    assert result["entries"] == 2 * 40 + 12

    # The cluster is another one now: the killed backup is discarded, and nothing else.
    paths_before = {row["path"] for row in lab.sql("SELECT path FROM files")}
    name = topic("again")
    truth.produce(lab.bootstrap, name, rows_of(1, 5))
    backup = lab.backup(name, mode="full")
    assert backup["entries"] == 5
    assert not (lab.folder / "lab/begun.json").exists()
    paths_after = {row["path"] for row in lab.sql("SELECT path FROM files")}
    assert paths_before < paths_after
    stored_paths = {str(path.relative_to(lab.folder)) for path in lab.folder.glob("lab/**/*.data")}
    assert stored_paths == {
        path for path in paths_after if path.startswith("lab/") and path.endswith(".data")
    }


def test_a_snapshot_of_0_1_continues(lab: Lab, expected: dict[str, Any], tmp_path: Path) -> None:
    assert expected
    request = SnapshotRequest(
        destination=str(lab.folder), paths=(str(tmp_path / "tree"),), source="db", layout=LAYOUT,
        snapshots=("s2",),
    )  # fmt: skip
    result = backup_snapshot.run(request, reporter=quiet())
    assert (result["kind"], result["gone"], result["end_ts"]) == ("differential", 1, 2_000_000)
    assert not (lab.folder / "db/begun.json").exists()
    restore_request = SnapshotRestoreRequest(str(lab.folder), str(tmp_path / "out"), source="db")
    restore_snapshot.run(restore_request, reporter=quiet())
    restored = {path.name: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    snapshot_files = {path.name: path.read_bytes() for path in (tmp_path / "tree/t-x/s2").iterdir()}
    assert restored.items() >= snapshot_files.items()
