"""Messages of an engine's queues that a person leaves out of backups, by offset, since they cannot be read.

Each is an entry of the audit log, so that later backups leave it out too: a differential would read it again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lakebackup.errors import NotFound, UsageProblem
from lakebackup.plan.partitions import TopicState
from lakebackup.rows.upkeep import Audit
from lakebackup.rules.stored_json import object_of
from lakebackup.store.audit_log import SKIP_MESSAGE
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.identity import holder

#: (topic, topic id, partition, offset)
MessageOffset = tuple[str, str, str, int]
_TEXT = re.compile(r"(?P<topic>[^\[\]]+)\[(?P<region>[0-9]{1,9})\]@(?P<offset>[0-9]{1,18})")


def parse_messages(texts: Iterable[str], topics: Sequence[TopicState]) -> frozenset[MessageOffset]:
    """Return the messages that texts such as `delta.1[0]@4711` name, in the topics as they are now.

    Raises UsageProblem (the text does not name a message), NotFound (no such topic or partition).
    """
    states = {topic.scope: topic for topic in topics}
    messages = set()
    for text in texts:
        match = _TEXT.fullmatch(text)
        if match is None:
            raise UsageProblem(
                f"--skip-message {text!r} does not name a message.",
                hint="Give topic, partition and offset, as in 'delta.1[0]@4711'.",
            )
        topic = states.get(match["topic"])
        if topic is None or int(match["region"]) >= topic.regions:
            raise NotFound(
                f"--skip-message {text!r}: the backup reads no such partition.",
                hint=f"It reads {', '.join(sorted(states)) or 'no topic'}.",
            )
        messages.add((topic.scope, topic.epoch, str(int(match["region"])), int(match["offset"])))
    return frozenset(messages)


def recorded(reader: CatalogReader | None, source: str) -> frozenset[MessageOffset]:
    """Return the messages that the audit log records as left out."""
    if reader is None:
        return frozenset()
    details = [object_of(row["detail"]) for row in reader.rows("queue_skipped", source=source)]
    return frozenset((d["scope"], d["epoch"], d["region"], d["position"]) for d in details)


def record(writer: CatalogWriter, source: str, messages: Iterable[MessageOffset], recorded_at: int) -> None:
    """Record messages in the audit log as left out; `recorded_at` in microseconds."""
    for scope, epoch, region, position in sorted(messages):
        detail = {"scope": scope, "epoch": epoch, "region": region, "position": position}
        entry = Audit(
            at=recorded_at, actor=holder(), action=SKIP_MESSAGE, subject=source, detail=json.dumps(detail)
        )
        writer.append_audit(entry)


def by_partition(messages: Iterable[MessageOffset]) -> Mapping[tuple[str, str, str], list[int]]:
    """Return the offsets of the messages by (topic, topic id, partition)."""
    offsets: dict[tuple[str, str, str], Any] = {}
    for scope, epoch, region, position in messages:
        offsets.setdefault((scope, epoch, region), []).append(position)
    return offsets
