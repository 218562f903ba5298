"""Sources and targets for the tests of the restores' contract."""

from __future__ import annotations

import csv
import json
from abc import abstractmethod
from contextlib import suppress
from typing import Any, ClassVar

import pyarrow.parquet as pq
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from tests.support import kafka_truth as truth
from tests.support import translated
from tests.support.archives import Doc, write_backup
from tests.support.command_line import quiet
from tests.support.encrypted import leaks, write_identity
from tests.support.given_snapshots import FileContent, GivenSnapshots
from tests.support.looks import select_rows
from tests.support.made_backups import MadeBackups, Record
from tests.support.made_changes import MadeChanges, delete, put_change, table_name_row
from tests.support.made_queues import MadeQueues
from tests.support.restore_life import RETENTION_MS, RestoreCase, Runner

from lakebackup.config import EncryptionOptions
from lakebackup.plan.logs.restore import LogRestoreRequest
from lakebackup.plan.queues.restore import QueueRestoreRequest
from lakebackup.plan.snapshots.restore import SnapshotRestoreRequest
from lakebackup.plan.topics.request import RestoreRequest
from lakebackup.store.data_keys import RunEncryption
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.archives import import_archive
from lakebackup_jobs.archives import restore as restore_archive
from lakebackup_jobs.archives.import_archive import ArchiveImportRequest
from lakebackup_jobs.archives.restore import ArchiveRestoreRequest
from lakebackup_jobs.logs.restore import job as restore_log
from lakebackup_jobs.queues.restore import job as restore_queue
from lakebackup_jobs.runtime import identities
from lakebackup_jobs.snapshots import backup as backup_snapshot
from lakebackup_jobs.snapshots import restore as restore_snapshot
from lakebackup_jobs.snapshots.request import SnapshotRequest
from lakebackup_jobs.targets.topics import group_of
from lakebackup_jobs.topics import restore as restore_topics

RECORDS = [
    Record(0, 0, 100, b"a", b"1", (("h", None),)),
    Record(0, 1, 101, None, b"2"),
    Record(1, 0, 102, b"b", None),
    Record(0, 2, 1100, b"a", b"3"),
    Record(1, 1, 1101, b"c", b""),
]


class TopicsCase(RestoreCase):
    """A full and a differential of a topic, each with a file for each of two partitions."""

    JOB, SOURCE = restore_topics, "prod"
    ANOTHER_REQUEST: ClassVar[dict[str, Any]] = {"to_ts": 1000}
    PERMANENT = ("translation/",)

    def back_up(self) -> None:
        backups = MadeBackups(self.root)
        for files in ((RECORDS[:2], RECORDS[2:3]), (RECORDS[3:4], RECORDS[4:])):
            backups.backup(files)
        backups.flush()

    @property
    @abstractmethod
    def target(self) -> str: ...

    def request(self, **changes: Any) -> RestoreRequest:
        return RestoreRequest(
            **{
                "target": self.target,
                "source": self.SOURCE,
                "topics": ("orders",),
                "maps": {"orders": f"{self.prefix}orders"},
                **changes,
            }
        )

    @property
    def expected(self) -> Any:
        """Partition, offset, key and value of each record, in order."""
        return sorted(((r.partition, r.offset, r.key, r.value) for r in RECORDS), key=lambda row: row[:2])


class TopicsIntoKafka(TopicsCase):
    STATES = (
        "put own.json", "alter_settings", "put plan.json", "commit transaction #2", "after transaction #2",
        "alter_settings #2", "commit translations", "commit restores #2",
    )  # fmt: skip
    MIDDLE = "commit transaction #2"
    GUARDS_UNFINISHED = INTO_KAFKA = True
    TOPICS: ClassVar[dict[str, int]] = {"orders": 8}

    @property
    def target(self) -> str:
        return f"kafka://{self.bootstrap}"

    def sweep(self) -> None:
        """After such a kill the record of the topic's settings stays: nobody can tell it from one of a run
        that was killed before its first row, which the topic still needs. The next restore replaces it. The
        consumer group stays too, without members: brokers drop it after offsets.retention.minutes."""
        super().sweep()
        for path in self.root.glob("restores/settings-*/own.json"):
            path.unlink()
        name, client = (
            group_of(self.rows()[-1]["restore_id"]),
            AdminClient({"bootstrap.servers": self.bootstrap}),
        )
        (group,) = client.describe_consumer_groups([name]).values()
        assert not group.result(30).members
        for deletion in client.delete_consumer_groups([name]).values():
            with suppress(KafkaException):  # the run was killed after it had deleted the group
                deletion.result(30)

    def assert_restored(self) -> None:
        """Translations lead to each record, the topic has its own settings again, and no group is left."""
        super().assert_restored()
        topic = f"{self.prefix}orders"
        rows, records = (
            select_rows(self.root, "SELECT * FROM translations"),
            translated.records_by_offset(self.bootstrap, topic),
        )
        for record in RECORDS:
            copy = records[translated.target_of(rows, record.partition, record.offset) or (-1, -1)]
            assert (copy.key, copy.value) == (record.key, record.value)
        assert truth.settings(self.bootstrap, topic)["retention.ms"] == RETENTION_MS
        client = AdminClient({"bootstrap.servers": self.bootstrap})  # it must live until the answer is there
        listing = client.list_consumer_groups().result(30)
        own_group = group_of(self.rows()[-1]["restore_id"])
        assert [group.group_id for group in listing.valid if group.group_id.startswith(own_group)] == []

    def contents(self) -> Any:
        return {
            p: [(r.key, r.value, r.timestamp) for r in rows]
            for p, rows in self.topic_contents("orders").items()
        }

    @property
    def expected(self) -> Any:
        return {p: [(r.key, r.value, r.ts) for r in RECORDS if r.partition == p] for p in (0, 1)}


