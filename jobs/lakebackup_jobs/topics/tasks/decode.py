"""Rows that Spark tasks decode from a backup's own data files: group commits and schemas.

A backup writes these rows before it exists in the catalog. A rebuild decodes them again from the same files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own documentation has it)

from lakebackup.encryption.objects import Keyring
from lakebackup.errors import Damaged, NotFound
from lakebackup.rows.base import pick
from lakebackup.rows.tables import ARROW_SCHEMAS
from lakebackup.sql_engine.spark import SparkEngine
from lakebackup.sql_engine.worker import PerNumber
from lakebackup.store.data_keys import RunEncryption
from lakebackup.store.delta_append import PartRows, grouped
from lakebackup.store.manifest import Manifest
from lakebackup.store.roots import Roots
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.kafka.format import offsets_log, registry
from lakebackup_jobs.kafka.format.arrow import to_arrow
from lakebackup_jobs.kafka.format.offsets_log import OFFSETS_TOPIC
from lakebackup_jobs.kafka.format.stored import StoredFile, open_verified
from lakebackup_jobs.lifecycle.keyring import keys_of_backups
from lakebackup_jobs.lifecycle.tasks.plan_shares import MOST_TASKS
from lakebackup_jobs.lifecycle.workspace import Workspace

Table = Literal["group_commits", "schemas"]
_DECODE = {"group_commits": offsets_log.decode, "schemas": registry.decode}


def decoded_topics(schema_topics: Collection[str]) -> dict[Table, frozenset[str]]:
    """Map each table to the topics whose records become its rows."""
    return {
        "group_commits": frozenset({OFFSETS_TOPIC}),
        "schemas": frozenset(schema_topics) - {OFFSETS_TOPIC},
    }


@dataclass(frozen=True, slots=True)
class Decode:
    """For `FrameWriter`: turns rows of `files` into rows of `table`.

    A missing file was pruned, and gives no row. A damaged file gives one row, with `problem`.
    """

    table: Table
    topics: frozenset[str]
    roots: Roots

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for file in batch.to_pylist():
                if file["scope"] in self.topics:
                    yield from self._decode_file(file)

    def _decode_file(self, file: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        decode, schema = _DECODE[self.table], ARROW_SCHEMAS[self.table]
        origin: dict[str, Any] = {
            "backup_id": file["backup_id"],
            "source": file["source"],
            "log_region": file["region"],
        }
        if self.table == "group_commits":
            origin["log_epoch"] = file["epoch"]
        else:
            origin |= {"scope": file["scope"], "epoch": file["epoch"]}
        try:
            self.roots.open(file["destination"]).stat(file["path"])
            stored_file = pick(StoredFile, file)
            for columns in open_verified(self.roots, stored_file):
                records = to_arrow(columns).select(["offset", "timestamp", "key", "value"]).to_pylist()
                rows = [
                    {
                        **decode(r["key"], r["value"]),
                        **origin,
                        "log_position": r["offset"],
                        "log_ts": r["timestamp"],
                    }
                    for r in records
                ]
                yield pa.RecordBatch.from_pylist(rows, schema)
        except NotFound:
            return
        except Damaged as problem:
            row = {**decode(None, None), **origin, "problem": problem.message}
            row |= {"log_position": file["start_position"], "log_ts": file["min_ts"]}
            yield pa.RecordBatch.from_pylist([row], schema)


@dataclass(frozen=True, slots=True)
class DecodeParts(PerNumber):
    """Like `Decode`, for the files that the manifest parts of a task list."""

    decode: Decode
    parts: PartRows

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        return self.decode(self.parts.rows(number))


def decode_backup(
    work: Workspace,
    backup_id: str,
    parts: Mapping[str, Sequence[str]],
    schema_topics: Collection[str],
    encryption: RunEncryption | None,
) -> list[Table]:
    """Write the decoded rows of a backup in progress. Returns the tables that may have new rows.

    `parts` maps a topic to the manifest parts that list files of it. `encryption`: how the run encrypts them.
    """
    uri, roots = work.storage.uri, Roots({work.destination: work.storage.uri})
    if encryption:
        # With an identity, also the keys of runs that were interrupted.
        earlier_keys = keys_of_backups(work.storage, [(work.source, backup_id)])
        roots = roots.with_keys(Keyring([*earlier_keys.values(), encryption.key(work.source, backup_id)]))
    tables: list[Table] = []
    for table, topics in decoded_topics(schema_topics).items():
        paths = sorted({path for topic in topics for path in parts.get(topic, ())})
        if not paths:
            continue
        count = min(len(paths), MOST_TASKS)
        source = DecodeParts(Decode(table, topics, roots), PartRows(uri, grouped(paths, count)))
        # On Spark, the workers that copied the files have the compiled code in memory already.
        work.writer().append_read(table, source, count, backup_id, in_process=work.runner == "local")
        tables.append(table)
    return tables


def decode_again(
    spark: SparkSession,
    writer: CatalogWriter,
    manifests: Sequence[Manifest],
    transaction: str,
    schema_topics: Collection[str],
) -> None:
    """Write the decoded rows of backups whose files are in the catalog already, once for a `transaction`.

    Encrypted files are decoded with the identity of the settings.
    """
    backups = [(m.backup.source, m.backup.backup_id) for m in manifests]
    roots = Roots({m.backup.destination: writer.home.uri for m in manifests})
    roots = roots.with_keys(keys_of_backups(writer.home, backups))
    files = SparkEngine(spark, writer.catalog_uri).table("files")
    for table, topics in decoded_topics(schema_topics).items():
        topic_files = files.where(
            F.col("backup_id").isin([m.backup.backup_id for m in manifests])
            & F.col("scope").isin(sorted(topics))
        )
        count = topic_files.count()
        if count:
            spread = topic_files.repartition(min(count, MOST_TASKS))
            writer.append_frame(table, spread, transaction, Decode(table, topics, roots))
