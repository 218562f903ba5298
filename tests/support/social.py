"""The queues of an engine, to which a test sends messages, and backups of them."""

from __future__ import annotations

import io
import json
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import fastavro
import pytest
from confluent_kafka import Producer
from tests.support.looks import select_rows

from lakebackup.formats.queues.headers import HeaderNames
from lakebackup.formats.queues.watermark import Watermark, headers_of
from lakebackup.plan.queues.restore import QueueRestoreRequest
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.queues.backup import job as backup_queue
from lakebackup_jobs.queues.backup.request import QueueRequest
from lakebackup_jobs.queues.restore import job as restore_queue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

# Topic, partition, tid.
Message = tuple[str, int, int]
SCHEMA = "schemas:\n- {version: 1, tid: 0, schema: {person: [name]}}\n"


class Social:
    """The queues of an engine, a folder for its files, and a destination."""

    def __init__(self, bootstrap: str, folder: Path, empty_catalog: Path, delta: str, journal: str) -> None:
        self.bootstrap, self.folder, self.delta, self.journal = bootstrap, folder, delta, journal
        self.repo = folder / "backups"
        shutil.copytree(empty_catalog, self.repo / "catalog")
        self.notes = io.StringIO()
        self.warnings = io.StringIO()
        self.producer = Producer({"bootstrap.servers": bootstrap})
        self.tid = 0
        self.config, self.schema = folder / "config.yaml", folder / "delta_schema_history.yaml"
        self.config.write_text("engine: 4\n")
        self.schema.write_text(SCHEMA)
        self.snapshot = folder / "engine" / "snapshot"
        self.snapshot.mkdir(parents=True)
        (self.snapshot / "000001.sst").write_bytes(b"x" * 1000)

    def send(
        self,
        topic: str,
        partition: int = 0,
        transaction: str = "",
        kind: str = "",
        tid: int | None = None,
        value: bytes = b"value",
    ) -> Message:
        self.tid = self.tid + 1 if tid is None else tid
        headers: list[tuple[str, str | bytes | None]] = [("tid", str(self.tid).encode())]
        headers += [("transaction", transaction.encode())] if transaction else []
        headers += [("kind", kind.encode())] if kind else []
        self.producer.produce(topic, value, b"key", partition, headers=headers)
        self.producer.flush()
        return topic, partition, self.tid

    def mark(self, restore_id: str, to_tid: int, topic: str, partition: int) -> None:
        """Send the watermark that a restore writes before its messages."""
        value = Watermark("social", "f", "b", restore_id, 0, to_tid).value
        headers: list[tuple[str, str | bytes | None]] = [*headers_of(HeaderNames())]
        self.producer.produce(topic, value, None, partition, headers=headers)
        self.producer.flush()

    def write_snapshot_json(
        self, last_tid: int, positions: dict[tuple[str, int], tuple[int, int]], **fields: Any
    ) -> None:
        """Write snapshot.json: (topic, partition) -> (position, max_no_transaction_pos)."""
        queues = [
            {
                "topic": t,
                "partition": p,
                "position": position,
                "max_no_transaction_pos": no_transaction_position,
            }
            for (t, p), (position, no_transaction_position) in positions.items()
        ]
        content = {"format": 1, "graph": "social", "last_tid": last_tid, "queues": queues, **fields}
        (self.snapshot.parent / "snapshot.json").write_text(json.dumps(content))

    def backup(self, mode: Any = "auto", spark: SparkSession | None = None, **changes: Any) -> dict[str, Any]:
        request = QueueRequest(
            **{
                "destination": str(self.repo),
                "source": "social",
                "topics": (self.delta, self.journal),
                "kafka": {"bootstrap.servers": self.bootstrap},
                "mode": mode,
                "config": str(self.config),
                "schema": str(self.schema),
                **changes,
            }
        )
        reporter = Reporter(io.StringIO(), self.warnings)
        return backup_queue.run(request, spark=spark, reporter=reporter)

    def full(self, **changes: Any) -> dict[str, Any]:
        return self.backup("full", snapshot=str(self.snapshot), **changes)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        return select_rows(self.repo, sql)

    def stored_messages(self, backup_id: str) -> list[Message]:
        """The messages in the files of a backup, in the order of each partition."""
        messages: list[Message] = []
        files = self.rows(
            f"SELECT scope, region, path FROM files WHERE backup_id = '{backup_id}' AND role = 'data' "
            "ORDER BY scope, CAST(region AS BIGINT), start_position"
        )
        for file in files:
            with (self.repo / file["path"]).open("rb") as data:
                for row in cast("list[dict[str, Any]]", list(fastavro.reader(data))):
                    headers = {h["key"]: h["value"] for h in row["headers"]}
                    messages.append((file["scope"], int(file["region"]), int(headers["tid"])))
        return messages

    def open_at(self, backup_id: str) -> set[str]:
        rows = self.rows(f"SELECT transaction_id FROM queue_transactions WHERE backup_id = '{backup_id}'")
        return {row["transaction_id"] for row in rows}

    def tree(self) -> set[str]:
        """The paths of every object of the destination except leases."""
        paths = (p for p in self.repo.rglob("*") if p.is_file())
        return {str(p.relative_to(self.repo)) for p in paths if "leases" not in p.parts}


def ordered(*messages: Message) -> list[Message]:
    return sorted(messages)


def restore(social: Social, folder_name: str, **changes: Any) -> dict[str, Any]:
    """Restore the engine into its own queues, or into the queues that `maps` names."""
    request = QueueRestoreRequest(
        **{
            "destination": str(social.repo),
            "source": "social",
            "target": f"kafka://{social.bootstrap}",
            "folder": str(social.folder / folder_name),
            "maps": {},
            "append": True,
            **changes,
        }
    )
    return restore_queue.run(request, reporter=Reporter(io.StringIO(), social.warnings))


class Cut(BaseException):
    """Raised in place of a kill."""


@contextmanager
def cut_off(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> Iterator[None]:
    """A run inside the block dies when it calls `name` of `owner`."""

    def cut(*_: Any, **__: Any) -> Any:
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, cut)
        with pytest.raises(Cut):
            yield