class TopicsIntoFolder(TopicsCase):
    STATES = ("put plan.json", "put data #2", "commit restores #2")
    MIDDLE = "put data #2"

    @property
    def target(self) -> str:
        return f"dir:{self.target_path}"

    def contents(self) -> Any:
        rows = ((offset, record) for offset, record in truth.records_below(self.target_path / "topics"))
        return sorted(
            ((record.partition, offset, record.key, record.value) for offset, record in rows),
            key=lambda row: row[:2],
        )


class TopicsIntoTable(TopicsCase):
    RUNNERS = ("spark",)
    STATES = ("put plan.json", "write table", "after table", "commit restores #2")
    MIDDLE = "after table"

    @property
    def target(self) -> str:
        return f"delta:{self.target_path}"

    def contents(self) -> Any:
        rows = DeltaTable(self.target_path).to_pyarrow_table().to_pylist()
        return sorted(
            ((row["partition"], row["offset"], row["key"], row["value"]) for row in rows),
            key=lambda row: row[:2],
        )


class TopicsIntoFile(TopicsCase):
    RUNNERS = ("local",)
    STATES = ("put plan.json", "put file.json", "put orders.csv", "commit restores #2")
    MIDDLE = "put orders.csv"

    @property
    def target(self) -> str:
        self.target_path.mkdir(exist_ok=True)
        return f"csv:{self.target_path}/orders.csv"

    def contents(self) -> Any:
        with (self.target_path / "orders.csv").open(newline="") as stream:
            rows = list(csv.DictReader(stream))
        return [(int(row["partition"]), int(row["offset"]), row["key"], row["value"]) for row in rows]

    @property
    def expected(self) -> Any:
        return [
            (partition, offset, (key or b"").decode(), (value or b"").decode())
            for partition, offset, key, value in super().expected
        ]


class LogCase(RestoreCase):
    """Two flushes of a log."""

    JOB, SOURCE = restore_log, "shop"
    ANOTHER_REQUEST: ClassVar[dict[str, Any]] = {"end_ts": 10}
    IS_IDEMPOTENT = True
    HAS_FULL: ClassVar[bool] = False
    FIRST = (put_change(21, b"a", 5, b"1"), put_change(21, b"b", 6, b"2"))
    SECOND = (put_change(21, b"a", 15, b"3"), delete(21, b"b", 16), put_change(21, b"c", 17, b"4"))

    def back_up(self) -> None:
        changes = MadeChanges(self.root, CatalogWriter(None, str(self.root)), domain="ms")
        changes.flush(self.FIRST, 10, names=[table_name_row(21, "orders", 1)])
        if self.HAS_FULL:
            changes.full(10)
        changes.flush(self.SECOND, 20)

    @property
    @abstractmethod
    def target(self) -> str: ...

    def request(self, **changes: Any) -> LogRestoreRequest:
        return LogRestoreRequest(
            **{"target": self.target, "name": self.SOURCE, "on_full": self.HAS_FULL, **changes}
        )

    @property
    def expected(self) -> Any:
        return [(b"a", b"3"), (b"b", None), (b"c", b"4")]


class LogIntoTable(LogCase):
    #: The last run only records that the table holds all.
    STATES = ("commit restores", "write table", "after table", "commit restores")
    MIDDLE = "write table"

    @property
    def target(self) -> str:
        return f"delta:{self.target_path}"

    def contents(self) -> Any:
        rows = DeltaTable(self.target_path).to_pyarrow_table().to_pylist()
        return sorted((row["key"], row["value"]) for row in rows)

    @property
    def expected(self) -> Any:
        return [(b"a", b"3"), (b"c", b"4")]


