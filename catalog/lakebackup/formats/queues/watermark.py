"""The message that a restore writes into each partition of a queue, in front of what it restores.

It names the full that the engine's snapshot is of, and the tid up to which messages follow. An engine may
resume from it; backups recognize their own and do not store it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from lakebackup.errors import Damaged, UsageProblem
from lakebackup.formats.queues.headers import WATERMARK, HeaderNames
from lakebackup.store.manifest import from_json

FORMAT = 1
_VERSION = b"1"
_KIND = b"watermark"


@dataclass(frozen=True, slots=True)
class Watermark:
    """`full`, `backup`, `restore` are ids; everything up to `last_tid` is in the snapshot, and messages that
    bring the engine to `to_tid` follow."""

    graph: str
    full: str
    backup: str
    restore: str
    last_tid: int
    to_tid: int

    @property
    def value(self) -> bytes:
        """The message's value: JSON."""
        return json.dumps({"format": FORMAT, **asdict(self)}, separators=(",", ":")).encode()


def headers_of(names: HeaderNames) -> list[tuple[str, bytes]]:
    """The message's headers; its key is null."""
    return [(WATERMARK, _VERSION), (names.kind, _KIND)]


def read_watermark(value: bytes | None) -> Watermark:
    """The content of a watermark message, which has the header WATERMARK.

    Raises UsageProblem for one of a newer version, Damaged for one that cannot be read.
    """
    try:
        found = json.loads(value or b"")
        version = found.pop("format")
        if isinstance(version, int) and version > FORMAT:
            raise UsageProblem(
                f"This watermark message has format version {version}; versions up to {FORMAT} are known.",
                hint="Use the lakebackup that wrote it, or a newer one.",
            )
        return from_json(Watermark, json.dumps(found))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Damaged(
            f"A message with the header {WATERMARK} is no watermark: {error!r}.",
            hint="Only a restore by lakebackup writes such messages: find out what else sends that header.",
        ) from error
