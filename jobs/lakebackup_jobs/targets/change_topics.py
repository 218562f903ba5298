"""Restore a log into topics, one for each table: one record for the latest change of each key in the span.

The changes are staged as Parquet files first, encrypted if the log is. Then tasks produce them in
transactions; each transaction also commits the task's progress. An object beside the backups records what
the topics hold, and which restore is in progress.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup.plan.logs.flush import physical_ms
from lakebackup.plan.logs.restore import LogRestorePlan, LogRestoreRequest
from lakebackup.plan.partitions import TopicState
from lakebackup.rules import layout
from lakebackup.rules.patterns import check_topic_name
from lakebackup.storage import open_storage
from lakebackup_jobs.kafka.admin import rights
from lakebackup_jobs.kafka.admin.committed import Progress
from lakebackup_jobs.kafka.admin.topic_changes import NewTopic
from lakebackup_jobs.kafka.client.produce import RestoreProducer, outlasting
from lakebackup_jobs.kafka.format.records import (
    HEADER_COUNT,
    HEADERS,
    KEY,
    KEY_LENGTH,
    OFFSET,
    TIMESTAMP,
    VALUE,
    VALUE_LENGTH,
    WIDTH,
    Columns,
)
from lakebackup_jobs.kafka.format.schemas import FORMAT_V2
from lakebackup_jobs.lifecycle.tasks.progress import TaskCounters
from lakebackup_jobs.lifecycle.tasks.task import Task, run_all
from lakebackup_jobs.targets import RestoredSpan, Target
from lakebackup_jobs.targets.replay_task import ANY, PARTITIONER, TRANSACTION_BYTES
from lakebackup_jobs.targets.staged_changes import ChangeContent, ChangeStaging, StagedChanges, open_staged
from lakebackup_jobs.targets.topics import Topics

# Only the last record of a key counts, and no value that the database accepted may be too large.
_SETTINGS = {"cleanup.policy": "compact", "max.message.bytes": str(2**30)}
_REPLICAS = 3
_MOST_LISTED = 10
#: The prefix of the names of the groups and transactional ids of these restores.
OWN_NAMES = "lakebackup-log-"
_HEADER = b"\x02\x12commit_ts\x02"  # in Avro: one header named commit_ts, whose value is not null
_BATCH_ROWS = 50_000


class ChangeTopics(Target):
    """Topics `<prefix><db>.<name>` of the cluster at `kafka://HOST:PORT[,…][?prefix=TEXT&partitions=N]`."""

    def __init__(self, request: LogRestoreRequest, location: str) -> None:
        servers, _, query = location.partition("?")
        options = dict(parse_qsl(query, keep_blank_values=True))
        partitions = options.pop("partitions", "1")
        self._prefix = options.pop("prefix", "")
        if options or not servers or not partitions.isdecimal() or not int(partitions):
            raise UsageProblem(
                f"{request.target!r} is no place to restore to.",
                hint="Give kafka://HOST:PORT[,HOST:PORT][?prefix=TEXT&partitions=N].",
            )
        self._request, self._partitions = request, int(partitions)
        self._client = {**request.kafka, "bootstrap.servers": servers}
        self._cluster = Topics(self._client)
        self._notes: list[str] = []
        self._storage = open_storage(request.destination)
        identity = f"{self._cluster.cluster_id()}\n{self._prefix}"
        name = f"topics-{hashlib.sha256(identity.encode()).hexdigest()[:32]}"
        self._state_path = f"{layout.restore_folder(name)}held.json"
        self.name = f"kafka://{servers}" + (f"?prefix={self._prefix}" if self._prefix else "")

    def restored_span(self) -> RestoredSpan | None:
        """What earlier restores from this destination brought under the prefix, if the topics still exist."""
        state = self._read_state()
        restored = RestoredSpan.read(json.dumps(state.get("held")))
        if restored is None or not self._are_deleted(state.get("topics", {})):
            return restored
        if self._request.start_ts == restored.to_ts:
            raise Refused(
                f"The topics that restores filled up to {restored.to_ts} were deleted.",
                hint="Leave out --startts, to restore them from the beginning.",
            )
        return None

    def require_unclaimed(self, goal: RestoredSpan) -> None:
        in_progress = self._read_state().get("doing")
        if (
            in_progress
            and in_progress["held"] != json.loads(goal.text())
            and not self._are_deleted(in_progress.get("topics", {}))
        ):
            span = in_progress["held"]
            raise Refused(
                f"A restore of {span['source']} in ({span['start_ts']}, {span['to_ts']}] into these topics "
                "was cut off, and they hold a part of it.",
                hint=f"Finish it first: --startts {span['start_ts']} --endts {span['to_ts']}, and its -f.",
            )

    def write(self, content: ChangeContent) -> dict[str, int]:
        """Stage the changes once, and produce them from where an earlier attempt stopped."""
        goal = content.new_contents
        identity = json.dumps([self._state_path, goal.text()])
        name = hashlib.sha256(identity.encode()).hexdigest()[:32]
        staging, group = ChangeStaging(self._storage, f"log-{name}"), f"{OWN_NAMES}{name}"
        topics = self._topics(content.plan)
        goal_fields = json.loads(goal.text())
        state = self._read_state()
        in_progress = state.get("doing") or {"held": goal_fields}
        if self._are_deleted(in_progress.get("topics", {})):
            in_progress = {"held": goal_fields}
            self._clear_staged(staging, group, staging.count())
        if "entries" not in in_progress:
            staged = staging.open(content)
            if staged is None:
                self._check_topics(topics, content)
                staged = staging.stage(content)
            self._create_topics(topics)
            in_progress = {"topics": self._ids(topics), **in_progress}
            self._update_state(doing=in_progress)
            entries = self._produce(content, staged, topics[0], group)
            in_progress = {**in_progress, "entries": entries, "files": len(staged.files)}
            self._update_state(doing=in_progress)
        # The staged files go before the restore is recorded as done, so a run that resumes it clears them.
        self._notes += self._clear_staged(staging, group, in_progress["files"])
        earlier_ids = state.get("topics", {}) if content.old_contents else {}
        # A restore that an older version began did not record the ids.
        ids = in_progress.get("topics") or self._ids(topics)
        self._update_state(held=goal_fields, topics={**earlier_ids, **ids}, doing=None)
        return {"entries": in_progress["entries"], "topics": len(topics)}

    def _produce(self, content: ChangeContent, staged: StagedChanges, topic: str, group: str) -> int:
        """Produce the staged files, each from its group's offset. Returns the number of all changes."""
        job = ProduceJob(
            uri=self._storage.uri,
            staged=staged,
            group=group,
            client=self._client,
            prefix=self._prefix,
            mark=(topic, 0),
            domain=content.plan.domain,
            counters=TaskCounters(content.shares.uri, content.shares.folder),
        )
        return sum(row.entries for row in run_all(job, range(len(staged.files)), content.cluster))

    def _update_state(self, **changes: object) -> None:
        self._storage.put(
            self._state_path, json.dumps({**self._read_state(), **changes}).encode(), if_absent=False
        )

    def _read_state(self) -> dict[str, Any]:
        try:
            state: dict[str, Any] = json.loads(self._storage.get(self._state_path))
        except NotFound:
            return {}
        return state

    def _topics(self, plan: LogRestorePlan) -> list[str]:
        names = sorted(f"{table.db}.{table.name}" for table in plan.tables)
        if not names:
            raise Refused(
                f"No table of {plan.source} has a name then, so there is no name for a topic.",
                hint="Restore into delta: or dir:, where tables go by their ids.",
            )
        return [check_topic_name(topic_of(self._prefix, name)) for name in dict.fromkeys(names)]

    def _check_topics(self, topics: Sequence[str], content: ChangeContent) -> None:
        """Raise Refused when the topics hold anything else, or keys that this restore could not delete."""
        continued = content.old_contents
        if continued and (content.plan.changed or content.empties_tables()):
            raise Refused(
                "Tables were dropped, renamed or emptied within the span: their keys in the topics cannot be "
                "named.",
                hint="Restore from the beginning under another prefix.",
            )
        filled_ids = self._read_state().get("topics", {})
        states = self._present(topics)
        _, regions = self._cluster.positions(states, "read_uncommitted")
        full = {region.scope for region in regions if region.high > region.low}
        foreign = [
            s.scope
            for s in states
            if s.scope in full and not (continued and filled_ids.get(s.scope) == s.epoch)
        ]
        if foreign:
            raise Refused(
                f"Topics hold records already: {', '.join(foreign[:_MOST_LISTED])}"
                f"{' and others' if len(foreign) > _MOST_LISTED else ''}.",
                hint="Restore under another prefix (?prefix=TEXT). To resume a restore that was cut off, "
                "give the same --startts and --endts.",
            )
        existing = {state.scope for state in states}
        for error in self._cluster.check_topics(self._new(set(topics) - existing)).values():
            raise error

    def _present(self, topics: Iterable[str]) -> list[TopicState]:
        """The topics that exist."""
        existing = set(self._cluster.topic_names())
        return self._cluster.describe([topic for topic in topics if topic in existing])

    def _ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The ids of the topics that exist, by name."""
        return {state.scope: state.epoch for state in self._present(topics)}

    def _are_deleted(self, filled: Mapping[str, str]) -> bool:
        """Whether the topics (name -> id) that a restore filled were deleted. Raises Refused when only some
        were."""
        ids = self._ids(filled)
        deleted = [topic for topic, epoch in filled.items() if ids.get(topic) != epoch]
        if 0 < len(deleted) < len(filled):
            raise Refused(
                f"Topics that a restore filled were deleted or recreated: {', '.join(deleted[:_MOST_LISTED])}"
                f"{' and others' if len(deleted) > _MOST_LISTED else ''}.",
                hint="Delete the others that it filled too and restore from the beginning, or restore under "
                "another prefix (?prefix=TEXT).",
            )
        return bool(deleted)

    def _create_topics(self, topics: Sequence[str]) -> None:
        new_topics = self._new(set(topics) - set(self._cluster.topic_names()))
        created: list[str] = []
        for error in self._cluster.create_topics(new_topics, created).values():
            raise error
        self._cluster.wait_until_served(dict.fromkeys(created, self._partitions))
        rights.require(self._rights.of_topics(created), outcome="No record is written")

    def _new(self, topics: Iterable[str]) -> list[NewTopic]:
        return [NewTopic(topic, self._partitions, self._replicas, _SETTINGS) for topic in sorted(topics)]

    def missing_rights(self, plan: LogRestorePlan) -> Sequence[str]:
        return self._rights.missing(self._topics(plan), self._cluster.topic_names())

    def forget(self) -> Sequence[str]:
        return self._notes

    @cached_property
    def _rights(self) -> rights.Rights:
        return rights.Rights(self._client, OWN_NAMES, alters=False)

    @property
    def _replicas(self) -> int:
        return min(_REPLICAS, self._cluster.brokers())

    def _clear_staged(self, staging: ChangeStaging, group: str, count: int) -> list[str]:
        """Delete what is staged and the groups of its progress. Returns notes on groups that stay.

        Groups that stay after the topics were deleted hold no offset, because brokers drop the offsets of a
        deleted topic.
        """
        staging.clear()
        return self._cluster.forget_groups(
            [group_of(group, number) for number in range(count)], prefix=OWN_NAMES
        )


@dataclass(frozen=True, slots=True)
class ProduceJob(Task):
    """Produces the changes in a staged file.

    Each file has a consumer group, whose offset in the partition `mark`, which must exist, is the progress.
    """

    COLUMNS = "task INT, entries BIGINT, error STRING"

    uri: str
    staged: StagedChanges
    group: str
    client: Mapping[str, str]
    prefix: str
    mark: tuple[str, int]
    domain: str
    counters: TaskCounters

    def run(self, number: int) -> dict[str, object]:
        return outlasting(partial(self._resume, number))

    def _resume(self, number: int, commits: Callable[[], None]) -> dict[str, object]:
        """Produce the rows after the group's offset; `commits` is called after each commit."""
        name = group_of(self.group, number)
        file = open_staged(self.uri, self.staged.files[number], self.staged.keys)
        position = pending = 0
        client = {**self.client, "partitioner": PARTITIONER}
        waiting = partial(self.counters(f"produce-{number}"), 0, 0)
        with RestoreProducer(client, name, name, zero_as_one=True, wait=waiting) as producer:
            committed = producer.committed(*self.mark)
            for batch in file.iter_batches(_BATCH_ROWS):
                position += len(batch)
                if committed and position <= committed.position:
                    continue
                if not pending:
                    producer.begin()
                for topic, rows in self._topics(batch):
                    producer.produce_block(topic, ANY, columns_of(rows, self.domain))
                pending += batch.nbytes
                if pending >= TRANSACTION_BYTES or producer.is_due:
                    producer.commit({self.mark: Progress(position, "")})
                    commits()
                    pending = 0
            if pending:
                producer.commit({self.mark: Progress(position, "")})
        return {"task": number, "entries": position}

    def _topics(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Each table's topic and rows. In a staged file, the rows of one table follow one another."""
        names = pc.binary_join_element_wise(batch["db"], batch["name"], ".")
        changes = np.flatnonzero(pc.not_equal(names[1:], names[:-1]).to_numpy(zero_copy_only=False)) + 1
        for start, stop in pairwise([0, *changes.tolist(), len(batch)]):
            yield topic_of(self.prefix, names[start].as_py()), batch.slice(start, stop - start)


def topic_of(prefix: str, name: str) -> str:
    """The topic of a table by its `db.name`."""
    return prefix + name


def group_of(group: str, number: int) -> str:
    """The consumer group whose offset is the progress of a staged file; also its transactional id."""
    return f"{group}-{number}"


def columns_of(batch: pa.RecordBatch, domain: str) -> Columns:
    """Rows of apply.COLUMNS as records: the key, the value (null: deleted), the commit's time, and a header
    `commit_ts`, which holds the commit's ts as a decimal number."""
    texts = batch["commit_ts"].cast(pa.string())
    lengths = pa.array([bytes([2 * length]) for length in range(32)], pa.binary())
    headers = pc.binary_join_element_wise(
        pa.scalar(_HEADER),
        lengths.take(pc.binary_length(texts)),
        texts.cast(pa.binary()),
        pa.scalar(b"\0"),
        b"",
    )
    rows = np.zeros((len(batch), WIDTH), np.int64)
    pieces: list[Any] = []
    base = 0
    for array, start_column, length_column in (
        (batch["key"], KEY, KEY_LENGTH),
        (batch["value"], VALUE, VALUE_LENGTH),
        (headers, HEADERS, None),
    ):
        begins, sizes, data = _bytes(array)
        rows[:, start_column] = base + begins
        if length_column is not None:
            rows[:, length_column] = sizes
        pieces.append(data)
        base += len(data)
    rows[:, HEADER_COUNT] = 1
    rows[:, OFFSET] = np.arange(len(batch))
    commit_ts = batch["commit_ts"].to_numpy(zero_copy_only=False)
    rows[:, TIMESTAMP] = physical_ms(commit_ts, domain)
    return Columns(np.concatenate(pieces), rows, FORMAT_V2)


def _bytes(array: pa.Array) -> tuple[Any, Any, Any]:
    """The start and length (null: -1) of each value of a binary array, and the bytes that hold the values."""
    array = pa.concat_arrays([array.cast(pa.binary())])  # a copy starts at 0, without what a slice leaves out
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    sizes = np.diff(ends)
    sizes[array.is_null().to_numpy(zero_copy_only=False)] = -1
    return ends[:-1], sizes, np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
