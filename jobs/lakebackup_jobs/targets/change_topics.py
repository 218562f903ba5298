"""Restore a log into topics, one a table: a record for the latest change of each key in the span.

The changes are staged first, then tasks produce them in transactions that carry how far they are. What the
topics hold, and what is on its way into them, is recorded beside the backups.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import numpy as np

from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup.plan.logs.flush import physical_ms
from lakebackup.rules import layout
from lakebackup.rules.patterns import check_topic_name
from lakebackup.storage import open_storage, working
from lakebackup_jobs.kafka.admin import rights
from lakebackup_jobs.kafka.admin.committed import Progress
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
from lakebackup_jobs.targets import Held, Target
from lakebackup_jobs.targets.replay_task import ANY, PARTITIONER, TRANSACTION_BYTES
from lakebackup_jobs.targets.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakebackup.plan.logs.restore import LogRestorePlan, LogRestoreRequest
    from lakebackup.plan.partitions import TopicState
    from lakebackup_jobs.logs.restore.apply import Changes

# A key's last record is what counts; and whatever the database took is not too large.
_SETTINGS = {"cleanup.policy": "compact", "max.message.bytes": str(2**30)}
_COPIES = 3
_SHOWN = 10
#: Begins the names of the groups and transactional ids of such restores.
OWN_NAMES = "lakebackup-log-"
_HEADER = b"\x02\x12commit_ts\x02"  # one header of that name, its value not null: Avro, as data files have it
_ROWS = 50_000


class ChangeTopics(Target):
    """Topics `<prefix><db>.<name>` of the cluster at `kafka://HOST:PORT[,…][?prefix=TEXT&partitions=N]`."""

    def __init__(self, request: LogRestoreRequest, rest: str) -> None:
        servers, _, query = rest.partition("?")
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
        known = f"{self._cluster.cluster_id()}\n{self._prefix}"
        name = f"topics-{hashlib.sha256(known.encode()).hexdigest()[:32]}"
        self._known = f"{layout.restore_folder(name)}held.json"
        self.place = f"kafka://{servers}" + (f"?prefix={self._prefix}" if self._prefix else "")

    def held(self) -> Held | None:
        """What earlier restores from this destination brought under the prefix, and is still there."""
        kept = self._kept()
        held = Held.read(json.dumps(kept.get("held")))
        if held is None or not self._gone(kept.get("topics", {})):
            return held
        if self._request.start_ts == held.to_ts:
            raise Refused(
                f"The topics that restores filled up to {held.to_ts} were deleted.",
                hint="Leave out --startts, to restore them from the beginning.",
            )
        return None

    def write(self, content: Changes) -> dict[str, int]:
        """Stage the changes, once, and produce them from where the topics have them."""
        after = content.after
        asked = json.dumps([self._known, after.text()])
        name = hashlib.sha256(asked.encode()).hexdigest()[:32]
        folder, group = layout.restore_folder(f"log-{name}"), f"{OWN_NAMES}{name}"
        topics = self._topics(content.plan)
        ours = json.loads(after.text())
        kept = self._kept()
        doing = kept.get("doing") or {"held": ours}
        if self._gone(doing.get("topics", {})):
            doing = {"held": ours}
            self._clear(folder, group, len(self._staged(folder) or ()))
        if doing["held"] != ours:
            held = doing["held"]
            raise Refused(
                f"A restore of {held['source']} in ({held['start_ts']}, {held['to_ts']}] into these topics "
                "was cut off, and they hold a part of it.",
                hint=f"Finish it first: --startts {held['start_ts']} --endts {held['to_ts']}, and its -f.",
            )
        if "entries" not in doing:
            files = self._staged(folder)
            if files is None:
                self._refuse(topics, content)
                files = self._stage(content, folder)
            self._make(topics)
            doing = {"topics": self._ids(topics), **doing}
            self._keep(doing=doing)
            entries = self._produce(content, files, topics[0], group)
            doing = {**doing, "entries": entries, "files": len(files)}
            self._keep(doing=doing)
        # Until it is recorded as done, whoever resumes it clears what was staged.
        self._notes += self._clear(folder, group, doing["files"])
        before = kept.get("topics", {}) if content.before else {}
        # A restore that an older version began did not note them.
        ids = doing.get("topics") or self._ids(topics)
        self._keep(held=ours, topics={**before, **ids}, doing=None)
        return {"entries": doing["entries"], "topics": len(topics)}

    def _produce(self, content: Changes, files: Sequence[str], topic: str, group: str) -> int:
        """Produce staged files from where their groups are; how many changes there are in all."""
        job = ProduceJob(
            uri=self._storage.uri,
            files=files,
            group=group,
            client=self._client,
            prefix=self._prefix,
            mark=(topic, 0),
            domain=content.plan.domain,
            counters=TaskCounters(content.splits.uri, content.splits.folder),
        )
        return sum(row.entries for row in run_all(job, range(len(files)), content.cluster))

    def _keep(self, **new: object) -> None:
        self._storage.put(self._known, json.dumps({**self._kept(), **new}).encode(), if_absent=False)

    def _kept(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self._storage.get(self._known))
        except NotFound:
            return {}
        return found

    def _topics(self, plan: LogRestorePlan) -> list[str]:
        names = sorted(f"{table.db}.{table.name}" for table in plan.tables)
        if not names:
            raise Refused(
                f"No table of {plan.source} has a name then, so there is no name for a topic.",
                hint="Restore into delta: or dir:, where tables go by their ids.",
            )
        return [check_topic_name(topic_of(self._prefix, name)) for name in dict.fromkeys(names)]

    def _refuse(self, topics: Sequence[str], content: Changes) -> None:
        """Refused when the topics hold something else, or keys that topics cannot be rid of."""
        before = content.before
        emptied = content.emptied() if before else None
        if before and (content.plan.changed or (emptied is not None and emptied.limit(1).count())):
            raise Refused(
                "Tables were dropped, renamed or emptied within the span: their keys in the topics cannot be "
                "named.",
                hint="Restore from the beginning under another prefix.",
            )
        mine = self._kept().get("topics", {})
        states = self._present(topics)
        _, regions = self._cluster.positions(states, "read_uncommitted")
        full = {region.scope for region in regions if region.high > region.low}
        other = [s.scope for s in states if s.scope in full and not (before and mine.get(s.scope) == s.epoch)]
        if other:
            raise Refused(
                f"Topics hold records already: {', '.join(other[:_SHOWN])}"
                f"{' and others' if len(other) > _SHOWN else ''}.",
                hint="Restore under another prefix (?prefix=TEXT). To resume a restore that was cut off, "
                "give the same --startts and --endts.",
            )
        existing = {state.scope for state in states}
        for topic in topics:
            if topic not in existing:
                self._cluster.check_topic(topic, self._partitions, self._copies, _SETTINGS)

    def _present(self, topics: Iterable[str]) -> list[TopicState]:
        """Those of the topics that are there."""
        there = set(self._cluster.topic_names())
        return self._cluster.describe([topic for topic in topics if topic in there])

    def _ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The ids of those of the topics that are there."""
        return {state.scope: state.epoch for state in self._present(topics)}

    def _gone(self, filled: Mapping[str, str]) -> bool:
        """Whether the topics (name -> id) that a restore filled were deleted. Refused when only some were."""
        ids = self._ids(filled)
        lost = [topic for topic, epoch in filled.items() if ids.get(topic) != epoch]
        if 0 < len(lost) < len(filled):
            raise Refused(
                f"Topics that a restore filled were deleted or recreated: {', '.join(lost[:_SHOWN])}"
                f"{' and others' if len(lost) > _SHOWN else ''}.",
                hint="Delete the others that it filled too and restore from the beginning, or restore under "
                "another prefix (?prefix=TEXT).",
            )
        return bool(lost)

    def _make(self, topics: Sequence[str]) -> None:
        there = set(self._cluster.topic_names())
        created = [topic for topic in topics if topic not in there]
        for topic in created:
            self._cluster.create_topic(topic, self._partitions, self._copies, _SETTINGS)
        rights.require(self._rights.of_topics(created), outcome="No record is written")

    def missing_rights(self, plan: LogRestorePlan) -> Sequence[str]:
        return self._rights.missing(self._topics(plan), self._cluster.topic_names())

    def forget(self) -> Sequence[str]:
        return self._notes

    @cached_property
    def _rights(self) -> rights.Rights:
        return rights.Rights(self._client, OWN_NAMES, alters=False)

    @property
    def _copies(self) -> int:
        return min(_COPIES, self._cluster.brokers())

    def _staged(self, folder: str) -> list[str] | None:
        try:
            found: list[str] = json.loads(working.get(self._storage, f"{folder}staged.json"))
        except NotFound:
            return None
        return found

    def _stage(self, content: Changes, folder: str) -> list[str]:
        content.write_files(f"{self._storage.uri}/{folder}changes", whole=False)
        found = [one.path for one in self._storage.list(f"{folder}changes/")]
        files = sorted(path for path in found if path.endswith(".parquet"))
        rows = run_all(_NamelessJob(self._storage.uri, files), range(len(files)), content.cluster)
        if bare := sorted({table for row in rows for table in json.loads(row.tables)})[:_SHOWN]:
            raise Refused(
                f"The log of {content.plan.source} does not have the names of tables "
                f"{', '.join(map(str, bare))}.",
                hint="Choose tables by name with -f, or restore into delta: or dir:.",
            )
        self._storage.put(f"{folder}staged.json", json.dumps(files).encode())
        return files

    def _clear(self, folder: str, group: str, count: int) -> list[str]:
        """The index first: without it nothing is resumed. Returns notes on groups that stay. Where the topics
        are gone, these hold nothing: brokers drop what was committed for a topic that is deleted."""
        working.retire(self._storage, f"{folder}staged.json")
        working.empty(self._storage, f"{folder}changes/")
        return self._cluster.forget_groups(
            [group_of(group, number) for number in range(count)], prefix=OWN_NAMES
        )


