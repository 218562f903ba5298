"""Messages that a person told a log task to skip, because it cannot continue with them. Pure.

A flush that passes a skipped message records a gap with the reason `skipped`. No restore crosses that gap
without --allow-gaps.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.errors import UsageProblem
from lakebackup.plan.partitions import BackupRows
from lakebackup.rows.backups import Gap, Position

#: The reason of a gap that a skipped message leaves.
REASON: Final = "skipped"
#: The offsets of skipped messages, by `topic/partition`.
Skipped = dict[str, tuple[int, ...]]

_TEXT = re.compile(r"([a-zA-Z0-9._-]+):(\d+):(\d+)", re.ASCII)
# The two forms in which errors name a message.
_MESSAGE = re.compile(
    r"(?P<topic>[\w.-]+)\[(?P<partition>\d+)\] offset (?P<offset>\d+)"
    r"|topic (?P<topic2>[\w.-]+), partition (?P<partition2>\d+), offset (?P<offset2>\d+)",
    re.ASCII,
)


class Message(NamedTuple):
    """The position of a message."""

    topic: str
    partition: int
    offset: int

    @property
    def text(self) -> str:
        """The message as an argument of --skip."""
        return f"{self.topic}:{self.partition}:{self.offset}"


def parse(text: str) -> Message:
    """The message of a text `TOPIC:PARTITION:OFFSET`. Raises UsageProblem."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise UsageProblem(
            f"--skip {text!r} names no message.",
            hint="It is TOPIC:PARTITION:OFFSET, as `lakebackup log status` shows them: shop.public.a:0:17.",
        )
    return Message(match[1], int(match[2]), int(match[3]))


def named_in(text: str) -> Message | None:
    """The message that an error's text names, or None."""
    match = _MESSAGE.search(text)
    if match is None:
        return None
    topic, partition, offset = (match[name] or match[f"{name}2"] for name in ("topic", "partition", "offset"))
    return Message(topic, int(partition), int(offset))


def by_partition(texts: Iterable[str]) -> Skipped:
    """The offsets of the messages in a task's `skip` setting, in order. Raises UsageProblem."""
    offsets: dict[str, list[int]] = {}
    for message in sorted(map(parse, texts)):
        offsets.setdefault(f"{message.topic}/{message.partition}", []).append(message.offset)
    return {partition: tuple(numbers) for partition, numbers in offsets.items()}


def split(
    records: pa.RecordBatch, skipped: Mapping[str, Sequence[int]], topic: str, partition: int
) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """The records of a partition that are not skipped, and those that are (None when there are none)."""
    offsets = skipped.get(f"{topic}/{partition}")
    if not offsets:
        return records, None
    is_skipped = pc.is_in(records["offset"], pa.array(offsets, pa.int64()))
    if not pc.any(is_skipped).as_py():
        return records, None
    return records.filter(pc.invert(is_skipped)), records.filter(is_skipped)


def gaps(
    rows: BackupRows,
    texts: Iterable[str],
    positions: Sequence[Position],
    recorded: Collection[tuple[str, str, int]],
    from_ts: int,
) -> list[Gap]:
    """The gaps of the skipped messages that a flush passes.

    `positions`: what the flush reads. Topics that are not among them are read by the feed itself. `recorded`:
    scope, region and offset of the messages that have a gap already. `to_ts` is set when the flush is
    published.
    """
    planned = {(position.scope, position.region): position for position in positions}
    topics = {position.scope for position in positions}
    gap_rows = []
    for message in map(parse, texts):
        position = planned.get((message.topic, str(message.partition)))
        if (message.topic, str(message.partition), message.offset) in recorded:
            continue
        if position is None and message.topic in topics:
            continue
        if position is not None and not position.start_position <= message.offset < position.end_position:
            continue
        partition = (message.topic, position.epoch if position else "-", str(message.partition))
        end = message.offset + 1
        gap = rows.gap(partition, message.offset, end, from_ts=from_ts, to_ts=from_ts + 1, bridged=True)
        gap_rows.append(replace(gap, reason=REASON))
    return gap_rows
