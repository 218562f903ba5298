"""Restore into a folder: the same layout and format, with only the records asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Refused
from lakebackup.rules.layout import data_name
from lakebackup.sql_engine.failures import task_errors
from lakebackup.storage import open_storage
from lakebackup_jobs.kafka.format.container import FileWriter
from lakebackup_jobs.kafka.format.records import within
from lakebackup_jobs.kafka.format.stored import open_verified
from lakebackup_jobs.lifecycle.region_outcome import RegionOutcome
from lakebackup_jobs.lifecycle.task_errors import RESTORED, guarded, raise_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lakebackup.plan.topics.request import RestoreRequest
    from lakebackup.plan.topics.restore import RestorePlan
    from lakebackup.store.roots import Roots
    from lakebackup_jobs.kafka.format.stored_file import StoredFile
    from lakebackup_jobs.lifecycle.splits import Shares


class FolderTarget:
    """Data files under topics/<topic>/partition=<n>/ of a folder that holds nothing yet."""

    def __init__(self, request: RestoreRequest, path: str) -> None:
        self._request = request
        self._storage = open_storage(path, private=False)

    def describe(self, plan: RestorePlan) -> dict[str, Any]:
        taken = self._taken(plan)
        return {"target_folder": self._storage.uri, "refused_because": f"it holds {taken}" if taken else None}

    def prepare(self, plan: RestorePlan, restore_id: str, *, resumed: bool) -> None:
        taken = None if resumed else self._taken(plan)
        if taken:
            raise Refused(
                f"{self._storage.uri} holds {taken} already.", hint="Restore into a folder that is empty."
            )

    def _taken(self, plan: RestorePlan) -> str | None:
        for topic in plan.topics:
            for found in self._storage.list(f"topics/{topic.target}/"):
                return found.path
        return None

    def replay(
        self,
        spark: SparkSession,
        shares: Shares,
        plan: RestorePlan,
        restore_id: str,
        roots: Roots,
    ) -> Sequence[RegionOutcome]:
        if not plan.files:
            return []
        job = _RewriteJob(
            roots=roots,
            folder=self._storage.uri,
            shares=shares,
            targets={t.scope: t.target for t in plan.topics},
            from_ts=plan.from_ts,
            to_ts=plan.to_ts,
        )
        with task_errors():
            rows = shares.frame(spark).mapInArrow(job, RESTORED).collect()  # one row a partition
        raise_first(row.error for row in rows)
        return [RegionOutcome(r.scope, r.region, r.entries, r.bytes, r.position) for r in rows]

    def into(self, plan: RestorePlan) -> dict[str, Any]:
        return {}

    def finish(self, plan: RestorePlan) -> Sequence[str]:
        return []

    def forget(self) -> None:
        """Nothing is kept."""


@dataclass(frozen=True, slots=True)
class _RewriteJob:
    roots: Roots
    folder: str
    shares: Shares
    targets: Mapping[str, str]
    from_ts: int | None
    to_ts: int | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for first, files in self.shares.partitions(batches):
            yield guarded(
                RESTORED,
                partial(self._rewrite, first, files),
                scope=first.scope,
                region=first.region,
            )

    def _rewrite(self, first: StoredFile, files: Iterator[StoredFile]) -> dict[str, object]:
        tell = self.shares.board().counter(f"{first.scope}-{first.region}")
        entries = size = position = seq = 0
        for file in files:
            written = self._one(file, seq)
            entries += written
            size += file.bytes
            seq += written > 0
            position = file.end_position
            tell(file.entries, file.bytes)
        return {
            "scope": first.scope,
            "region": first.region,
            "entries": entries,
            "bytes": size,
            "position": position,
        }

    def _one(self, file: StoredFile, seq: int) -> int:
        reader = open_verified(self.roots, file)
        with open_storage(self.folder, private=False).writer() as sink:
            writer = FileWriter(sink, codec=reader.codec, fmt=reader.fmt)
            kept = 0
            for columns in reader:
                block = within(columns, self.from_ts, self.to_ts).packed()
                if block is not None:
                    writer.write_block(block)
                    kept += block.stats.entries
            if kept:
                writer.finish()
                target = self.targets[file.scope]
                # Named by place in the order, so that a restore that goes on writes the same files again.
                sink.commit(
                    f"topics/{target}/partition={file.region}/{data_name(target, int(file.region), seq)}",
                    if_absent=False,
                )
        return kept
