"""Restore of schema registries' topics: schemas keep their ids, so the target must not contradict them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from lakebackup.errors import NotFound
from lakebackup.plan.topics.request import RestoreRequest
from lakebackup.plan.topics.restore import RestorePlan, TopicPart
from lakebackup.plan.topics.schemas import (
    RegistryRecord,
    after_restore,
    conflicts,
    positions_to_skip,
    readable,
)
from lakebackup.rules.schema_ids import SchemaIds, schema_ids
from lakebackup.storage import open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.kafka.client.consume import reader
from lakebackup_jobs.kafka.format.arrow import to_arrow
from lakebackup_jobs.kafka.format.registry import decode
from lakebackup_jobs.lifecycle.tasks.plan_shares import PlanShares

# Records are compared in memory. A restore into a topic that holds records is refused if the topic or the
# backup has more than this.
MOST_RECORDS = 1_000_000
MOST_LISTED = 10


class Registries:
    """The schema registries among the topics of a restore. `client`: librdkafka properties of the target."""

    def __init__(self, request: RestoreRequest, client: Mapping[str, str], reader: CatalogReader) -> None:
        self._request, self._client, self._reader = request, client, reader
        self._record_counts: dict[str, int] | None = None

    def of(self, plan: RestorePlan) -> frozenset[str]:
        """The topics of a plan that are schema registries: those whose backups have rows in `schemas`."""
        return frozenset(t.scope for t in plan.topics if t.scope in self._records(plan))

    def misfit(self, plan: RestorePlan, topic: TopicPart, *, partitions: int, offsets: int) -> str | None:
        """Why a registry's records may not go into a topic with `partitions` partitions and `offsets`
        offsets; None: they may."""
        if self._request.records is not None:
            return f"topic {topic.scope} is a schema registry's, restored whole, without --select-records"
        if (topic.regions, partitions) != (1, 1) or self._request.repartition:
            return f"topic {topic.target} is a schema registry's, which has one partition and no other"
        if not offsets:
            return None
        if (count := max(offsets, self._records(plan)[topic.scope])) > MOST_RECORDS:
            return f"topic {topic.target} or its backup has {count} records: too many to compare the two"
        problems = conflicts(self._backup_records(plan, topic), self._target_records(topic.target))
        if not problems:
            return None
        rest_note = f"; and {len(problems) - MOST_LISTED} more" if len(problems) > MOST_LISTED else ""
        listed = "; ".join(problems[:MOST_LISTED])
        return f"topic {topic.target} holds other schemas than the backup: {listed}{rest_note}"

    def excluded_offsets(self, plan: RestorePlan, shares: PlanShares) -> dict[str, frozenset[int]]:
        """The offsets of each topic that are not restored, because the target has their schemas already.

        They are determined once for a restore and recorded; later on, the target holds restored records too.
        """
        storage, path = open_storage(shares.uri), f"{shares.folder}plan/registries.json"
        try:
            offsets_by_topic: dict[str, list[int]] = json.loads(storage.get(path))
        except NotFound:
            offsets_by_topic = {}
            for topic in plan.topics:
                if topic.scope in self.of(plan) and (target_records := self._target_records(topic.target)):
                    offsets_by_topic[topic.scope] = positions_to_skip(
                        self._backup_records(plan, topic), target_records
                    )
            storage.put(path, json.dumps(offsets_by_topic).encode(), if_absent=False)
        return {scope: frozenset(positions) for scope, positions in offsets_by_topic.items() if positions}

    def at_target(self, plan: RestorePlan) -> SchemaIds | None:
        """What schema ids mean at the target after the restore, by its registries' topics; None: it has no
        registry. Existing topics with more than MOST_RECORDS records, or several partitions, are not read."""
        restored = [t for t in plan.topics if t.scope in self.of(plan)]
        cluster = Cluster(self._client)
        existing = set(cluster.topic_names()) & {*self._request.schema_topics, *(t.target for t in restored)}
        records = {
            topic: self._target_records(topic) for topic in sorted(existing) if self._is_small(cluster, topic)
        }
        for topic in restored:
            existing_records = records.get(topic.target, [])
            records[topic.target] = after_restore(self._backup_records(plan, topic), existing_records)
        if not records:
            return None
        return schema_ids(
            {**asdict(record), "scope": topic, "epoch": ""}
            for topic, history in records.items()
            for record in readable(history)
        )

    def _is_small(self, cluster: Cluster, topic: str) -> bool:
        states = cluster.describe([topic])
        _, regions = cluster.positions(states, "read_committed")
        return len(regions) == 1 and regions[0].end - regions[0].low <= MOST_RECORDS

    def _records(self, plan: RestorePlan) -> dict[str, int]:
        if self._record_counts is None:
            rows = self._reader.rows("registry_topics", source=plan.source)
            self._record_counts = {row["scope"]: row["records"] for row in rows}
        return self._record_counts

    def _backup_records(self, plan: RestorePlan, topic: TopicPart) -> list[RegistryRecord]:
        parameters = {"source": plan.source, "scope": topic.scope, "to_ts": plan.to_ts}
        rows = self._reader.rows("registry_records", **parameters)
        return [_record(row, row["log_position"]) for row in rows]

    def _target_records(self, topic: str) -> list[RegistryRecord]:
        """The committed records of a registry's topic at the target, up to its present end. Raises
        EnvironmentProblem."""
        cluster = Cluster(self._client)
        (state,) = cluster.describe([topic])
        _, regions = cluster.positions([state], "read_committed")
        source = reader(self._client, topic=(topic, state.epoch))
        return [
            _record(decode(row["key"], row["value"]), row["offset"])
            for block in source.blocks(topic, 0, regions[0].low, regions[0].end)
            for row in to_arrow(block.columns()).to_pylist()
        ]


def _record(row: Mapping[str, Any], position: int) -> RegistryRecord:
    names = (field.name for field in fields(RegistryRecord) if field.name != "position")
    values: dict[str, Any] = {name: row.get(name) for name in names}
    return RegistryRecord(**values, position=position)