class PointIntoTable(LogIntoTable):
    """The rows of a full, and the changes since."""

    HAS_FULL = True
    ANOTHER_REQUEST: ClassVar[dict[str, Any]] = {"end_ts": 16}


class LogIntoFolder(LogCase):
    STATES = ("commit restores", "put _range.json", "commit restores #2")
    MIDDLE = "put _range.json"

    @property
    def target(self) -> str:
        return f"dir:{self.target_path}"

    def contents(self) -> Any:
        rows = pq.ParquetDataset(self.target_path / "0-20").read().to_pylist()
        return sorted((row["key"], row["value"]) for row in rows)


class LogIntoTopics(LogCase):
    STATES = (
        "put staged.json", "create_topics", "put held.json", "commit transaction", "after transaction",
        "put held.json #2", "delete staged.json", "put held.json", "commit restores #2",
    )  # fmt: skip
    MIDDLE = "commit transaction"
    GUARDS_UNFINISHED = INTO_KAFKA = True
    PERMANENT = ("held.json",)

    @property
    def target(self) -> str:
        return f"kafka://{self.bootstrap}?prefix={self.prefix}."

    def contents(self) -> Any:
        (rows,) = self.topic_contents(".shop.orders").values()
        return sorted((record.key, record.value) for record in rows)


class EncryptedLogIntoTopics(LogIntoTopics):
    """The same, of a log that is encrypted for a recipient. Nobody can read what an interrupted run left."""

    FIRST = (put_change(21, b"secret-a", 5, b"secret-1"), put_change(21, b"secret-b", 6, b"secret-2"))
    SECOND = (
        put_change(21, b"secret-a", 15, b"secret-3"),
        delete(21, b"secret-b", 16),
        put_change(21, b"secret-c", 17, b"secret-4"),
    )

    def back_up(self) -> None:
        self._keys = write_identity(self.folder)
        encryption = RunEncryption((self._keys.recipient,))
        writer = CatalogWriter(None, str(self.root))
        changes = MadeChanges(self.root, writer, domain="ms", encryption=encryption)
        changes.flush(self.FIRST, 10, names=[table_name_row(21, "orders", 1)])
        changes.flush(self.SECOND, 20)

    def run(self, runner: Runner | None = None, **changes: Any) -> dict[str, Any]:
        identities.use(EncryptionOptions(identity_file=str(self._keys.file)))
        try:
            return super().run(runner, **changes)
        finally:
            identities.use(EncryptionOptions())
            assert leaks(self.root, [b"secret-"]) == []

    @property
    def expected(self) -> Any:
        return [(b"secret-a", b"secret-3"), (b"secret-b", None), (b"secret-c", b"secret-4")]


class SnapshotCase(RestoreCase):
    """The second of two snapshots."""

    JOB, SOURCE = restore_snapshot, "yb"
    ANOTHER_REQUEST: ClassVar[dict[str, Any]] = {"to_ts": 1000}
    STATES = ("put plan.json", "write file #2", "finish folder", "commit restores #2")
    MIDDLE = "write file #2"
    IS_IDEMPOTENT = GUARDS_UNFINISHED = True
    FILES: ClassVar[dict[str, bytes]] = {"CURRENT": b"2", "000001.sst": b"one" * 99, "000002.sst": b"two"}

    def back_up(self) -> None:
        snapshots = GivenSnapshots(self.root, self.SOURCE, CatalogWriter(None, str(self.root)))
        snapshots.backup([FileContent(name="CURRENT", data=b"1", mtime_ms=1000)])
        snapshots.backup(
            [FileContent(name=name, data=data, mtime_ms=2000) for name, data in self.FILES.items()]
        )

    def request(self, **changes: Any) -> SnapshotRestoreRequest:
        return SnapshotRestoreRequest(**{"folder": str(self.target_path), **changes})

    def contents(self) -> Any:
        files = [path for path in self.target_path.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.target_path)): path.read_bytes() for path in files}

    @property
    def expected(self) -> Any:
        return {f"t1/a1/{name}": data for name, data in self.FILES.items()}


class EncryptedSnapshotCase(SnapshotCase):
    """The same, of a folder that is encrypted. Each run opens the data keys with the identity."""

    def back_up(self) -> None:
        self._keys, tree = write_identity(self.folder), self.folder / "t1"
        tree.mkdir()
        for number, files in enumerate(({"CURRENT": b"1"}, self.FILES), start=1):
            for name, content in files.items():
                (tree / name).write_bytes(content)
            request = SnapshotRequest(
                str(self.root),
                paths=(str(tree),),
                source=self.SOURCE,
                taken_at=1000 * number,
                recipients=(self._keys.recipient,),
                runner="local",
            )
            backup_snapshot.run(request, reporter=quiet())

    def run(self, runner: Runner | None = None, **changes: Any) -> dict[str, Any]:
        identities.use(EncryptionOptions(identity_file=str(self._keys.file)))
        try:
            return super().run(runner, **changes)
        finally:
            identities.use(EncryptionOptions())

    @property
    def expected(self) -> Any:
        return {f"t1/{name}": data for name, data in self.FILES.items()}