@dataclass(frozen=True, slots=True)
class _NamelessJob(Task):
    """Finds tables in a staged file that have no name: up to _SHOWN ids, as JSON."""

    COLUMNS = "tables STRING, error STRING"

    uri: str
    files: Sequence[str]

    def run(self, number: int) -> dict[str, object]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        data = pa.BufferReader(open_storage(self.uri).get(self.files[number]))
        rows = pq.read_table(data, columns=["table_id", "name"])
        bare = rows.filter(rows["name"].is_null())["table_id"].unique()
        return {"tables": json.dumps(bare[:_SHOWN].to_pylist())}


@dataclass(frozen=True, slots=True)
class ProduceJob(Task):
    """Produces the changes in a staged file.

    `mark`: a partition that is there, on which progress is kept; each file has a group of its own.
    """

    COLUMNS = "task INT, entries BIGINT, error STRING"

    uri: str
    files: Sequence[str]
    group: str
    client: Mapping[str, str]
    prefix: str
    mark: tuple[str, int]
    domain: str
    counters: TaskCounters

    def run(self, number: int) -> dict[str, object]:
        return outlasting(partial(self._resume, number))

    def _resume(self, number: int, commits: Callable[[], None]) -> dict[str, object]:
        """Produce from where the file's group is; `commits` is called after each commit."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        name = group_of(self.group, number)
        data = open_storage(self.uri).get(self.files[number])
        position = pending = 0
        client = {**self.client, "partitioner": PARTITIONER}
        waiting = partial(self.counters(f"produce-{number}"), 0, 0)
        with RestoreProducer(client, name, name, zero_as_one=True, wait=waiting) as producer:
            done = producer.committed(*self.mark)
            for batch in pq.ParquetFile(pa.BufferReader(data)).iter_batches(_ROWS):
                position += len(batch)
                if done and position <= done.position:
                    continue
                if not pending:
                    producer.begin()
                for topic, rows in self._topics(batch):
                    producer.produce_block(topic, ANY, columns_of(rows, self.domain))
                pending += batch.nbytes
                if pending >= TRANSACTION_BYTES:
                    producer.commit({self.mark: Progress(position, "")})
                    commits()
                    pending = 0
            if pending:
                producer.commit({self.mark: Progress(position, "")})
        return {"task": number, "entries": position}

    def _topics(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of each table, in the order of a staged file: those of one stand together."""
        import pyarrow.compute as pc

        names = pc.binary_join_element_wise(batch["db"], batch["name"], ".")
        changes = np.flatnonzero(pc.not_equal(names[1:], names[:-1]).to_numpy(zero_copy_only=False)) + 1
        for start, stop in pairwise([0, *changes.tolist(), len(batch)]):
            yield topic_of(self.prefix, names[start].as_py()), batch.slice(start, stop - start)


