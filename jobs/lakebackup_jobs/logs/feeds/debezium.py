"""The feed of Debezium's change events as JSON, from any of its connectors that provide transaction metadata.

The envelope (before, after, source, op, transaction) and the topic of the transactions' ends are as Debezium
documents them. Kafka Connect's JsonConverter wraps both in `payload` when messages contain their schemas.

Each flush first reads the transactions and schema changes that were added since the last one, and stores them
for its tasks. The decoders then capture only events of transactions whose end is known. After the flush,
`checkpoint` adds up which events were captured, and stores what the next flush must know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter

from lakebackup.errors import Damaged, NotFound, Refused
from lakebackup.formats.logs.events import Domain
from lakebackup.plan.partitions import RegionState
from lakebackup.plan.topics.forks import BackupEnd, cut_back
from lakebackup.storage import Storage, open_storage
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.kafka.client.consume import reader
from lakebackup_jobs.kafka.client.epochs import Logs
from lakebackup_jobs.kafka.format.arrow import records_of
from lakebackup_jobs.logs.feeds import ISOLATION, Decoder, Range
from lakebackup_jobs.logs.feeds.debezium_checks import check_ends
from lakebackup_jobs.logs.feeds.debezium_ddl import SCHEMA_CHANGES
from lakebackup_jobs.logs.feeds.debezium_decoder import DebeziumDecoder, Outlook
from lakebackup_jobs.logs.feeds.debezium_json import ENDS, ask, without_tombstones
from lakebackup_jobs.logs.feeds.debezium_tables import Tables
from lakebackup_jobs.logs.feeds.debezium_topics import TRANSACTIONS, Connector, connector_of
from lakebackup_jobs.logs.feeds.schema_changes import SchemaChanges, as_sent, state_path
from lakebackup_jobs.logs.feeds.schema_decoder import SchemaDecoder
from lakebackup_jobs.logs.feeds.transactions import MOST, Transactions, carried, indexed, prepared, tidy
from lakebackup_jobs.logs.feeds.unavailable import Placeholder
from lakebackup_jobs.logs.skips import Skipped, split


@dataclass(frozen=True, slots=True)
class View:
    """What the tasks of a flush know besides the transactions, as of the flush's plan."""

    outlook: Outlook
    changes: SchemaChanges = field(default_factory=SchemaChanges)

    def write(self, storage: Storage, path: str) -> None:
        """Write the view as JSON."""
        storage.put(path, _VIEWS.dump_json(self))


_VIEWS = TypeAdapter(View)
# The view of a flush that an earlier version planned.
_EARLIER_VIEW = View(Outlook(tables=Tables(by_parts=False)))


@lru_cache(maxsize=1)
def view_of(uri: str, path: str) -> View:
    """The view that View.write stored, read once by a process for all partitions. Raises Damaged."""
    try:
        return _VIEWS.validate_json(open_storage(uri).get(path))
    except NotFound as cause:
        raise Damaged(
            f"{uri}/{path} is missing: the flush cannot be resumed.", hint="Start the task again."
        ) from cause


