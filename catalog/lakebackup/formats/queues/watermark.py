"""The watermark: a message that a restore writes into each partition of a queue before the restored messages.

It names the full backup of the engine's snapshot, and the tid up to which messages follow. An engine may
resume from it. Backups recognize watermarks of lakebackup and do not store them.
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
    """The content of a watermark. `full`, `backup` and `restore` are ids. The snapshot holds everything up to
    `last_tid`; the messages that follow bring the engine to `to_tid`."""

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
    """Parse the value of a message with the header WATERMARK.

    Raises UsageProblem for a watermark of a newer version, Damaged for one that cannot be read.
    """
    try:
        fields = json.loads(value or b"")
        version = fields.pop("format")
        if isinstance(version, int) and version > FORMAT:
            raise UsageProblem(
                f"This watermark message has format version {version}; versions up to {FORMAT} are known.",
                hint="Use the lakebackup that wrote it, or a newer one.",
            )
        return from_json(Watermark, json.dumps(fields))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Damaged(
            f"A message with the header {WATERMARK} is no watermark: {error!r}.",
            hint="Only a restore by lakebackup writes such messages: find out what else sends that header.",
        ) from error