def topic_of(prefix: str, name: str) -> str:
    """The topic of a table by its `db.name`."""
    return prefix + name


def group_of(group: str, number: int) -> str:
    """Whose committed offset is the progress of a staged file; also who produces it."""
    return f"{group}-{number}"


def columns_of(batch: pa.RecordBatch, domain: str) -> Columns:
    """Rows of apply.COLUMNS as records: key, value (null: deleted), the commit's time, and its ts as a
    header `commit_ts`, a decimal number as text."""
    import pyarrow as pa
    import pyarrow.compute as pc

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
    for array, at, length in (
        (batch["key"], KEY, KEY_LENGTH),
        (batch["value"], VALUE, VALUE_LENGTH),
        (headers, HEADERS, None),
    ):
        begins, sizes, data = _bytes(array)
        rows[:, at] = base + begins
        if length is not None:
            rows[:, length] = sizes
        pieces.append(data)
        base += len(data)
    rows[:, HEADER_COUNT] = 1
    rows[:, OFFSET] = np.arange(len(batch))
    commit_ts = batch["commit_ts"].to_numpy(zero_copy_only=False)
    rows[:, TIMESTAMP] = physical_ms(commit_ts, domain)
    return Columns(np.concatenate(pieces), rows, FORMAT_V2)


def _bytes(array: pa.Array) -> tuple[Any, Any, Any]:
    """Of each value of a binary array where it begins and how long it is (null: -1), and the bytes."""
    import pyarrow as pa

    array = pa.concat_arrays([array.cast(pa.binary())])  # from 0 on, without what a slice leaves out
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    sizes = np.diff(ends)
    sizes[array.is_null().to_numpy(zero_copy_only=False)] = -1
    return ends[:-1], sizes, np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