@dataclass(frozen=True, slots=True)
class DebeziumFeed:
    """The change feed of all tables of one connector.

    `client`: librdkafka's settings. `patterns`: the connector's topic.prefix, or patterns of its topics.
    `skipped`: the messages that a person told the task to skip. `placeholder`: the connector's
    unavailable.value.placeholder.
    """

    client: Mapping[str, str] = field(repr=False)
    patterns: tuple[str, ...]
    domain: Domain = "ms"
    skipped: Skipped = field(default_factory=dict)
    placeholder: Placeholder = field(default_factory=Placeholder)

    def topics(self, topic_names: Sequence[str]) -> list[str]:
        """Every topic of the connector that no pattern excludes: transactions count events in all of them.

        Raises Refused without transaction metadata, UsageProblem for several connectors.
        """
        return list(connector_of(self.patterns, topic_names).topics)

    def own_topics(self, names: Sequence[str]) -> list[str]:
        """The topic of the connector's transactions. Raises as `topics`."""
        return [connector_of(self.patterns, names).prefix + TRANSACTIONS]

    def prepare(
        self, storage: Storage, folder: str, last_folder: str | None, resolved_ts: int | None
    ) -> Mapping[str, Any]:
        """See Feed. Reads the transactions that ended since the last flush. Raises Refused and Damaged."""
        cluster = Cluster(self.client)
        names = cluster.topic_names()
        if last_folder is None:
            self._check_begins(cluster, names)
        connector = connector_of(self.patterns, names)
        topic = connector.prefix + TRANSACTIONS
        _, topic_ends = cluster.positions(cluster.describe([topic]), ISOLATION)
        [topic_end, *extra] = topic_ends
        if extra:
            raise Refused(
                f"{topic} has {len(topic_ends)} partitions: the order of the transactions is lost.",
                hint="The connector creates it with one; start with a new topic.prefix.",
            )
        transactions = (
            Transactions.read(storage, carried(last_folder))
            if last_folder
            else Transactions.none(topic_end.epoch)
        )
        if transactions.epoch != topic_end.epoch or transactions.next < topic_end.low:
            raise Refused(
                f"{topic} does not hold the transactions from offset {transactions.next} on any more.",
                hint="Its retention.ms must be -1. Start a new task, after a new snapshot of the connector.",
            )
        self._check_cut(transactions, topic_end)
        if last_folder:
            tidy(storage, last_folder)
        earlier_rows = transactions.rows
        transactions, ends = self._read_ends(
            replace(transactions, leader_epoch=topic_end.leader_epoch), topic, topic_end.end
        )
        path = prepared(folder)
        transactions.write(storage, path)
        promised_ts = resolved_ts if last_folder else None
        changes = self._schema_changes(storage, cluster, connector, last_folder, earlier_rows)
        changes = changes.placed(transactions, as_sent(earlier_rows, ends), connector.prefix, promised_ts)
        _, regions = cluster.positions(cluster.describe(connector.topics), ISOLATION)
        outlook = Outlook(
            connector,
            changes.first_sent,
            promised_ts,
            {f"{region.scope}/{region.region}": region.end for region in regions},
            changes.settled if changes.settled or last_folder is None else None,
            changes.tables,
        )
        view_path = f"{path.removesuffix('.parquet')}.json"
        View(outlook, changes).write(storage, view_path)
        return {"folder": folder, "transactions": path, "view": view_path}

    def _schema_changes(
        self,
        storage: Storage,
        cluster: Cluster,
        connector: Connector,
        last_folder: str | None,
        ends: pa.Table,
    ) -> SchemaChanges:
        """The schema changes that are not captured yet; reads their topic up to its end."""
        state = SchemaChanges.read(storage, state_path(last_folder)) if last_folder else None
        changes = state or SchemaChanges(tables=Tables(by_parts=last_folder is None))
        topic = connector.prefix
        if topic not in connector.topics:
            return changes
        _, [topic_end, *extra] = cluster.positions(cluster.describe([topic]), ISOLATION)
        if extra:
            raise Refused(
                f"{topic} has {len(extra) + 1} partitions: the order of the schema changes is lost.",
                hint="The connector creates it with one; start with a new topic.prefix.",
            )
        if changes.epoch is None:
            changes = replace(changes, epoch=topic_end.epoch, next=topic_end.low)
        if changes.epoch != topic_end.epoch or not topic_end.low <= changes.next <= topic_end.end:
            raise Refused(
                f"{topic} does not hold the schema changes from offset {changes.next} on any more.",
                hint="Its retention.ms must be -1. Start a new task on a connector with a new topic.prefix.",
            )
        # An earlier version read no schema changes.
        after_ms = pc.max(ends["sent"]).as_py() if last_folder and state is None else None
        location, messages = f"{topic}[0]", []
        client = reader(self.client, ISOLATION, (topic, topic_end.epoch))
        with closing(client.blocks(topic, 0, changes.next, topic_end.end)) as blocks:
            for block in blocks:
                records = records_of(block, location)
                messages += ask(SCHEMA_CHANGES, self._messages(records, topic), location).to_pylist()
        return changes.with_messages(messages, topic_end.end, topic, connector.topics, after_ms=after_ms)

    def _check_begins(self, cluster: Cluster, names: Sequence[str]) -> None:
        _, regions = cluster.positions(cluster.describe(self.topics(names)), ISOLATION)
        trimmed = next((region for region in regions if region.low), None)
        if trimmed:
            raise Refused(
                f"Topic {trimmed.scope}, partition {trimmed.region}, begins at offset {trimmed.low}: "
                "transactions that lost an event are never whole, and the log would end before them.",
                hint="Start with a connector with a new topic.prefix, whose topics have retention.ms=-1.",
            )

    def _check_cut(self, transactions: Transactions, topic_end: RegionState) -> None:
        backup_end = BackupEnd(0, *topic_end.key, transactions.next, transactions.leader_epoch)
        cuts = cut_back([backup_end], {backup_end.partition: topic_end}, Logs(self.client, lambda _: {}))
        if cuts or transactions.next > topic_end.end:
            raise Refused(
                f"{topic_end.scope} was cut back behind offset {transactions.next}, up to which it was read, "
                "as by an unclean election of its leader: ends of transactions were lost.",
                hint="Start a new task on a connector with a new topic.prefix, which takes a new snapshot; "
                "what this one captured stays restorable.",
            )

    def _read_ends(
        self, transactions: Transactions, topic: str, end: int
    ) -> tuple[Transactions, pa.Table | None]:
        """Read the ends up to an offset; returns the updated transactions, and the answer to ENDS, if any."""
        location, tables, next_offset = f"{topic}[0]", [], end
        client = reader(self.client, ISOLATION, (topic, transactions.epoch))
        with closing(client.blocks(topic, 0, transactions.next, end)) as blocks:
            for block in blocks:
                records = records_of(block, location)
                ends = ask(ENDS, self._messages(records, topic), location)
                check_ends(ends, location)
                tables.append(ends)
                if sum(map(len, tables)) > MOST:
                    next_offset = records["offset"][-1].as_py() + 1
                    break
        if not tables:
            return replace(transactions, next=next_offset), None
        ends = pa.concat_tables(tables)
        return transactions.with_ends(ends, next_offset), ends

    def _messages(self, records: pa.RecordBatch, topic: str) -> pa.RecordBatch:
        """The records of a topic of one partition, without skipped ones and those without a value."""
        records, _ = split(records, self.skipped, topic, 0)
        return without_tombstones(records)

    def decoder(self, storage: Storage, of: Range, context: Mapping[str, Any]) -> Decoder:
        """See Feed."""
        transactions, index = indexed(storage.uri, context["transactions"])
        view = view_of(storage.uri, context["view"]) if "view" in context else _EARLIER_VIEW
        connector = view.outlook.connector
        if connector and of.topic == connector.prefix:
            return SchemaDecoder(of, view.changes)
        return DebeziumDecoder(
            storage, of, context["folder"], transactions, index, view.outlook, self.placeholder
        )

    def checkpoint(
        self,
        storage: Storage,
        context: Mapping[str, Any],
        finished: Iterator[Mapping[str, Any]],
        regions: Iterator[Mapping[str, Any]],
        resolved_ts: int | None,
    ) -> int | None:
        """See Feed. Writes the state that the next flush must know to the folder of this one."""
        reports = list(finished)
        waits = [report["waits"] for report in reports if report.get("waits") is not None]
        if "view" in context:
            changes = view_of(storage.uri, context["view"]).changes
            up_to = max([report["schema_up_to"] for report in reports if "schema_up_to" in report], default=0)
            changes = changes.captured(up_to, reports)
            changes.write(storage, state_path(context["folder"]))
            waits += [change.ts for change in changes.waiting if change.ts is not None]
        events = [report for report in reports if "place" in report]
        transactions = Transactions.read(storage, context["transactions"]).counted(events, storage)
        transactions.needed_later().write(storage, carried(context["folder"]))
        checkpoint = transactions.checkpoint(waits)
        return resolved_ts if checkpoint is None else max(checkpoint, resolved_ts or 0)