class ArchiveCase(RestoreCase):
    """A full and a differential of two buckets."""

    JOB, SOURCE = restore_archive, "archive"
    ANOTHER_REQUEST: ClassVar[dict[str, Any]] = {"buckets": ("other",)}
    STATES = ("put part #2", "finish folder", "put .moving", "commit restores #2")
    MIDDLE = "finish folder"

    def back_up(self) -> None:
        folder = self.folder / self.SOURCE
        full, monday = "2014-02-02T020000Z", "2014-02-03T020000Z"
        write_backup(folder, full, "full", [Doc(b"a", b"1", 1), Doc(b"b", b"1", 2)], design="{}")
        write_backup(folder, full, "full", [Doc(b"z", b"1", 1)], bucket="other")
        write_backup(folder, monday, "diff", [Doc(b"a", b"2", 3), Doc(b"b", None, 4)], chain=full)
        request = ArchiveImportRequest(str(self.root), str(folder), runner="local")
        import_archive.run(request, reporter=quiet())

    def request(self, **changes: Any) -> ArchiveRestoreRequest:
        return ArchiveRestoreRequest(**{"folder": str(self.target_path), **changes})

    def contents(self) -> Any:
        documents = [
            (path.parent.name, json.loads(line)["key"], json.loads(line)["value"])
            for path in self.target_path.rglob("*.jsonl")
            for line in path.read_text().splitlines()
        ]
        return sorted(documents), [path.name for path in self.target_path.rglob("design.json")]

    @property
    def expected(self) -> Any:
        return [("bucket-default", "a", 2), ("bucket-other", "z", 1)], ["design.json"]


class QueuesCase(RestoreCase):
    """An engine with a full and an incremental: a folder, and topics."""

    JOB, SOURCE = restore_queue, "social"
    ANOTHER_REQUEST: ClassVar[dict[str, Any]] = {"to_tid": 3}
    STATES = (
        "begin folder", "create_topics", "put queue.json", "write file", "commit transaction #2",
        "after transaction", "put done.json", "commit queue_restores", "finish folder", "commit restores #2",
    )  # fmt: skip
    MIDDLE = "commit transaction #2"
    GUARDS_UNFINISHED = INTO_KAFKA = True
    TOPICS: ClassVar[dict[str, int]] = {"journal.0": 1}
    QUEUES = ("delta.0", "journal.0")

    def back_up(self) -> None:
        queues = MadeQueues(self.root, CatalogWriter(None, str(self.root)))
        queues.write(1)
        queues.full(10)
        queues.write(2, value=b"two")
        queues.write(3, partition=1, value=b"three")
        queues.incremental(20)
        queues.write(4, queue="journal.0", value=b"four")
        queues.write(5, value=b"five")
        queues.incremental(30)

    def request(self, **changes: Any) -> QueueRestoreRequest:
        return QueueRestoreRequest(
            **{
                "source": self.SOURCE,
                "target": f"kafka://{self.bootstrap}",
                "folder": str(self.target_path),
                "maps": {name: f"{self.prefix}{name}" for name in self.QUEUES},
                **changes,
            }
        )

    def assert_restored(self) -> None:
        """Each partition has one row and one entry of the audit log."""
        super().assert_restored()
        rows = select_rows(self.root, "SELECT scope, region, at FROM queue_restores ORDER BY at")
        assert len(rows) == len({(row["scope"], row["region"]) for row in rows}) == 3
        entries = [json.loads(path.read_bytes()) for path in self.root.glob("audit/*-queue-restore-*")]
        assert sorted(entry["at"] for entry in entries) == [row["at"] for row in rows]

    def contents(self) -> Any:
        messages = {
            (name, partition): [
                "watermark" if "lakebackup-watermark" in dict(record.headers) else record.value
                for record in records
            ]
            for name in self.QUEUES
            for partition, records in self.topic_contents(name).items()
        }
        return messages, sorted(
            str(path.relative_to(self.target_path)) for path in self.target_path.rglob("*") if path.is_file()
        )

    @property
    def expected(self) -> Any:
        messages = {
            ("delta.0", 0): ["watermark", b"two", b"five"],
            ("delta.0", 1): ["watermark", b"three"],
            ("journal.0", 0): ["watermark", b"four"],
        }
        return messages, ["config.yaml", "delta_schema_history.yaml", "snapshot/CURRENT", "snapshot/a"]
