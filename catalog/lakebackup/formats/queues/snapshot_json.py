"""Read snapshot.json: an engine's description of its snapshot, in a file beside the snapshot's folder.

    {"format": 1, "graph": "social", "last_tid": 1234,
     "queues": [{"topic": "delta.0", "partition": 0, "position": 4711, "max_no_transaction_pos": 4650}],
     "open_transactions": ["t-17"]}

`position`: the snapshot contains the partition's messages before this offset. `max_no_transaction_pos`: the
transactions that were open at the snapshot have no message before this offset. `last_tid`: the greatest tid
of all messages before a `position`, including those of open transactions. `graph` and `open_transactions` are
optional; without the latter, lakebackup reads the queues to find the open transactions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lakebackup.errors import Refused, UsageProblem

NAME = "snapshot.json"
FORMAT = 1
_Count = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
_STRICT = ConfigDict(extra="forbid", frozen=True)


class _Region(Protocol):
    """A partition of a queue, and its end offset."""

    @property
    def scope(self) -> str: ...
    @property
    def region(self) -> str: ...
    @property
    def end(self) -> int: ...


class QueueAt(BaseModel):
    """The positions of a snapshot in one partition of a queue."""

    model_config = _STRICT

    topic: str
    partition: _Count
    position: _Count
    max_no_transaction_pos: _Count


class SnapshotJson(BaseModel):
    """The content of a snapshot.json."""

    model_config = _STRICT

    format: Literal[1]
    graph: str | None = None
    last_tid: _Count
    queues: tuple[QueueAt, ...]
    open_transactions: tuple[str, ...] | None = None


def parse(data: bytes, file_name: str) -> SnapshotJson:
    """Parse the content of the file `file_name`. Raises UsageProblem."""
    try:
        content = json.loads(data)
    except ValueError as error:
        raise UsageProblem(f"{file_name} is not JSON: {error}.") from None
    version = content.get("format") if isinstance(content, dict) else None
    if type(version) is int and version > FORMAT:
        raise UsageProblem(
            f"{file_name} has format version {version}; versions up to {FORMAT} are known.",
            hint="Use a newer version of lakebackup.",
        )
    try:
        return SnapshotJson.model_validate(content)
    except ValidationError as error:
        problems = []
        for detail in error.errors(include_input=False, include_url=False)[:5]:
            location = ".".join(map(str, detail["loc"])) or "the file"
            problems.append(f"{location}: {detail['msg'][:1].lower()}{detail['msg'][1:]}")
        raise UsageProblem(
            f"{file_name} is not a valid snapshot.json: {'; '.join(problems)}.",
            hint='Write {"format": 1, "last_tid": N, "queues": [{"topic": "…", "partition": N, '
            '"position": N, "max_no_transaction_pos": N}, …]}.',
        ) from None


def require_positions(snapshot: SnapshotJson, file_name: str, graph: str, regions: Sequence[_Region]) -> None:
    """Check a snapshot.json against the queues of the engine `graph`.

    Raises UsageProblem when it is of another engine, and when a partition is missing, unknown or named twice.
    Raises Refused for a position after the end of its partition, or below its max_no_transaction_pos.
    """
    if snapshot.graph is not None and snapshot.graph != graph:
        raise UsageProblem(
            f"{file_name} is of {snapshot.graph}, not of {graph}.",
            hint="Give an engine and its own snapshot.",
        )
    regions_by_partition = {(r.scope, int(r.region)): r for r in regions}
    named_partitions: set[tuple[str, int]] = set()
    for queue in snapshot.queues:
        topic_partition = (queue.topic, queue.partition)
        if topic_partition in named_partitions:
            raise UsageProblem(f"{file_name} names topic {queue.topic}, partition {queue.partition} twice.")
        named_partitions.add(topic_partition)
        region = regions_by_partition.get(topic_partition)
        if region is None:
            raise UsageProblem(
                f"{file_name} names topic {queue.topic}, partition {queue.partition}, which is not among the "
                "queues that are backed up.",
                hint="Name all queues of the engine with --pattern.",
            )
        if not queue.max_no_transaction_pos <= queue.position <= region.end:
            raise Refused(
                f"{file_name} cannot be right: topic {queue.topic}, partition {queue.partition} ends at "
                f"{region.end}, and the snapshot has position {queue.position} and max_no_transaction_pos "
                f"{queue.max_no_transaction_pos}.",
                hint="The positions are those of another cluster, or of queues that were reset since.",
            )
    missing = sorted(regions_by_partition.keys() - named_partitions)
    if missing:
        topic, partition = missing[0]
        raise UsageProblem(
            f"{file_name} does not name topic {topic}, partition {partition}.",
            hint="It must name every partition of every queue that is backed up.",
        )


def require_last_tid(
    last_tid: int, file_name: str, seen_tid: int | None, partition: str, position: int | None
) -> None:
    """Raise Refused if `seen_tid`, the greatest tid before a snapshot's positions, is above `last_tid`.

    That tid is at the offset `position` of `partition`; `file_name` names the snapshot.json.
    """
    if seen_tid is not None and seen_tid > last_tid:
        raise Refused(
            f"{file_name} has last_tid {last_tid}, and {partition} has a message before its position, at "
            f"offset {position}, with tid {seen_tid}.",
            hint="Either last_tid or a position is wrong: restores would lose or repeat messages. "
            "Messages of open transactions count too.",
        )
