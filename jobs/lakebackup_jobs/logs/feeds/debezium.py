"""Debezium's change events as JSON, from any of its connectors that provide transaction metadata.

The envelope (before, after, source, op, transaction) and the topic of the transactions' ends are as Debezium
documents them; Kafka Connect's JsonConverter wraps both in `payload` when messages bring their schemas.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebackup.errors import Refused, UsageProblem
from lakebackup.plan.topics.forks import BackupEnd, cut_back
from lakebackup.rules.patterns import compile_pattern
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.kafka.client.consume import reader
from lakebackup_jobs.kafka.client.epochs import Logs
from lakebackup_jobs.kafka.format.arrow import records_of
from lakebackup_jobs.logs.feeds import ISOLATION
from lakebackup_jobs.logs.feeds.debezium_decoder import DebeziumDecoder
from lakebackup_jobs.logs.feeds.debezium_json import ENDS, ask
from lakebackup_jobs.logs.feeds.transactions import MOST, Transactions, carried, indexed, prepared, tidy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakebackup.formats.logs.events import Domain
    from lakebackup.plan.partitions import RegionState
    from lakebackup.storage import Storage
    from lakebackup_jobs.logs.feeds import Range

TOPIC = ".transaction"


@dataclass(frozen=True, slots=True)
class DebeziumFeed:
    """All tables of one connector. `client`: librdkafka's settings; `chosen`: its topic.prefix, or topics."""

    client: Mapping[str, str] = field(repr=False)
    chosen: tuple[str, ...]
    domain: Domain = "ms"

    def topics(self, known: Sequence[str]) -> list[str]:
        """Every topic of the connector: a transaction's events are counted over all of them.

        Raises Refused without transaction metadata, UsageProblem for several connectors.
        """
        prefix = self._prefix(known)
        return sorted(name for name in known if name.startswith(f"{prefix}.") and name != prefix + TOPIC)

    def _prefix(self, known: Sequence[str]) -> str:
        patterns = [compile_pattern(chosen) for chosen in self.chosen]
        matched = [name for name in known if any(p.fullmatch(name) for p in patterns)]
        prefixes = [name.removesuffix(TOPIC) for name in known if name.endswith(TOPIC)]
        prefixes = [p for p in prefixes if not any(p.startswith(f"{other}.") for other in prefixes)]
        found = [p for p in prefixes if p in self.chosen or any(m.startswith(f"{p}.") for m in matched)]
        if not found:
            raise Refused(
                f"No Debezium connector with transaction metadata matches {', '.join(self.chosen)}: "
                f"there is no topic <topic.prefix>{TOPIC}.",
                hint="Set provide.transaction.metadata=true and a heartbeat.action.query in the connector. "
                "The topic appears with the first change.",
            )
        if len(found) > 1:
            raise UsageProblem(
                f"These topics are of several connectors: {', '.join(found)}.",
                hint="Start a task for each.",
            )
        return found[0]

    def prepare(
        self, storage: Storage, folder: str, before: str | None, resolved_ts: int | None
    ) -> Mapping[str, Any]:
        """See Feed. Reads the transactions that ended since the last flush. Raises Refused, Damaged."""
        cluster = Cluster(self.client)
        names = cluster.topic_names()
        if before is None:
            self._check_begins(cluster, names)
        topic = self._prefix(names) + TOPIC
        _, places = cluster.positions(cluster.describe([topic]), ISOLATION)
        [place, *more] = places
        if more:
            raise Refused(
                f"{topic} has {len(places)} partitions: the order of the transactions is lost.",
                hint="The connector creates it with one; start with a new topic.prefix.",
            )
        known = Transactions.read(storage, carried(before)) if before else Transactions.none(place.epoch)
        if known.epoch != place.epoch or known.next < place.low:
            raise Refused(
                f"{topic} does not hold the transactions from offset {known.next} on any more.",
                hint="Its retention.ms must be -1. Start a new task, after a new snapshot of the connector.",
            )
        self._check_cut(known, place)
        if before:
            tidy(storage, before)
        known = self._read_ends(replace(known, leader_epoch=place.leader_epoch), topic, place.end)
        path = prepared(folder)
        known.write(storage, path)
        return {"folder": folder, "transactions": path}

    def _check_begins(self, cluster: Cluster, names: Sequence[str]) -> None:
        _, regions = cluster.positions(cluster.describe(self.topics(names)), ISOLATION)
        lost = next((region for region in regions if region.low), None)
        if lost:
            raise Refused(
                f"Topic {lost.scope}, partition {lost.region}, begins at offset {lost.low}: transactions "
                "that lost an event are never whole, and the log would end before them.",
                hint="Start with a connector with a new topic.prefix, whose topics have retention.ms=-1.",
            )

    def _check_cut(self, known: Transactions, place: RegionState) -> None:
        read = BackupEnd(0, *place.place, known.next, known.leader_epoch)
        cut = cut_back([read], {read.where: place}, Logs(self.client, lambda _: {}))
        if cut or known.next > place.end:
            raise Refused(
                f"{place.scope} was cut back behind offset {known.next}, up to which it was read, as by an "
                "unclean election of its leader: ends of transactions were lost.",
                hint="Start a new task on a connector with a new topic.prefix, which takes a new snapshot; "
                "what this one captured stays restorable.",
            )

    def _read_ends(self, known: Transactions, topic: str, end: int) -> Transactions:
        where, found, next_offset = f"{topic}[0]", [], end
        client = reader(self.client, ISOLATION, (topic, known.epoch))
        with closing(client.blocks(topic, 0, known.next, end)) as blocks:
            for block in blocks:
                records = records_of(block, where)
                found.append(ask(ENDS, records, where))
                if sum(map(len, found)) > MOST:
                    next_offset = records["offset"][-1].as_py() + 1
                    break
        if not found:
            return replace(known, next=next_offset)
        return known.with_ends(pa.concat_tables(found), next_offset)

    def decoder(self, storage: Storage, of: Range, context: Mapping[str, Any]) -> DebeziumDecoder:
        """See Feed."""
        known, index = indexed(storage.uri, context["transactions"])
        return DebeziumDecoder(storage, of, context["folder"], known, index)

    def checkpoint(
        self,
        storage: Storage,
        context: Mapping[str, Any],
        finished: Iterator[Mapping[str, Any]],
        regions: Iterator[Mapping[str, Any]],
        resolved_ts: int | None,
    ) -> int | None:
        """See Feed. Writes to the flush's folder what the next flush must know."""
        reports = list(finished)
        known = Transactions.read(storage, context["transactions"]).counted(reports, storage)
        known.kept().write(storage, carried(context["folder"]))
        reached = known.checkpoint([one["waits"] for one in reports if one.get("waits") is not None])
        return resolved_ts if reached is None else max(reached, resolved_ts or 0)
