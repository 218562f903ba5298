"""Messages that a log task leaves out because a person said so, when it cannot go on with them. Pure.

A flush that passes one records a gap of reason `skipped`: no restore goes over it without --allow-gaps.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lakebackup.plan.partitions import BackupRows
    from lakebackup.rows.backups import Gap, Position

#: The reason of such a gap.
REASON: Final = "skipped"
#: By `topic/partition`, the offsets that are left out.
Skipped = dict[str, tuple[int, ...]]

_TEXT = re.compile(r"([a-zA-Z0-9._-]+):(\d+):(\d+)", re.ASCII)
# How errors name a message.
_NAMED = re.compile(
    r"(?P<topic>[\w.-]+)\[(?P<partition>\d+)\] offset (?P<offset>\d+)"
    r"|topic (?P<topic2>[\w.-]+), partition (?P<partition2>\d+), offset (?P<offset2>\d+)",
    re.ASCII,
)


class Message(NamedTuple):
    """Where a message is."""

    topic: str
    partition: int
    offset: int

    @property
    def text(self) -> str:
        """As --skip takes it."""
        return f"{self.topic}:{self.partition}:{self.offset}"


def parse(text: str) -> Message:
    """`TOPIC:PARTITION:OFFSET` as a message. Raises UsageProblem."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise UsageProblem(
            f"--skip {text!r} names no message.",
            hint="It is TOPIC:PARTITION:OFFSET, as `lakebackup log status` shows them: shop.public.a:0:17.",
        )
    return Message(match[1], int(match[2]), int(match[3]))


def named_in(text: str) -> Message | None:
    """The message that an error names, None: it names none."""
    match = _NAMED.search(text)
    if match is None:
        return None
    topic, partition, offset = (match[name] or match[f"{name}2"] for name in ("topic", "partition", "offset"))
    return Message(topic, int(partition), int(offset))


def by_partition(texts: Iterable[str]) -> Skipped:
    """The messages of a task's settings."""
    offsets: dict[str, list[int]] = {}
    for one in sorted(map(parse, texts)):
        offsets.setdefault(f"{one.topic}/{one.partition}", []).append(one.offset)
    return {place: tuple(found) for place, found in offsets.items()}


def split(
    records: pa.RecordBatch, skipped: Mapping[str, Sequence[int]], topic: str, partition: int
) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Records without those that are left out; and those, None when there are none."""
    offsets = skipped.get(f"{topic}/{partition}")
    if not offsets:
        return records, None
    chosen = pc.is_in(records["offset"], pa.array(offsets, pa.int64()))
    if not pc.any(chosen).as_py():
        return records, None
    return records.filter(pc.invert(chosen)), records.filter(chosen)


def gaps(
    rows: BackupRows,
    texts: Iterable[str],
    positions: Sequence[Position],
    recorded: Collection[tuple[str, str, int]],
    from_ts: int,
) -> list[Gap]:
    """The gaps of the messages within what a flush reads.

    `positions`: what it reads; the feed itself reads the topics that are not among them. `recorded`: scope,
    region and offset of those that have a gap. `to_ts` is set when the flush is published.
    """
    planned = {(one.scope, one.region): one for one in positions}
    topics = {one.scope for one in positions}
    found = []
    for one in map(parse, texts):
        at = planned.get((one.topic, str(one.partition)))
        if (one.topic, str(one.partition), one.offset) in recorded:
            continue
        if at is None and one.topic in topics:
            continue
        if at is not None and not at.start_position <= one.offset < at.end_position:
            continue
        place = (one.topic, at.epoch if at else "-", str(one.partition))
        gap = rows.gap(place, one.offset, one.offset + 1, from_ts=from_ts, to_ts=from_ts + 1, bridged=True)
        found.append(replace(gap, reason=REASON))
    return found
